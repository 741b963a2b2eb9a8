"""Counting neighbours in sequences, and joining some of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from widemax.kernels.compiling import njit
from widemax.kernels.hashing import EMPTY, empty_table, hash_shift, slot_of

Numbers = NDArray[np.int64]
Marks = NDArray[np.bool_]

_FIRST_SLOTS = 2**12

_kernel = njit(cache=True, nogil=True)


@_kernel
def count_pairs(values: Numbers, lengths: Numbers, counted: Marks) -> tuple[Numbers, Numbers]:
    """Return which values follow each other within a sequence, and how often.

    ``values`` [T] lie in 0 … V − 1, ``lengths`` [N] add up to T, ``counted`` [V] says which values
    count. pair = a·V + b for b right after a; pairs come in no order that means anything. Takes
    O(T) by a hash table, at most 64 bytes for each different pair.

    >>> values, lengths = np.array([0, 1, 0, 1, 0]), np.array([4, 1])
    >>> pairs, counts = count_pairs(values, lengths, np.array([True, True]))
    >>> sorted(zip(pairs.tolist(), counts.tolist()))
    [(1, 2), (2, 1)]
    """
    num_values = len(counted)
    shift, used, place = hash_shift(_FIRST_SLOTS), 0, 0
    pairs = empty_table(shift)
    counts = np.zeros(len(pairs), np.int64)
    for length in lengths:
        end = place + length
        while place < end - 1:
            first, second = values[place], values[place + 1]
            place += 1
            if not (counted[first] and counted[second]):
                continue
            pair = first * num_values + second
            slot = slot_of(pairs, pair, shift)
            counts[slot] += 1
            if pairs[slot] == EMPTY:
                pairs[slot] = pair
                used += 1
                if 2 * used == len(pairs):
                    shift -= np.uint64(1)
                    pairs, counts = _moved(pairs, counts, shift)
        place = end
    there = pairs != EMPTY
    return pairs[there], counts[there]


@_kernel
def join_pairs(
    values: Numbers, lengths: Numbers, num_values: int, pairs: Numbers, ids: Numbers
) -> tuple[Numbers, Numbers]:
    """Put one id in the place of each of some pairs, from left to right, as word2phrase does.

    Where pairs[i] = a·V + b begins, ids[i] stands for a and b, and the next pair begins after b;
    ``pairs`` rise. Returns the joined values and the length of each sequence [N].

    >>> values, lengths = np.array([0, 0, 0, 1, 0]), np.array([4, 1])
    >>> joined, left = join_pairs(values, lengths, 2, np.array([0]), np.array([9]))
    >>> joined.tolist(), left.tolist()
    ([9, 0, 1, 0], [3, 1])
    """
    begins = np.zeros(num_values, np.bool_)
    for pair in pairs:
        begins[pair // num_values] = True
    joined, left = np.empty(len(values), np.int64), np.empty(len(lengths), np.int64)
    place, written = 0, 0
    for row in range(len(lengths)):
        end, start = place + lengths[row], written
        while place < end:
            new = values[place]
            if begins[new] and place + 1 < end:
                pair = new * num_values + values[place + 1]
                found = np.searchsorted(pairs, pair)
                if found < len(pairs) and pairs[found] == pair:
                    new = ids[found]
                    place += 1
            joined[written] = new
            written += 1
            place += 1
        left[row] = written - start
    return joined[:written].copy(), left


@_kernel
def _moved(pairs: Numbers, counts: Numbers, shift: np.uint64) -> tuple[Numbers, Numbers]:
    """Return the same pairs and counts in a larger table."""
    more_pairs = empty_table(shift)
    more_counts = np.zeros(len(more_pairs), np.int64)
    for old in range(len(pairs)):
        if pairs[old] != EMPTY:
            slot = slot_of(more_pairs, pairs[old], shift)
            more_pairs[slot], more_counts[slot] = pairs[old], counts[old]
    return more_pairs, more_counts
