"""What stands around places of sequences, read where it lies."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from widemax.kernels.compiling import njit
from widemax.kernels.models.prefetch import prefetch_part

_ABSENT = -1
_AHEAD = 8  # windows: so long before its turn one is asked for, for most lie in no cache

Ids = NDArray[np.int64]


@njit(cache=True, nogil=True)
def read_examples(
    values: Ids, offsets: Ids, positions: Ids, rows: Ids, before: int, after: int
) -> tuple[Ids, Ids, Ids]:
    """Return the context, the value and the sequence of the position that each row names.

    They are [B, before + after], [B] and [B]; without positions, [0], the rows are those.

    >>> values, offsets = np.array([4, 0, 2, 7]), np.array([0, 3, 4])
    >>> found = read_examples(values, offsets, np.array([1, 2]), np.array([1]), 3, 0)
    >>> [each.tolist() for each in found]
    [[[-1, 4, 0]], [2], [0]]
    """
    named = positions[rows] if len(positions) else rows
    context, sequences = read_windows(values, offsets, named, before, after)
    return context, values[named], sequences


@njit(cache=True, nogil=True)
def read_windows(
    values: Ids, offsets: Ids, positions: Ids, before: int, after: int
) -> tuple[Ids, Ids]:
    """Return the context of each position, [B, before + after], and the sequence it stands in, [B].

    All is as ``widemax.data.Windows`` says, whose ``batch`` is the reference.

    >>> values, offsets = np.array([4, 0, 2, 7]), np.array([0, 3, 4])
    >>> context, sequences = read_windows(values, offsets, np.array([2, 3]), 3, 0)
    >>> context.tolist(), sequences.tolist()
    ([[-1, 4, 0], [-1, -1, -1]], [0, 1])
    """
    context = np.full((len(positions), before + after), _ABSENT, np.int64)
    sequences = np.empty(len(positions), np.int64)
    for row in range(len(positions)):
        sequences[row] = _sequence_of(offsets, positions[row])
    table = values.reshape(1, -1)
    for row in range(len(positions)):
        if row + _AHEAD < len(positions):
            prefetch_part(table, 0, positions[row + _AHEAD] - before, before + after + 1)
        position, start = positions[row], offsets[sequences[row]]
        end = offsets[sequences[row] + 1]
        for place in range(max(start, position - before), position):
            context[row, place - position + before] = values[place]
        for place in range(position + 1, min(end, position + after + 1)):
            context[row, place - position - 1 + before] = values[place]
    return context, sequences


@njit(cache=True, nogil=True)
def _sequence_of(offsets: Ids, position: int) -> int:
    """Return the last sequence that starts at a position or before it.

    No step of the search is a branch, which a processor would guess wrong half of the time.
    """
    low, size = 0, len(offsets)
    while size > 1:
        half = size >> 1
        low += half * (offsets[low + half] <= position)
        size -= half
    return low
