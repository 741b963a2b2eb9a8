"""Where the target of each row stands among all classes, in one reading of the scores."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widemax.kernels.compiling import njit, prange
from widemax.kernels.exponential import exp
from widemax.kernels.objectives.log_sum import largest
from widemax.kernels.threads import num_blocks

_f = np.float32
_INF = _f(np.inf)
_LOWEST = _f(-87.0)  # below it exp leaves the normal numbers of float32; it counts as 0
_REORDER = {"reassoc", "contract", "nsz"}

Matrix = NDArray[np.float32]
Vector = NDArray[np.float32]


@njit(cache=True, nogil=True)
def _counts(row: Vector, own: np.float32) -> tuple[np.int32, np.int32]:
    better, alike = np.int32(0), np.int32(0)
    for y in range(len(row)):
        better += np.int32(row[y] > own)
        alike += np.int32(row[y] == own)
    return better, alike


@njit(cache=True, nogil=True, fastmath=_REORDER)
def _power_sum(row: Vector, highest: np.float32) -> float:
    """Return Σ exp(F − highest): in float32 within a stretch, so that few roundings add up."""
    total = 0.0
    for start in range(0, len(row), 4096):
        # A row of its own, read from 0 on: places that may be below 0 would each be checked, which
        # takes three times as long.
        part, stretch = _f(0), row[start : start + 4096]
        for y in range(len(stretch)):
            below = stretch[y] - highest
            # A comparison with NaN is false: it goes through to the sum.
            power = exp(_LOWEST if below < _LOWEST else below)
            part += _f(0) if below < _LOWEST else power
        total += float(part)
    return total


@njit(cache=True, nogil=True)
def _rank_rows(
    start: int, stop: int, scores: Matrix, targets: NDArray[np.int64],
    better: NDArray[np.int32], alike: NDArray[np.int32], log_prob: NDArray[np.float64],
) -> None:  # fmt: skip
    for row in range(start, stop):
        own = scores[row, targets[row]]
        better[row], alike[row] = _counts(scores[row], own)
        highest = largest(scores[row])
        log_prob[row] = own - highest - math.log(_power_sum(scores[row], highest))


@njit(cache=True, nogil=True, parallel=True)
def _rank_in_blocks(blocks: int, rows: int, *batch: Any) -> None:
    for block in prange(blocks):
        _rank_rows(rows * block // blocks, rows * (block + 1) // blocks, *batch)


def target_ranks(
    scores: Matrix, targets: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float64]]:
    """Return how many classes score above each target, how many as it does, and its log softmax.

    Scores are [B, V], targets [B]; the target itself is among those that score alike.

    >>> better, alike, log_prob = target_ranks(np.zeros((1, 4), np.float32), np.array([2]))
    >>> better.tolist(), alike.tolist(), log_prob.round(4).tolist()
    ([0], [4], [-1.3863])
    """
    rows, width = scores.shape
    better, alike = np.empty(rows, np.int32), np.empty(rows, np.int32)
    log_prob = np.empty(rows, np.float64)
    batch = scores, targets, better, alike, log_prob
    # Blocks of at least 2^16 scores: below, waking a thread costs more than it saves.
    blocks = num_blocks(rows, smallest=2**16 // max(1, width))
    if blocks == 1:
        _rank_rows(0, rows, *batch)
    else:
        _rank_in_blocks(blocks, rows, *batch)
    return better, alike, log_prob


@njit(cache=True, nogil=True)
def _rank_tile_rows(
    start: int, stop: int, tile: Matrix, first: int, targets: NDArray[np.int64], own: Vector,
    better: NDArray[np.int32], alike: NDArray[np.int32], top: Vector, total: NDArray[np.float64],
) -> None:  # fmt: skip
    for row in range(start, stop):
        above, beside = _counts(tile[row], own[row])
        place = targets[row] - first
        if 0 <= place < tile.shape[1]:
            # The target is beside itself, whatever another product of it was rounded to.
            above -= np.int32(tile[row, place] > own[row])
            beside += np.int32(tile[row, place] != own[row])
        better[row] += above
        alike[row] += beside
        highest = max(top[row], largest(tile[row]))
        if highest > top[row]:
            total[row] *= math.exp(float(top[row]) - float(highest))
            top[row] = highest
        # Scores of −inf alone have no largest to be compared with: their powers are 0.
        total[row] += _power_sum(tile[row], top[row] if top[row] > -_INF else _f(0))


@njit(cache=True, nogil=True, parallel=True)
def _rank_tile_in_blocks(blocks: int, rows: int, *batch: Any) -> None:
    for block in prange(blocks):
        _rank_tile_rows(rows * block // blocks, rows * (block + 1) // blocks, *batch)


class TileRanks:
    """Where targets [B] stand among classes whose scores come some at a time.

    ``own`` [B] are the scores of the targets, which are among the classes that are added.

    >>> ranks = TileRanks(np.array([2]), np.zeros(1, np.float32))
    >>> ranks.add(np.zeros((1, 3), np.float32), 0)
    >>> ranks.add(np.zeros((1, 1), np.float32), 3)
    >>> ranks.better.tolist(), ranks.alike.tolist(), ranks.log_prob().round(4).tolist()
    ([0], [4], [-1.3863])
    """

    def __init__(self, targets: NDArray[np.int64], own: Vector) -> None:
        rows = len(targets)
        self.better, self.alike = np.zeros(rows, np.int32), np.zeros(rows, np.int32)
        self._targets, self._own = targets, own
        self._top, self._total = np.full(rows, -_INF), np.zeros(rows)

    def add(self, tile: Matrix, first: int) -> None:
        """Compare with the scores [B, C] of the classes from ``first`` on."""
        rows, width = tile.shape
        counted = (self.better, self.alike, self._top, self._total)
        batch = (tile, first, self._targets, self._own, *counted)
        blocks = num_blocks(rows, smallest=2**16 // max(1, width))
        if blocks == 1:
            _rank_tile_rows(0, rows, *batch)
        else:
            _rank_tile_in_blocks(blocks, rows, *batch)

    def log_prob(self) -> NDArray[np.float64]:
        """Return the log softmax of the targets over all that was added, [B]."""
        found: NDArray[np.float64] = np.subtract(self._own, self._top, dtype=np.float64)
        return found - np.log(self._total)


def target_ranks_reference(
    scores: Matrix, targets: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return the same in plain NumPy, in float64."""
    wide = scores.astype(np.float64)
    own = np.take_along_axis(wide, targets[:, None], axis=1)
    highest = wide.max(axis=1, keepdims=True)
    log_sum = np.log(np.exp(wide - highest).sum(axis=1)) + highest[:, 0]
    return (wide > own).sum(axis=1), (wide == own).sum(axis=1), own[:, 0] - log_sum
