"""Keeping the first distinct ids of a row of draws."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

_EMPTY = -1
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: spreads neighbouring ids


@njit(cache=True)
def first_distinct(
    drawn: NDArray[np.int64], num_samples: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the first ``num_samples`` distinct ids of each row, in drawing order.

    Formula: ids[r] = the first S distinct entries of drawn[r]; tries[r] = how many entries were
    read to find them; found[r] = how many distinct ones were found, S unless the row has fewer.

    Shapes: drawn [R, T] of ids ≥ 0 in; ids [R, S], tries [R], found [R] out.

    Cost: O(R·T) time by a hash table of the draws; 32·T bytes at most.

    Reference: linear probing with Fibonacci hashing (Knuth, volume 3, 6.4).

    Use when: distinct draws on the CPU. Avoid when: the ids live on another device.

    >>> ids, tries, found = first_distinct(np.array([[5, 5, 2, 9]]), 2)
    >>> ids.tolist(), tries.tolist(), found.tolist()
    ([[5, 2]], [3], [2])
    """
    rows, available = drawn.shape
    bits = 1
    while (1 << bits) < 2 * available:
        bits += 1
    shift = np.uint64(64 - bits)
    mask = (1 << bits) - 1
    ids = np.empty((rows, num_samples), np.int64)
    tries = np.zeros(rows, np.int64)
    found = np.zeros(rows, np.int64)
    table = np.empty(1 << bits, np.int64)
    for row in range(rows):
        table[:] = _EMPTY
        while found[row] < num_samples and tries[row] < available:
            drawn_id = drawn[row, tries[row]]
            tries[row] += 1
            slot = np.int64((np.uint64(drawn_id) * _MULTIPLIER) >> shift)
            while table[slot] != _EMPTY and table[slot] != drawn_id:
                slot = (slot + 1) & mask
            if table[slot] == _EMPTY:
                table[slot] = drawn_id
                ids[row, found[row]] = drawn_id
                found[row] += 1
    return ids, tries, found


def first_distinct_reference(
    drawn: NDArray[np.int64], num_samples: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the same in plain Python; the ids of a row with too few are padded with -1."""
    ids = np.full((len(drawn), num_samples), -1, dtype=np.int64)
    tries = np.zeros(len(drawn), dtype=np.int64)
    found = np.zeros(len(drawn), dtype=np.int64)
    for row, entries in enumerate(drawn.tolist()):
        seen = dict.fromkeys(entries)
        kept = list(seen)[:num_samples]
        ids[row, : len(kept)] = kept
        found[row] = len(kept)
        enough = len(kept) == num_samples
        tries[row] = entries.index(kept[-1]) + 1 if enough else len(entries)
    return ids, tries, found


@njit(cache=True)
def rows_among(classes: NDArray[np.int64], ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows whose class is among the ids.

    Formula: {b : classes[b] ∈ ids}, rising.

    Shapes: classes [B], ids [S], all ≥ 0 → [H].

    Cost: O(B + S) time by a hash table of the ids.

    Reference: as ``first_distinct``.

    Use when: hits are looked for on the CPU. Avoid when: the ids live on another device.

    >>> rows_among(np.array([7, 3, 9]), np.array([3, 5, 7])).tolist()
    [0, 1]
    """
    bits = 1
    while (1 << bits) < 2 * len(ids):
        bits += 1
    shift, mask = np.uint64(64 - bits), (1 << bits) - 1
    table = np.full(1 << bits, _EMPTY, np.int64)
    for entry in ids:
        slot = np.int64((np.uint64(entry) * _MULTIPLIER) >> shift)
        while table[slot] != _EMPTY and table[slot] != entry:
            slot = (slot + 1) & mask
        table[slot] = entry
    rows, found = np.empty(len(classes), np.int64), 0
    for row in range(len(classes)):
        slot = np.int64((np.uint64(classes[row]) * _MULTIPLIER) >> shift)
        while table[slot] != _EMPTY and table[slot] != classes[row]:
            slot = (slot + 1) & mask
        if table[slot] == classes[row]:
            rows[found] = row
            found += 1
    return rows[:found]
