"""Rows by their user, and each user's rows by time: counting sorts, for codes are dense."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Numbers = NDArray[np.int64]

_kernel = njit(cache=True, nogil=True)


@_kernel
def number_dense(ids: Numbers, low: int, span: int) -> tuple[Numbers, Numbers]:
    """Give each id its code, in order of first appearance.

    Formula: code(id) = the number of different ids before its first appearance.

    Shapes: ids [T], each in low … low + span − 1 → codes [T]; keys [V], the id of each code.

    Cost: O(T + span), 8 bytes for each of ``span``.

    Reference: none.

    Use when: ``span`` is not much more than T. Avoid when: ids lie far apart; then a hash table
    (``widemax.data.encoding.Encoder``) does it.

    >>> codes, keys = number_dense(np.array([7, 9, 7]), 7, 3)
    >>> codes.tolist(), keys.tolist()
    ([0, 1, 0], [7, 9])
    """
    code_of = np.full(span, -1, np.int64)
    codes = np.empty(len(ids), np.int64)
    keys = np.empty(min(span, len(ids)), np.int64)
    seen = 0
    for row in range(len(ids)):
        place = ids[row] - low
        code = code_of[place]
        if code < 0:
            code = seen
            code_of[place] = seen
            keys[seen] = ids[row]
            seen += 1
        codes[row] = code
    return codes, keys[:seen].copy()


@_kernel
def grouped(codes: Numbers, num_groups: int) -> tuple[Numbers, Numbers]:
    """Return the rows in the order of their codes, those of one code as they came.

    Formula: codes[order] never falls; rows of group g are order[offsets[g] : offsets[g + 1]].

    Shapes: codes [T], each in 0 … num_groups − 1 → order [T], offsets [num_groups + 1].

    Cost: O(T + num_groups), two passes.

    Reference: counting sort (Knuth, volume 3, 5.2).

    Use when: codes are dense. Avoid when: they are not; a general sort does it.

    >>> order, offsets = grouped(np.array([1, 0, 1]), 2)
    >>> order.tolist(), offsets.tolist()
    ([1, 0, 2], [0, 1, 3])
    """
    offsets = np.zeros(num_groups + 1, np.int64)
    for row in range(len(codes)):
        offsets[codes[row] + 1] += 1
    for group in range(num_groups):
        offsets[group + 1] += offsets[group]
    free = offsets[:-1].copy()
    order = np.empty(len(codes), np.int64)
    for row in range(len(codes)):
        code = codes[row]
        order[free[code]] = row
        free[code] += 1
    return order, offsets


@_kernel
def sort_within(order: Numbers, offsets: Numbers, times: NDArray[np.generic]) -> int:
    """Sort the rows of each group by time, in place; return how many groups were not in order.

    Formula: times[order[p]] never falls within a group; rows of equal time keep their order.

    Shapes: order [T] with offsets [N + 1] as ``grouped`` gives them; times [T], numbers.

    Cost: O(T) if all are in order, as logs mostly are; else O(n log n) for each group that is not.

    Reference: merge sort, which is stable.

    Use when: users' rows are wanted in time order. Avoid when: times hold NaN, which has no place.

    >>> order = np.array([0, 1, 2])
    >>> sort_within(order, np.array([0, 2, 3]), np.array([5, 3, 4])), order.tolist()
    (1, [1, 0, 2])
    """
    unsorted = 0
    for group in range(len(offsets) - 1):
        start, stop = offsets[group], offsets[group + 1]
        for place in range(start + 1, stop):
            if times[order[place]] < times[order[place - 1]]:
                rows = order[start:stop].copy()
                order[start:stop] = rows[np.argsort(times[rows], kind="mergesort")]
                unsorted += 1
                break
    return unsorted
