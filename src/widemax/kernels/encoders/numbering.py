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
    # Of each row how many classes it has, and at which place the last ones begin.
    lengths, starts = np.zeros(rows, np.int64), np.full(rows, width, np.int64)
    largest = _ABSENT
    for row in range(rows):
        length = 0
        for place in range(width):
            length += context[row, place] >= 0
            largest = max(largest, context[row, place])
        seen, place = 0, width
        while seen < min(last, length):
            place -= 1
            seen += context[row, place] >= 0
        lengths[row], starts[row] = length, place
    longest = lengths.max() if rows else 0
    before = np.full((rows, max(0, longest - last)), _ABSENT, np.int64)
    recent = np.full((rows, min(last, longest)), _ABSENT, np.int64)
    known = lengths.sum()
    shift = hash_shift(2 * known)
    # Where there are fewer classes than a table of hashes has slots, each has a slot of its own.
    hashes = largest >= 2 * known
    slots = empty_table(shift) if hashes else np.empty(0, np.int64)
    numbers = np.full(len(slots) if hashes else largest + 1, _ABSENT, np.int64)
    named = np.empty(min(known, len(numbers)), np.int64)
    count, of_recent = 0, 0
    for part in range(2):
        into = before if part else recent
        for row in range(rows):
            seen = 0
            for place in range(0 if part else starts[row], starts[row] if part else width):
                key = context[row, place]
                if key < 0:
                    continue
                slot = slot_of(slots, key, shift) if hashes else key
                if numbers[slot] < 0:
                    if hashes:
                        slots[slot] = key
                    numbers[slot], named[count] = count, key
                    count += 1
                into[row, seen] = numbers[slot]
                seen += 1
        if not part:
            of_recent = count
    return named[:count], of_recent, before, recent
