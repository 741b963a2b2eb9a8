"""Parts of sequences that lie end to end: which values stay, copied in one pass."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Numbers = NDArray[np.int64]

_kernel = njit(cache=True, nogil=True)


@_kernel
def part_lengths(parts: NDArray[np.uint8], offsets: Numbers, num_parts: int) -> Numbers:
    """Return how many values of each part every sequence has.

    Formula: lengths[p, i] = the number of p in parts[offsets[i] : offsets[i + 1]].

    Shapes: parts [T], each in 0 … num_parts − 1; offsets [N + 1] → [num_parts, N].

    Cost: O(T).

    Reference: none.

    Use when: each value is marked with its part. Avoid when: the marks may be out of range.

    >>> part_lengths(np.array([0, 1, 1], np.uint8), np.array([0, 2, 3]), 2).tolist()
    [[1, 0], [1, 1]]
    """
    lengths = np.zeros((num_parts, len(offsets) - 1), np.int64)
    for row in range(len(offsets) - 1):
        for place in range(offsets[row], offsets[row + 1]):
            lengths[parts[place], row] += 1
    return lengths


@_kernel
def joined_slices(values: NDArray[Any], starts: Numbers, lengths: Numbers) -> NDArray[Any]:
    """Return slices of ``values`` end to end.

    Formula: the values[starts[i] : starts[i] + lengths[i]], one after the other.

    Shapes: values [T], starts [N], lengths [N] → [the sum of the lengths].

    Cost: O(N + what is copied).

    Reference: none.

    Use when: what is wanted of each sequence is one run. Avoid when: it is scattered.

    >>> joined_slices(np.array([5, 6, 7, 8]), np.array([0, 3]), np.array([2, 1])).tolist()
    [5, 6, 8]
    """
    joined = np.empty(lengths.sum(), values.dtype)
    end = 0
    for row in range(len(starts)):
        for place in range(starts[row], starts[row] + lengths[row]):
            joined[end] = values[place]
            end += 1
    return joined
