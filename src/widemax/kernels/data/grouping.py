"""Rows by their user, and each user's rows by time: counting sorts, for codes are dense."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widemax.kernels.compiling import njit
from widemax.kernels.data.blocks import in_blocks
from widemax.kernels.data.memory import unset

Numbers = NDArray[np.int64]
Codes = NDArray[np.int32]
MAX_ROWS = 2**31 - 1
"""Most rows, and so most codes, that int32 can number."""

# Up to this length sorting by insertion is the quickest, even from the worst order.
_SHORT = 64
_ALL = np.empty(0, np.bool_)  # of nothing is said that it goes

_kernel = njit(cache=True, nogil=True)


def row_type(rows: int) -> type[np.integer[Any]]:
    """Return the type that can number as many rows: the smaller, the more stays in the cache."""
    return np.int32 if rows <= MAX_ROWS else np.int64


def number_dense(chunks: list[Numbers], low: int, span: int) -> tuple[Codes, Numbers]:
    """Number the ids of the chunks in order of first appearance; return codes [T], keys [V].

    Ids lie in low … low + span − 1, and ``span`` should not be much more than T: it takes 4 bytes
    each. Where they lie far apart ``widemax.data.reading.numbering.Encoder`` numbers them by a hash
    table.

    >>> codes, keys = number_dense([np.array([7, 9]), np.array([7])], 7, 3)
    >>> codes.tolist(), keys.tolist()
    ([0, 1, 0], [7, 9])
    """
    codes = unset(sum(map(len, chunks)), np.int32)
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
    codes: Codes,
    num_groups: int,
    marks: Codes,
    times: NDArray[Any] | Sequence[NDArray[Any]] | None = None,
    since: int | None = None,
) -> tuple[Codes, NDArray[Any] | None, Numbers, int]:
    """Return marks and times of the rows by group, then time, and how many groups were unsorted.

    Codes [T] lie in 0 … num_groups − 1; marks [T] are whatever shall follow the rows, such as their
    items; times [T] come whole or in chunks, without NaN. The result has group g from offsets[g]
    up to offsets[g + 1], where its times never fall. Rows of equal group and time, or without
    times, keep their order. Times come back as they are or, if ``since`` is given, as int32 after
    that: the caller knows that none is earlier, or 2^31 later.

    A counting sort, O(T + num_groups) for what is in order, as logs mostly are; O(n log n) for a
    long group that is not. In two threads each row is counted and moved by one of them. Mark and
    time of a row lie side by side, so that one place in memory is looked for.

    >>> rows = np.arange(3, dtype=np.int32)
    >>> order, _, offsets, unsorted = grouped(np.array([1, 0, 1], np.int32), 2, rows, rows[::-1])
    >>> order.tolist(), offsets.tolist(), unsorted
    ([1, 2, 0], [0, 1, 3], 1)
    """
    counts = _counted_in_blocks(codes, num_groups, _ALL)
    offsets = np.zeros(num_groups + 1, np.int64)
    np.cumsum(sum(counts.values()), dtype=np.int64, out=offsets[1:])
    # Where the next row of each group goes, of each block: after those of the blocks before.
    free = offsets[:-1].astype(row_type(len(codes)))
    for start in sorted(counts):
        counts[start], free = free, free + counts[start]
    if times is None:
        moved = np.empty_like(marks)
        in_blocks(
            lambda start, stop: _move_marks(start, stop, codes, marks, counts[start], moved),
            len(codes),
        )
        return moved, None, offsets, 0
    chunks = [times] if isinstance(times, np.ndarray) else times
    # Mark and time of a row side by side.
    time_type = chunks[0].dtype if since is None else np.dtype(np.int32)
    pairs = unset(len(marks), np.dtype([("mark", marks.dtype), ("time", time_type)], align=True))
    moved_marks, moved_times = pairs["mark"], pairs["time"]

    def move(start: int, stop: int) -> None:
        first = 0
        for chunk in chunks:
            low, high = max(start, first), min(stop, first + len(chunk))
            if low < high:
                _move(
                    codes[low:high], marks[low:high], chunk[low - first : high - first],
                    since or 0, counts[start], moved_marks, moved_times,
                )  # fmt: skip
            first += len(chunk)

    in_blocks(move, len(codes))
    unsorted = in_blocks(
        lambda start, stop: int(_sort(start, stop, offsets, moved_marks, moved_times)),
        len(codes),
        offsets,
    )
    return moved_marks, moved_times, offsets, sum(unsorted)


def counted(codes: NDArray[Any], num_codes: int, kept: NDArray[np.bool_] | None = None) -> Numbers:
    """Return how often each code in 0 … num_codes − 1 appears in the rows kept, or in all.

    >>> counted(np.array([2, 0, 2]), 3).tolist()
    [1, 0, 2]
    """
    counts = _counted_in_blocks(codes, num_codes, _ALL if kept is None else kept)
    return np.asarray(sum(counts.values()), np.int64)


def _counted_in_blocks(
    codes: NDArray[Any], num_codes: int, kept: NDArray[np.bool_]
) -> dict[int, NDArray[Any]]:
    """Return the counts in each block of rows, by the row that it starts with."""
    counts: dict[int, NDArray[Any]] = {}

    def count(start: int, stop: int) -> None:
        counts[start] = np.zeros(num_codes, row_type(len(codes)))
        _count(start, stop, codes, kept, counts[start])

    in_blocks(count, len(codes))
    return counts


@_kernel
def _count(
    start: int, stop: int, codes: NDArray[Any], kept: NDArray[np.bool_], counts: NDArray[Any]
) -> None:
    if len(kept) == 0:
        for row in range(start, stop):
            counts[codes[row]] += 1
    else:
        for row in range(start, stop):
            counts[codes[row]] += kept[row]


@_kernel
def _move(
    codes: Codes, marks: Codes, times: NDArray[Any], since: int,
    free: NDArray[Any], moved_marks: Codes, moved_times: NDArray[Any],
) -> None:  # fmt: skip
    for row in range(len(codes)):
        code = codes[row]
        place = free[code]
        free[code] = place + 1
        moved_marks[place] = marks[row]
        moved_times[place] = times[row] - since


@_kernel
def _move_marks(
    start: int, stop: int, codes: Codes, marks: Codes, free: NDArray[Any], moved_marks: Codes
) -> None:
    for row in range(start, stop):
        code = codes[row]
        moved_marks[free[code]] = marks[row]
        free[code] += 1


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
