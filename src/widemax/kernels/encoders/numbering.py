"""The classes of rows that are padded with -1, packed, and each of them numbered once."""

from __future__ import annotations

import numpy as np

from widemax.kernels.compiling import njit
from widemax.kernels.encoders.rows import Ids
from widemax.kernels.hashing import empty_table, hash_shift, slot_of

_ABSENT = -1


@njit(cache=True, nogil=True)
def number_rows(context: Ids, last: int) -> tuple[Ids, int, Ids, Ids]:
    """Return the classes that rows [B, H] name, and where each class of a row is among them.

    The last classes of each row, at most ``last``, are apart from those before them: returned are
    the classes, in the order of their first place among the last ones and then among the others;
    how many of them the last ones name; the places before [B, L] and of the last [B, M], packed,
    with -1 behind each row.

    >>> named, count, before, recent = number_rows(np.array([[7, -1, 5, 9], [-1, -1, -1, 5]]), 2)
    >>> named.tolist(), count, before.tolist(), recent.tolist()
    ([5, 9, 7], 2, [[2], [-1]], [[0, 1], [0, -1]])
    """
    rows, width = context.shape
    lengths = np.zeros(rows, np.int64)
    for row in range(rows):
        for place in range(width):
            lengths[row] += context[row, place] >= 0
    longest = lengths.max() if rows else 0
    before = np.full((rows, max(0, longest - last)), _ABSENT, np.int64)
    recent = np.full((rows, min(last, longest)), _ABSENT, np.int64)
    known = lengths.sum()
    shift = hash_shift(2 * known)
    slots = empty_table(shift)
    numbers = np.empty(len(slots), np.int64)
    named = np.empty(known, np.int64)
    count, of_recent = 0, 0
    for part in range(2):
        for row in range(rows):
            seen, first = 0, max(0, lengths[row] - last)
            for place in range(width):
                key = context[row, place]
                if key < 0:
                    continue
                seen += 1
                if (seen > first) == (part == 1):
                    continue
                slot = slot_of(slots, key, shift)
                if slots[slot] != key:
                    slots[slot], numbers[slot], named[count] = key, count, key
                    count += 1
                if part:
                    before[row, seen - 1] = numbers[slot]
                else:
                    recent[row, seen - 1 - first] = numbers[slot]
        if not part:
            of_recent = count
    return named[:count], of_recent, before, recent
