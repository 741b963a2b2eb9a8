"""Kernels on several cores, in the threads that torch itself uses."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

# OpenMP's threads are not copied by a fork: a child that asked for them would be ended.
_process = os.getpid()


@cache
def _has_openmp() -> bool:
    # Without it Numba falls back on threads that must not be used from two places at once.
    return importlib.util.find_spec("numba.np.ufunc.omppool") is not None


def num_blocks(rows: int, *, smallest: int = 1) -> int:
    """Return into how many blocks a kernel over independent rows should be cut: threads, or fewer.

    For 1 block call the serial form of the kernel, else the ``parallel=True`` one, if the work
    takes 50 µs or more. OpenMP's threads are still awake from the torch operation before, where a
    thread pool of Python would compete with them. There are never more blocks than
    ``torch.get_num_threads()``: a process that was told to use one core uses one.

    >>> num_blocks(10, smallest=10)
    1
    """
    most = min(torch.get_num_threads(), rows // max(1, smallest))
    # Last what asks the system: a step of training comes here ten times.
    if most <= 1 or os.getpid() != _process or not _has_openmp():
        return 1
    return most


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Have torch and kernels use one thread in each of the threads that are started within.

    >>> with one_thread_each():
    ...     num_blocks(1_000_000)
    1
    """
    # Torch gives every new thread the number that was set last, by whichever thread.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
