"""Kernels on several cores: blocks of rows in the threads that torch would use."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import torch


@cache
def _pool(size: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(size, thread_name_prefix="widemax")


# A forked child has none of its parent's threads: it must not wait for them.
os.register_at_fork(after_in_child=_pool.cache_clear)


def in_blocks(kernel: Callable[[int, int], None], rows: int, *, smallest: int = 1) -> None:
    """Call ``kernel(start, stop)`` for blocks that cover the rows, one block a thread.

    Formula: none.

    Shapes: none; the kernel must release the interpreter lock (``nogil=True``) and write to the
    rows start … stop − 1 alone.

    Cost: some 50 µs for the other threads; none where one block is enough.

    Reference: none.

    Use when: a kernel's rows are independent. Blocks hold at least ``smallest`` rows, and there are
    no more of them than ``torch.get_num_threads()``: a process that was told to use one core uses
    one. Avoid when: the work takes less than 100 µs.

    >>> in_blocks(lambda start, stop: print(start, stop), 10, smallest=10)
    0 10
    """
    blocks = max(1, min(torch.get_num_threads(), rows // smallest))
    edges = [rows * block // blocks for block in range(blocks + 1)]
    if blocks == 1:
        kernel(0, rows)
        return
    # The last block is this thread's own: one thread less to wake.
    waiting = [
        _pool(blocks - 1).submit(kernel, edges[block], edges[block + 1])
        for block in range(blocks - 1)
    ]
    try:
        kernel(edges[-2], rows)
    finally:
        for future in waiting:
            future.result()
