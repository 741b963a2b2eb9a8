"""Keeping the k best of each row while its scores go by, tile after tile."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from widemax.kernels.compiling import njit, prange
from widemax.kernels.threads import num_blocks

BLOCK = 64
"""Neighbouring scores that one maximum speaks for."""

_NO_CLASS = -1
# Room beyond k: a row is sifted only when it is full, so small k must not fill it at once.
_LEAST_ROOM = 64
# Scores that are worth a thread of their own: looking through them takes some 50 µs.
_SCORES_A_THREAD = 2**17


Floats = NDArray[np.floating]
Ids = NDArray[np.int64]


class Kept(NamedTuple):
    """What each row has kept so far, and what may enter it."""

    scores: Floats
    """Of each row first the kept ones, by rising id."""
    ids: Ids
    """Their ids."""
    sizes: Ids
    """How many each row has kept."""
    thresholds: Floats
    """The score that a newcomer must exceed."""
    excluded: Ids
    """The ids that may not enter, sorted in each row."""

    def rows(self, rows: slice) -> Kept:
        """Return a view of some rows."""
        scores, ids, sizes, thresholds, excluded = self
        return Kept(scores[rows], ids[rows], sizes[rows], thresholds[rows], excluded[rows])


def nothing_kept(rows: int, k: int, dtype: DTypeLike, excluded: Ids | None = None) -> Kept:
    """Return the state before the first tile: a score of −inf never gets in.

    Nor does an id that is ``excluded`` [R, E] in its row, of which −1 says nothing.
    """
    room = k + max(k, _LEAST_ROOM)
    return Kept(
        scores=np.empty((rows, room), dtype),
        ids=np.empty((rows, room), np.int64),
        sizes=np.zeros(rows, np.int64),
        thresholds=np.full(rows, -np.inf, dtype),
        excluded=np.empty((rows, 0), np.int64) if excluded is None else np.sort(excluded, axis=1),
    )


def offer(scores: Floats, block_best: Floats, first_id: int, k: int, kept: Kept) -> bool:
    """Keep what may be among the k best of its row; return False if a score is NaN.

    ``scores`` [R, C] are those of classes first_id … first_id + C − 1, which come by rising id;
    ``block_best`` [R, C // 64] the largest of each 64 neighbours, NaN if one is. Of all scores
    offered, ``kept`` holds the k best, equal ones by the smaller id, and perhaps some that are not,
    but none that its row excludes. A score enters if it exceeds the k-th best when the row was last
    sifted, which happens when the row is full (the reservoir of Faiss, behind block maxima). For
    scores in no order about k·log2(V / k) of a row enter, and most blocks are passed over.

    >>> kept, scores = nothing_kept(1, 2, np.float32), np.array([[1, 3, 2, 3]], np.float32)
    >>> offer(scores, np.empty((1, 0), np.float32), 5, 2, kept)
    True
    >>> finish(2, kept)
    >>> kept.ids[0, :2].tolist()
    [6, 8]
    """
    threads = num_blocks(len(scores), smallest=_SCORES_A_THREAD // max(1, scores.shape[1]))
    if threads == 1:
        return bool(_offer_rows(0, len(scores), scores, block_best, first_id, k, kept))
    return bool(_offer_in_blocks(threads, scores, block_best, first_id, k, kept))


@njit(cache=True, nogil=True, parallel=True)
def _offer_in_blocks(
    threads: int, scores: Floats, block_best: Floats, first_id: int, k: int, kept: Kept
) -> bool:
    rows, right = len(scores), np.ones(threads, np.bool_)
    for part in prange(threads):
        start, stop = rows * part // threads, rows * (part + 1) // threads
        right[part] = _offer_rows(start, stop, scores, block_best, first_id, k, kept)
    return bool(right.all())


@njit(cache=True, nogil=True)
def _offer_rows(
    start: int, stop: int, scores: Floats, block_best: Floats, first_id: int, k: int, kept: Kept
) -> bool:
    blocks, columns = block_best.shape[1], scores.shape[1]
    room = kept.scores.shape[1]
    for row in range(start, stop):
        # Local copies: the loop would read them again and again from memory that it writes to.
        threshold, size = kept.thresholds[row], kept.sizes[row]
        for block in range(blocks + (columns > blocks * BLOCK)):
            # NaN is below nothing, so that a block with one is looked at.
            if block < blocks and block_best[row, block] <= threshold:
                continue
            for column in range(block * BLOCK, min((block + 1) * BLOCK, columns)):
                score = scores[row, column]
                if score <= threshold or _is_among(kept.excluded[row], first_id + column):
                    continue
                if np.isnan(score):
                    return False
                if size == room:
                    threshold = _sift(kept.scores[row], kept.ids[row], k)
                    size = k
                    if score <= threshold:
                        continue
                kept.scores[row, size] = score
                kept.ids[row, size] = first_id + column
                size += 1
        kept.thresholds[row], kept.sizes[row] = threshold, size
    return True


@njit(cache=True, nogil=True)
def _is_among(ordered: Ids, sought: int) -> bool:
    low, high = 0, len(ordered)
    while low < high:
        middle = (low + high) // 2
        if ordered[middle] < sought:
            low = middle + 1
        else:
            high = middle
    return low < len(ordered) and ordered[low] == sought


@njit(cache=True, nogil=True)
def _sift(scores: Floats, ids: Ids, k: int) -> np.floating:
    """Move the k best to the front, in their order, and return the worst of them."""
    threshold = kth_best(scores, k)
    # Of those equal to the k-th best the first stay: they have the smaller ids.
    equal_left = k
    for i in range(len(scores)):
        equal_left -= scores[i] > threshold
    place = 0
    for i in range(len(scores)):
        stays = scores[i] > threshold or (scores[i] == threshold and equal_left > 0)
        equal_left -= scores[i] == threshold
        scores[place], ids[place] = scores[i], ids[i]
        place += stays
        if place == k:
            break
    return threshold


@njit(cache=True, nogil=True)
def kth_best(scores: Floats, k: int) -> np.floating:
    """Return the k-th largest by quickselect, moving without branches: they would be guesses."""
    left, better, rest = scores.copy(), np.empty_like(scores), np.empty_like(scores)
    size = len(left)
    while True:
        pivot = _median_of_three(left[0], left[size // 2], left[size - 1])
        num_better = num_rest = 0
        for i in range(size):
            better[num_better] = rest[num_rest] = left[i]
            num_better += left[i] > pivot
            num_rest += left[i] < pivot
        if k <= num_better:
            left, better, size = better, left, num_better
        elif k > size - num_rest:
            k -= size - num_rest
            left, rest, size = rest, left, num_rest
        else:
            return pivot


@njit(cache=True, nogil=True)
def _median_of_three(a: np.floating, b: np.floating, c: np.floating) -> np.floating:
    return max(min(a, b), min(max(a, b), c))


@njit(cache=True, nogil=True)
def finish(k: int, kept: Kept) -> None:
    """Leave the k best of each row in its first k places by rising id, then id −1, score −inf."""
    for row in range(len(kept.sizes)):
        size = kept.sizes[row]
        if size > k:
            _sift(kept.scores[row, :size], kept.ids[row, :size], k)
        kept.scores[row, size:k] = -np.inf
        kept.ids[row, size:k] = _NO_CLASS


def best_reference(scores: Floats, k: int) -> tuple[Ids, Floats]:
    """Return ids and scores [R, k] of the best, best first, by sorting all of [R, V]."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    best = np.take_along_axis(scores, order, axis=1)
    return np.where(best == -np.inf, _NO_CLASS, order), best
