"""Threads that answer, as many as there are cores, so that the server itself is never held up."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Hashable
from functools import partial
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeAlias, TypeVar

from widemax.limits import usable_cores
from widemax.serving.limits import Limits

_ENOUGH, _SHORT_SECONDS = 5, 0.005
"""So many of a kind are measured first; what then costs less than this is called at once."""

_T = TypeVar("_T")
_Answer: TypeAlias = "asyncio.Future[Any]"


class _Job(NamedTuple):
    """What a thread is to do, and where it is waited for."""

    function: Callable[[Deadline], Any]
    deadline: Deadline
    answer: _Answer


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


class _Cost:
    """What functions of one kind have cost lately, in seconds of a processor."""

    def __init__(self) -> None:
        self._seconds, self._times = 0.0, 0

    def is_short(self) -> bool:
        return self._times >= _ENOUGH and self._seconds < _SHORT_SECONDS

    def measured(self, function: Callable[[Deadline], _T], deadline: Deadline) -> _T:
        started = time.thread_time()
        try:
            return function(deadline)
        finally:
            seconds = time.thread_time() - started
            self._times += 1
            # One that cost more counts at once, those that cost less bit by bit.
            self._seconds = max(seconds, self._seconds + 0.1 * (seconds - self._seconds))


class Workers:
    """A bounded pool: so many answers at once, so many more that wait, and a time for each.

    Threads of its own and one queue: the way through an executor costs as much as a short answer.
    """

    def __init__(self, limits: Limits, threads: int | None = None) -> None:
        self.limits = limits
        self.busy = 0
        """Answers that are under way or wait for a thread, those given up included."""
        self.threads = threads or min(8, usable_cores())
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._started = False
        self._own_costs: dict[Hashable, _Cost] = {}
        self._shares = False

    def _start(self) -> None:
        """Start the threads; they end with the process, whatever they are held up by."""
        self._started = True
        for place in range(self.threads):
            threading.Thread(target=self._answer, name=f"answer-{place}", daemon=True).start()

    def _answer(self) -> None:
        """Do one job after the other, until there are no more to come."""
        self._share_cores()
        while (job := self._jobs.get()) is not None:
            found, error = None, None
            # Nobody waits any more for what was given up before it began.
            if not job.answer.done():
                try:
                    found = job.function(job.deadline)
                except BaseException as raised:  # whoever waits is told
                    error = raised
            try:
                job.answer.get_loop().call_soon_threadsafe(self._done, job.answer, found, error)
            except RuntimeError:  # the loop has ended: nobody waits any more
                return
            # Not kept while the next one is waited for: a run may be large.
            del job, found, error

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

    async def do(self, function: Callable[[Deadline], _T], kind: Hashable = None) -> _T:
        """Return what a function returns, called in a thread with the time until which it may.

        Functions of one ``kind`` cost about the same. Where those before have cost little, it is
        called here and now: the way to a thread and back, and two that wait for Python's lock,
        would cost more.
        """
        if self.busy >= self.limits.concurrent:
            raise BusyError
        if kind is not None:
            cost = self._own_costs.setdefault(kind, _Cost())
            if cost.is_short():
                if not self._shares:
                    self._shares = True
                    self._share_cores()
                return cost.measured(function, Deadline(self.limits.seconds))
            function = partial(cost.measured, function)
        self.busy += 1
        if not self._started:
            self._start()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[_T] = loop.create_future()
        self._jobs.put(_Job(function, Deadline(self.limits.seconds), answer))
        patience = loop.call_later(self.limits.seconds, _give_up, answer)
        try:
            return await answer
        finally:
            patience.cancel()

    def _done(self, answer: _Answer, found: Any, error: BaseException | None) -> None:
        """Hand an answer over, in the thread of the server."""
        # Only now is the place free: a thread cannot be stopped, and what was given up goes on.
        self.busy -= 1
        if answer.done():
            return
        if error is None:
            answer.set_result(found)
        else:
            answer.set_exception(error)

    def close(self) -> None:
        """Take no more work; what is under way ends by itself."""
        for _ in range(self.threads):
            self._jobs.put(None)


def _give_up(answer: _Answer) -> None:
    if not answer.done():
        answer.set_exception(TooSlowError())
