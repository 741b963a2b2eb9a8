"""Counting neighbours in sequences, and joining some of them."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
Marks = NDArray[np.bool_]

_EMPTY = -1
_FIRST_BITS = 12
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: spreads neighbouring pairs

_kernel = njit(cache=True, nogil=True)
# A call would count references to its arrays, for every pair anew.
_part = njit(cache=True, nogil=True, forceinline=True)


@_kernel
def count_pairs(values: Numbers, lengths: Numbers, counted: Marks) -> tuple[Numbers, Numbers]:
    """Return which values follow each other within a sequence, and how often.

    Formula: pair = a·V + b for b right after a, where counted[a] and counted[b].

    Shapes: values [T] in 0 … V − 1, lengths [N] adding up to T, counted [V] → pairs [P] in no
    order that means anything, counts [P].

    Cost: O(T) time by a hash table of the pairs; at most 64 bytes for each different pair.

    Reference: linear probing with Fibonacci hashing (Knuth, volume 3, 6.4).

    Use when: P is far below V². Avoid when: V² numbers fit in memory.

    >>> values, lengths = np.array([0, 1, 0, 1, 0]), np.array([4, 1])
    >>> pairs, counts = count_pairs(values, lengths, np.array([True, True]))
    >>> sorted(zip(pairs.tolist(), counts.tolist()))
    [(1, 2), (2, 1)]
    """
    num_values = len(counted)
    pairs = np.full(1 << _FIRST_BITS, _EMPTY, np.int64)
    counts = np.zeros(1 << _FIRST_BITS, np.int64)
    shift, used, place = np.uint64(64 - _FIRST_BITS), 0, 0
    for length in lengths:
        end = place + length
        while place < end - 1:
            first, second = values[place], values[place + 1]
            place += 1
            if not (counted[first] and counted[second]):
                continue
            pair = first * num_values + second
            slot = _slot_of(pairs, pair, shift)
            counts[slot] += 1
            if pairs[slot] == _EMPTY:
                pairs[slot] = pair
                used += 1
                if 2 * used == len(pairs):
                    shift -= np.uint64(1)
                    pairs, counts = _moved(pairs, counts, shift)
        place = end
    there = pairs != _EMPTY
    return pairs[there], counts[there]


@_kernel
def join_pairs(
    values: Numbers, lengths: Numbers, num_values: int, pairs: Numbers, ids: Numbers
) -> tuple[Numbers, Numbers]:
    """Put one id in the place of each of some pairs, from left to right.

    Formula: where pairs[i] = a·V + b begins, ids[i] stands for a and b, and the next pair begins
    after b.

    Shapes: values [T] in 0 … V − 1, lengths [N] adding up to T, pairs [P] rising, ids [P] →
    joined [≤ T] and the length of each sequence [N].

    Cost: O(T), and log2 P for a value that begins a pair.

    Reference: word2phrase.

    Use when: pairs are known. Avoid when: they may overlap.

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


@_part
def _slot_of(pairs: Numbers, pair: np.int64, shift: np.uint64) -> np.int64:
    """Return where a pair stands in the table, or would stand."""
    slot = np.int64((np.uint64(pair) * _MULTIPLIER) >> shift)
    while pairs[slot] != _EMPTY and pairs[slot] != pair:
        slot = (slot + 1) & (len(pairs) - 1)
    return slot


@_kernel
def _moved(pairs: Numbers, counts: Numbers, shift: np.uint64) -> tuple[Numbers, Numbers]:
    """Return the table with twice the slots."""
    more_pairs = np.full(2 * len(pairs), _EMPTY, np.int64)
    more_counts = np.zeros(2 * len(pairs), np.int64)
    for old in range(len(pairs)):
        if pairs[old] != _EMPTY:
            slot = _slot_of(more_pairs, pairs[old], shift)
            more_pairs[slot], more_counts[slot] = pairs[old], counts[old]
    return more_pairs, more_counts
