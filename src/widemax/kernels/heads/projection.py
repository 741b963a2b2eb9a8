"""The thresholds of sparsemax and 1.5-entmax without a sort."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from widemax.kernels.compiling import njit, prange
from widemax.kernels.threads import num_blocks

Floats = NDArray[np.floating]
Ids = NDArray[np.int64]

# Scores that are worth a thread of their own: looking through them takes some 50 µs.
_SCORES_A_THREAD = 2**16
# Sums may be reordered and products contracted, which vectorises the loops.
_REORDER = {"reassoc", "contract", "nsz"}
# Steps double the correct digits; that many are never needed, and end whatever rounding does.
_MOST_STEPS = 100


def thresholds(
    scores: Floats, best: Floats, least: Floats, power: int
) -> tuple[NDArray[np.float64], Ids]:
    """Return τ of each row, Σ max(0, z − τ)^power = 1 for z = (F − best) / power, and |z > τ|.

    Sparsemax has power 1, 1.5-entmax power 2; ``best`` is the largest score of each row. Newton's
    method from ``least``, which is below τ (−1 always is): the sum is convex and falls, so that τ
    rises to the root and never beyond it, and what is once below it stays so. Scores are finite, or
    −inf. Takes O(V) a row, and a few times what lies above ``least``.

    >>> scores, best, least = np.array([[1.0, 0.5, -1.0]]), np.ones(1), -np.ones(1)
    >>> tau, sizes = thresholds(scores, best, least, 1)
    >>> tau.tolist(), sizes.tolist()  # probabilities 0.75, 0.25, 0
    ([-0.75], [2])
    """
    tau, sizes = least.astype(np.float64), np.empty(len(scores), np.int64)
    blocks = num_blocks(len(scores), smallest=_SCORES_A_THREAD // max(1, scores.shape[1]))
    if blocks == 1:
        _find_some(0, len(scores), scores, best, power, tau, sizes)
    else:
        _find_in_blocks(blocks, scores, best, power, tau, sizes)
    return tau, sizes


@njit(cache=True, nogil=True, parallel=True)
def _find_in_blocks(
    blocks: int, scores: Floats, best: Floats, power: int, tau: Floats, sizes: Ids
) -> None:
    rows = len(scores)
    for part in prange(blocks):
        start, stop = rows * part // blocks, rows * (part + 1) // blocks
        _find_some(start, stop, scores, best, power, tau, sizes)


@njit(cache=True, nogil=True, fastmath=_REORDER)
def _find_some(
    start: int, stop: int, scores: Floats, best: Floats, power: int, tau: Floats, sizes: Ids
) -> None:
    left, share = np.empty(scores.shape[1] + 1), 1 / power
    for row in range(start, stop):
        level, top, size = tau[row], np.float64(best[row]), 0
        for score in scores[row]:
            # Without a branch, which would be a guess: what is out of reach is written over.
            left[size] = (score - top) * share
            size += left[size] > level
        for _ in range(_MOST_STEPS):
            first = second = 0.0
            for n in range(size):
                above = left[n] - level
                first += above
                second += above * above
            step = (first - 1) / size if power == 1 else (second - 1) / (2 * first)
            if not level + step > level:
                break
            level += step
            kept = 0
            for n in range(size):
                left[kept] = left[n]
                kept += left[n] > level
            size = kept
        tau[row], sizes[row] = level, size


@njit(cache=True, nogil=True)
def classes_above(scores: Floats, best: Floats, tau: Floats, power: int, width: int) -> Ids:
    """Return of each row the classes with z > τ, and then the first others, up to a width.

    >>> classes_above(np.array([[-1.0, 1.0, 0.5]]), np.ones(1), np.array([-0.75]), 1, 3).tolist()
    [[1, 2, 0]]
    """
    (rows, columns), share = scores.shape, 1 / power
    ids = np.empty((rows, width), np.int64)
    above, others = np.empty(columns + 1, np.int64), np.empty(columns + 1, np.int64)
    for row in range(rows):
        top, level, size, rest = np.float64(best[row]), tau[row], 0, 0
        for column in range(columns):
            inside = (scores[row, column] - top) * share > level
            above[size] = others[rest] = column
            size += inside
            rest += not inside
        size = min(size, width)
        ids[row, :size] = above[:size]
        ids[row, size:] = others[: width - size]
    return ids
