"""Threads that answer, as many as there are cores, so that the server itself is never held up."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from widemax.serving.limits import Limits

_T = TypeVar("_T")


class BusyError(Exception):
    """As many answers are under way as a server may work on."""


class TooSlowError(Exception):
    """An answer took longer than it may."""


class Deadline:
    """When an answer must be there.

    >>> Deadline(60.0).check()
    """

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def check(self) -> None:
        """Raise if the time is over: whoever waited has gone."""
        if time.monotonic() > self._end:
            raise TooSlowError


class Workers:
    """A bounded pool: so many answers at once, so many more that wait, and a time for each."""

    def __init__(self, limits: Limits, threads: int | None = None) -> None:
        self.limits = limits
        self.busy = 0
        """Answers that are under way or wait for a thread, those given up included."""
        self.threads = threads or max(1, min(8, len(os.sched_getaffinity(0))))
        self._pool = ThreadPoolExecutor(
            self.threads, thread_name_prefix="answer", initializer=self._share_cores
        )

    def _share_cores(self) -> None:
        """Let each thread compute on its share of the cores: more would wait for each other."""
        import torch

        cores = max(1, torch.get_num_threads() // self.threads)
        torch.set_num_threads(cores)
        try:
            import faiss
        except ImportError:
            return
        faiss.omp_set_num_threads(cores)

    async def do(self, function: Callable[[Deadline], _T]) -> _T:
        """Return what a function returns, called in a thread with the time until which it may."""
        if self.busy >= self.limits.concurrent:
            raise BusyError
        self.busy += 1
        future = asyncio.get_running_loop().run_in_executor(
            self._pool, function, Deadline(self.limits.seconds)
        )
        # Only now is the place free: a thread cannot be stopped, and what was given up goes on.
        future.add_done_callback(self._done)
        done, _ = await asyncio.wait([future], timeout=self.limits.seconds)
        if not done:
            future.cancel()
            raise TooSlowError
        return future.result()

    def _done(self, future: asyncio.Future[_T]) -> None:
        self.busy -= 1
        if not future.cancelled():
            future.exception()  # seen, so that nothing is logged for an answer that was given up

    def close(self) -> None:
        """Take no more work; what is under way ends by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)
