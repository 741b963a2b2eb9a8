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
    sequences = np.searchsorted(offsets, positions, side="right") - 1
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
