"""Long loops in several threads: each takes a block, the kernels let go of the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

Result = TypeVar("Result")

# A thread is started in 50 µs; this many values are worth ten times that.
_VALUES_A_THREAD = 2**18


def at_once(*tasks: Callable[[], Result]) -> list[Result]:
    """Return what each task returns, in order; they run in threads of their own.

    A thread costs about 50 µs, so each task should take a millisecond or more inside polars or a
    kernel with ``nogil=True``. There is none if ``torch.get_num_threads()`` is 1: a process that
    was told to use one core uses one.

    >>> at_once(lambda: 3, lambda: 4)
    [3, 4]
    """
    if len(tasks) == 1 or torch.get_num_threads() == 1:
        return [task() for task in tasks]
    with ThreadPoolExecutor(len(tasks)) as threads:
        return [future.result() for future in [threads.submit(task) for task in tasks]]


def in_blocks(
    work: Callable[[int, int], Result], total: int, offsets: NDArray[np.int64] | None = None
) -> list[Result]:
    """Return what ``work(start, stop)`` returns for each of the blocks that make up the whole.

    The ``total`` values are cut into blocks of equal size; with ``offsets`` [N + 1] into blocks of
    whole sequences that hold about as many values each, and start and stop are sequences. A single
    block if the values are few.

    >>> in_blocks(lambda start, stop: stop - start, 10)
    [10]
    """
    threads = max(1, min(torch.get_num_threads(), total // _VALUES_A_THREAD))
    cuts = np.arange(threads + 1) * total // threads
    if offsets is not None:
        cuts = np.searchsorted(offsets, cuts)
        cuts[0], cuts[-1] = 0, len(offsets) - 1
    blocks = zip(cuts.tolist(), cuts[1:].tolist(), strict=False)
    return at_once(*[_block(work, start, stop) for start, stop in blocks])


def _block(work: Callable[[int, int], Result], start: int, stop: int) -> Callable[[], Result]:
    return lambda: work(start, stop)
