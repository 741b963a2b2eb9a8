"""The best classes of a tree by best-first search: a branch is opened only when it may win."""

from __future__ import annotations

import heapq
import math

import numpy as np
from numpy.typing import NDArray

from widemax.kernels.compiling import njit

ABSENT = -1


@njit(cache=True)
def best_first(
    hidden: NDArray[np.floating],
    weight: NDArray[np.floating],
    bias: NDArray[np.floating],
    children: NDArray[np.int64],
    exclude: NDArray[np.int64],
    k: int,
) -> tuple[NDArray[np.int64], NDArray[np.float64], int]:
    """Return the k most probable classes of each row, best first, and how many nodes were opened.

    log p only falls on the way down, so the first classes to come out of a queue ordered by log p
    are the best of all: nothing still in it, or below it, is better. Opens about k·L nodes when the
    model is sure of itself, all V − 1 when every class is equally likely. ``weight`` [V − 1, D],
    ``bias`` [V − 1] or [0], ``children`` [V − 1, 2] as in ``Tree``; ``exclude`` [B, E] is padded
    with -1. Ids and log p are [B, k], −1 and −inf where none is left; NaN as the first log p of a
    row says that one was met. Sums are in float64.

    >>> weight, children = np.array([[2.0], [1.0]]), np.array([[-1, 1], [-2, -3]])
    >>> nothing = np.empty((1, 0), np.int64)
    >>> ids, score, opened = best_first(np.ones((1, 1)), weight, np.empty(0), children, nothing, 1)
    >>> ids.tolist(), np.exp(score).round(3).tolist(), opened
    ([[2]], [[0.644]], 2)
    """
    rows, num_nodes = len(hidden), len(children)
    ids = np.full((rows, k), ABSENT, np.int64)
    log_probs = np.full((rows, k), -np.inf, np.float64)
    excluded_in_row = np.full(num_nodes + 1, -1, np.int64)
    opened = 0
    for row in range(rows):
        for column in range(exclude.shape[1]):
            if exclude[row, column] >= 0:
                excluded_in_row[exclude[row, column]] = row
        # Class y is −1−y: of equals the queue gives out classes before inner nodes.
        queue = [(0.0, 0 if num_nodes else -1)]
        found = 0
        while found < k and len(queue):
            loss, entry = heapq.heappop(queue)
            if entry < 0:
                if excluded_in_row[-1 - entry] != row:
                    ids[row, found] = -1 - entry
                    log_probs[row, found] = -loss
                    found += 1
                continue
            opened += 1
            logit = _dot(hidden[row], weight[entry])
            if len(bias):
                logit += bias[entry]
            if math.isnan(logit):
                log_probs[row, 0] = np.nan
                break
            for side in range(2):
                below = loss + _softplus(-logit if side else logit)
                if below < np.inf:
                    heapq.heappush(queue, (below, children[entry, side]))
    return ids, log_probs, opened


@njit(cache=True, fastmath={"reassoc", "contract"})
def _dot(left: NDArray[np.floating], right: NDArray[np.floating]) -> float:
    total = 0.0
    for j in range(len(left)):
        total += np.float64(left[j]) * np.float64(right[j])
    return total


@njit(cache=True)
def _softplus(logit: float) -> float:
    return max(logit, 0.0) + math.log1p(math.exp(-abs(logit)))
