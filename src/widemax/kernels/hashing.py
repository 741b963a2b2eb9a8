"""Hash tables of whole numbers inside kernels: linear probing with Fibonacci hashing.

A table is an array of 2^k slots, at most half of them in use (Knuth, volume 3, 6.4).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from widemax.kernels.compiling import njit

EMPTY = -1
"""What a slot holds that is not in use."""

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: spreads neighbouring keys


@njit(inline="always")
def hash_shift(slots: int) -> np.uint64:
    """Return the shift of the smallest table with at least so many slots, and 2."""
    bits = 1
    while (1 << bits) < slots:
        bits += 1
    return np.uint64(64 - bits)


@njit(inline="always")
def empty_table(shift: np.uint64) -> NDArray[np.int64]:
    """Return a table of this shift without a key."""
    return np.full(1 << np.int64(np.uint64(64) - shift), EMPTY, np.int64)


@njit(inline="always")
def first_slot(key: np.uint64, shift: np.uint64) -> np.int64:
    """Return the slot at which the search for a key begins."""
    return np.int64((key * _MULTIPLIER) >> shift)


@njit(inline="always")
def slot_of(table: NDArray[np.int64], key: int, shift: np.uint64) -> np.int64:
    """Return the slot of a key ≥ 0 in a table of keys, or the empty one where it belongs."""
    slot = first_slot(np.uint64(key), shift)
    while table[slot] != EMPTY and table[slot] != key:
        slot = (slot + 1) & (len(table) - 1)
    return slot
