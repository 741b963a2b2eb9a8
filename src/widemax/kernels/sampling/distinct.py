"""Keeping the first distinct ids of a row of draws."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from widemax.kernels.compiling import njit
from widemax.kernels.hashing import EMPTY, empty_table, hash_shift, slot_of

Ids = NDArray[np.int64]


@njit(cache=True)
def first_distinct(drawn: Ids, num_samples: int) -> tuple[Ids, Ids, Ids]:
    """Return the first S = ``num_samples`` distinct ids of each row of ``drawn`` [R, T], in order.

    With them come ``tries`` [R], how many entries were read to find them, and ``found`` [R], how
    many there are: S unless the row has fewer.

    >>> ids, tries, found = first_distinct(np.array([[5, 5, 2, 9]]), 2)
    >>> ids.tolist(), tries.tolist(), found.tolist()
    ([[5, 2]], [3], [2])
    """
    rows, available = drawn.shape
    ids = np.empty((rows, num_samples), np.int64)
    tries = np.zeros(rows, np.int64)
    found = np.zeros(rows, np.int64)
    shift = hash_shift(2 * available)
    table = empty_table(shift)
    for row in range(rows):
        table[:] = EMPTY
        while found[row] < num_samples and tries[row] < available:
            drawn_id = drawn[row, tries[row]]
            tries[row] += 1
            slot = slot_of(table, drawn_id, shift)
            if table[slot] == EMPTY:
                table[slot] = drawn_id
                ids[row, found[row]] = drawn_id
                found[row] += 1
    return ids, tries, found


def first_distinct_reference(drawn: Ids, num_samples: int) -> tuple[Ids, Ids, Ids]:
    """Return the same in plain Python; the ids of a row with too few are padded with -1."""
    ids = np.full((len(drawn), num_samples), -1, dtype=np.int64)
    tries = np.zeros(len(drawn), dtype=np.int64)
    found = np.zeros(len(drawn), dtype=np.int64)
    for row, entries in enumerate(drawn.tolist()):
        seen = dict.fromkeys(entries)
        kept = list(seen)[:num_samples]
        ids[row, : len(kept)] = kept
        found[row] = len(kept)
        enough = len(kept) == num_samples
        tries[row] = entries.index(kept[-1]) + 1 if enough else len(entries)
    return ids, tries, found


@njit(cache=True)
def rows_among(classes: Ids, ids: Ids) -> Ids:
    """Return the rows, rising, whose class [B] is among the ids [S]; all are ≥ 0.

    >>> rows_among(np.array([7, 3, 9]), np.array([3, 5, 7])).tolist()
    [0, 1]
    """
    shift = hash_shift(2 * len(ids))
    table = empty_table(shift)
    for entry in ids:
        table[slot_of(table, entry, shift)] = entry
    rows, found = np.empty(len(classes), np.int64), 0
    for row in range(len(classes)):
        if table[slot_of(table, classes[row], shift)] == classes[row]:
            rows[found] = row
            found += 1
    return rows[:found]


@njit(cache=True, nogil=True)
def mark_hits(hits: NDArray[np.bool_], rows: Ids, classes: Ids, ids: Ids) -> None:
    """Write to some rows of ``hits`` [B, S] which ids [S] are the class [B] of the row.

    >>> hits = np.zeros((2, 3), np.bool_)
    >>> mark_hits(hits, np.array([1]), np.array([7, 3]), np.array([3, 5, 7]))
    >>> hits.tolist()
    [[False, False, False], [True, False, False]]
    """
    for row in rows:
        for place in range(len(ids)):
            hits[row, place] = ids[place] == classes[row]


@njit(cache=True)
def mark_among(classes: Ids, ids: Ids) -> NDArray[np.bool_]:
    """Return which of the ids [S] are among the classes of each row [B, H], -1 for nothing: [B, S].

    >>> mark_among(np.array([[7, 3], [-1, 9]]), np.array([3, 5, 3])).astype(int).tolist()
    [[1, 0, 1], [0, 0, 0]]
    """
    shift = hash_shift(2 * len(ids))
    table = empty_table(shift)
    newest = np.empty(len(table), np.int64)  # the last copy of each id, then the one before it
    before = np.empty(len(ids), np.int64)
    for column in range(len(ids)):
        slot = slot_of(table, ids[column], shift)
        before[column] = -1 if table[slot] == EMPTY else newest[slot]
        table[slot], newest[slot] = ids[column], column
    marked = np.zeros((len(classes), len(ids)), np.bool_)
    for row in range(len(classes)):
        for wanted in classes[row]:
            if wanted < 0:
                continue
            slot = slot_of(table, wanted, shift)
            column = newest[slot] if table[slot] == wanted else -1
            while column >= 0:
                marked[row, column] = True
                column = before[column]
    return marked
