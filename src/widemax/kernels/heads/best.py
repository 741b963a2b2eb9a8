"""The best of several rows of scores, class by class, and its gradient."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from widemax.kernels.compiling import njit

Matrix = NDArray[np.float32]
Starts = NDArray[np.int64]
Winners = NDArray[np.uint16]


@njit(cache=True, nogil=True)
def best_of_groups(scores: Matrix, starts: Starts, best: Matrix, winners: Winners) -> None:
    """Write the largest score of each group of rows in each column, and which of them it is.

    Group g is rows starts[g] … starts[g + 1] − 1, counted from starts[0]: at least one, at most
    2^16. Of equal ones the first is the largest. ``torch.amax`` is the reference.

    >>> scores = np.array([[1, 5], [2, 3], [7, 0]], np.float32)
    >>> best, winners = np.empty((2, 2), np.float32), np.empty((2, 2), np.uint16)
    >>> best_of_groups(scores, np.array([0, 2, 3]), best, winners)
    >>> best.tolist(), winners.tolist()
    ([[2.0, 5.0], [7.0, 0.0]], [[1, 0], [0, 0]])
    """
    for group in range(len(starts) - 1):
        first = starts[group] - starts[0]
        for s in range(scores.shape[1]):
            best[group, s], winners[group, s] = scores[first, s], 0
        for place in range(1, starts[group + 1] - starts[group]):
            for s in range(scores.shape[1]):
                score, so_far = scores[first + place, s], best[group, s]
                # NaN wins, and what it won stays its own: no number exceeds it.
                wins = (score > so_far) | (score != score)
                best[group, s] = score if wins else so_far
                winners[group, s] = np.uint16(place) if wins else winners[group, s]


@njit(cache=True, nogil=True)
def spread_to_winners(grad: Matrix, winners: Winners, starts: Starts, by_scores: Matrix) -> None:
    """Write the gradient of the scores: that of the best where they won, else 0.

    >>> by_scores = np.empty((2, 2), np.float32)
    >>> spread_to_winners(np.float32([[3, 4]]), np.uint16([[1, 0]]), np.array([0, 2]), by_scores)
    >>> by_scores.tolist()
    [[0.0, 4.0], [3.0, 0.0]]
    """
    for group in range(len(starts) - 1):
        first = starts[group] - starts[0]
        for place in range(starts[group + 1] - starts[group]):
            for s in range(grad.shape[1]):
                won = winners[group, s] == np.uint16(place)
                by_scores[first + place, s] = grad[group, s] if won else np.float32(0)
