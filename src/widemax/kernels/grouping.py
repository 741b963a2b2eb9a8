"""Rows by their user, and each user's rows by time: counting sorts, for codes are dense."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from widemax.kernels.blocks import in_blocks

Numbers = NDArray[np.int64]
Codes = NDArray[np.int32]
MAX_ROWS = 2**31 - 1
"""Most rows, and so most codes, that int32 can number."""

# Up to this length sorting by insertion is the quickest, even from the worst order.
_SHORT = 64
_ALL = np.empty(0, np.bool_)  # of nothing is said that it goes

_kernel = njit(cache=True, nogil=True)


def number_dense(chunks: list[Numbers], low: int, span: int) -> tuple[Codes, Numbers]:
    """Give each id its code, in order of first appearance.

    Formula: code(id) = the number of different ids before its first appearance.

    Shapes: chunks of together T ids, each in low … low + span − 1 → codes [T]; keys [V], the id of
    each code.

    Cost: O(T + span), 4 bytes for each of ``span``; the chunks are read where they lie.

    Reference: none.

    Use when: ``span`` is not much more than T. Avoid when: ids lie far apart; then a hash table
    (``widemax.data.encoding.Encoder``) does it.

    >>> codes, keys = number_dense([np.array([7, 9]), np.array([7])], 7, 3)
    >>> codes.tolist(), keys.tolist()
    ([0, 1, 0], [7, 9])
    """
    # NumPy asks for large pages, which a kernel's own arrays do not get: fewer and cheaper faults.
    codes = np.empty(sum(map(len, chunks)), np.int32)
    keys = np.empty(min(span, len(codes)), np.int64)
    code_of = np.full(span, -1, np.int32)
    start = seen = 0
    for ids in chunks:
        seen = _number_dense(ids, low, code_of, codes[start : start + len(ids)], keys, seen)
        start += len(ids)
    return codes, keys[:seen].copy()


@_kernel
def _number_dense(
    ids: Numbers, low: int, code_of: Codes, codes: Codes, keys: Numbers, seen: int
) -> int:
    for row in range(len(ids)):
        place = ids[row] - low
        code = code_of[place]
        if code < 0:
            code = np.int32(seen)
            code_of[place] = code
            keys[seen] = ids[row]
            seen += 1
        codes[row] = code
    return seen


def grouped(
    codes: Codes, num_groups: int, marks: Codes, times: NDArray[Any] | None = None
) -> tuple[Codes, NDArray[Any] | None, Numbers, int]:
    """Return marks and times of the rows by group, then time, and how many groups were unsorted.

    Formula: group g has places offsets[g] … offsets[g + 1] − 1; its times never fall. Rows of equal
    group and time, or without times, keep their order.

    Shapes: codes [T], each in 0 … num_groups − 1; marks [T], whatever shall follow the rows: their
    items, or their numbers; times [T] → marks [T], times [T], offsets [num_groups + 1], and in how
    many groups a time fell.

    Cost: O(T + num_groups) for what is in order, as logs mostly are; O(n log n) for a long group
    that is not. In two threads each row is counted and moved by one of them.

    Reference: counting sort (Knuth, volume 3, 5.2); insertion or merge sort within a group.

    Use when: codes are dense. Avoid when: times hold NaN, which has no place.

    >>> rows = np.arange(3, dtype=np.int32)
    >>> order, _, offsets, unsorted = grouped(np.array([1, 0, 1], np.int32), 2, rows, rows[::-1])
    >>> order.tolist(), offsets.tolist(), unsorted
    ([1, 2, 0], [0, 1, 3], 1)
    """
    counts = _counted_in_blocks(codes, num_groups, _ALL)
    offsets = np.zeros(num_groups + 1, np.int64)
    np.cumsum(sum(counts.values()), out=offsets[1:])
    # Where the next row of each group goes, of each block: after those of the blocks before.
    free = offsets[:-1].copy()
    for start in sorted(counts):
        counts[start], free = free, free + counts[start]
    timed = times is not None
    moved_marks = np.empty_like(marks)
    moved_times = np.empty_like(times) if timed else np.empty(0, np.int64)
    given = times if times is not None else moved_times

    def move(start: int, stop: int) -> None:
        _move(start, stop, codes, marks, given, counts[start], moved_marks, moved_times)

    in_blocks(move, len(codes))
    if not timed:
        return moved_marks, None, offsets, 0
    unsorted = in_blocks(
        lambda start, stop: int(_sort(start, stop, offsets, moved_marks, moved_times)),
        len(codes),
        offsets,
    )
    return moved_marks, moved_times, offsets, sum(unsorted)


def counted(codes: NDArray[Any], num_codes: int, kept: NDArray[np.bool_] | None = None) -> Numbers:
    """Return how often each code stands in the rows that are kept.

    Formula: counts[c] = the number of rows r with codes[r] = c and kept[r].

    Shapes: codes [T], each in 0 … num_codes − 1; kept [T], None if all are → [num_codes].

    Cost: O(T + num_codes), without a copy of the codes.

    Reference: none.

    Use when: codes are dense. Avoid when: they may be out of range.

    >>> counted(np.array([2, 0, 2]), 3).tolist()
    [1, 0, 2]
    """
    counts = _counted_in_blocks(codes, num_codes, _ALL if kept is None else kept)
    return np.asarray(sum(counts.values()), np.int64)


def _counted_in_blocks(
    codes: NDArray[Any], num_codes: int, kept: NDArray[np.bool_]
) -> dict[int, Numbers]:
    """Return the counts in each block of rows, by the row that it starts with."""
    counts: dict[int, Numbers] = {}

    def count(start: int, stop: int) -> None:
        counts[start] = np.zeros(num_codes, np.int64)
        _count(start, stop, codes, kept, counts[start])

    in_blocks(count, len(codes))
    return counts


@_kernel
def _count(
    start: int, stop: int, codes: NDArray[Any], kept: NDArray[np.bool_], counts: Numbers
) -> None:
    if len(kept) == 0:
        for row in range(start, stop):
            counts[codes[row]] += 1
    else:
        for row in range(start, stop):
            counts[codes[row]] += kept[row]


@_kernel
def _move(
    start: int, stop: int, codes: Codes, marks: Codes, times: NDArray[Any],
    free: Numbers, moved_marks: Codes, moved_times: NDArray[Any],
) -> None:  # fmt: skip
    timed = len(times) > 0
    for row in range(start, stop):
        code = codes[row]
        place = free[code]
        free[code] = place + 1
        moved_marks[place] = marks[row]
        if timed:
            moved_times[place] = times[row]


@_kernel
def _sort(start: int, stop: int, offsets: Numbers, marks: Codes, times: NDArray[Any]) -> int:
    """Sort groups start … stop − 1 by time, in place; return how many were not in order."""
    unsorted = 0
    for group in range(start, stop):
        first, last = offsets[group], offsets[group + 1]
        place = first + 1
        while place < last and times[place] >= times[place - 1]:
            place += 1
        if place >= last:
            continue
        unsorted += 1
        if last - first > _SHORT:
            order = np.argsort(times[first:last], kind="mergesort")
            marks[first:last] = marks[first:last][order]
            times[first:last] = times[first:last][order]
            continue
        for late in range(place, last):
            time, mark = times[late], marks[late]
            hole = late
            while hole > first and times[hole - 1] > time:
                times[hole], marks[hole] = times[hole - 1], marks[hole - 1]
                hole -= 1
            times[hole], marks[hole] = time, mark
    return unsorted
