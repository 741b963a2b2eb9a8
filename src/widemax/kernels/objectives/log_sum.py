"""The corrected log-sum-exp of each row and its derivative, in one reading of the scores."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widemax.kernels.compiling import njit, prange
from widemax.kernels.exponential import exp
from widemax.kernels.threads import num_blocks

_f = np.float32
_LOWEST = _f(-87.0)  # below it exp leaves the normal numbers of float32; it counts as 0
_INF = _f(np.inf)
_LEAST = np.int32(-0x7F800001)  # what _in_order makes of −inf
_WIDE = _f(55.0)  # counts spread further than this need the exact largest corrected score
# Sums may be reordered and products contracted, which vectorises the loops.
_REORDER = {"reassoc", "contract", "nsz"}
# A largest value is vectorised only where NaN need not be respected. Whatever it then is, the NaN
# itself stays in the row and makes the total NaN, which is summed without this licence.
_LARGEST = _REORDER | {"nnan"}

Matrix = NDArray[np.float32]
Vector = NDArray[np.float32]


@njit(cache=True, nogil=True)
def _remove(row: Vector, removed: NDArray[np.bool_]) -> None:
    """Write −inf where removed; most rows have nothing of the kind."""
    found = False
    for s in range(len(row)):
        found |= removed[s]
    if found:
        for s in range(len(row)):
            row[s] = -_INF if removed[s] else row[s]


@njit(cache=True, nogil=True)
def largest(row: Vector) -> np.float32:
    """Return the largest score; NaN, or any other, where there is a NaN."""
    # Whole numbers in the same order as the floats whose bits they are, for which the loop is
    # vectorised; for floats it is not, with any licence.
    bits, highest = row.view(np.int32), _LEAST
    for s in range(len(bits)):
        highest = max(highest, _in_order(bits[s]))
    return _in_order(highest).view(np.float32)


@njit(inline="always")
def _in_order(bits: np.int32) -> np.int32:
    """Return bits of a float whose order as numbers is that of the floats; and the way back."""
    return np.int32(bits ^ (np.int32(bits >> np.int32(31)) & np.int32(0x7FFFFFFF)))


@njit(cache=True, nogil=True)
def _competing(row: Vector) -> np.int32:
    count = np.int32(0)
    for s in range(len(row)):
        count += np.int32(row[s] != -_INF)
    return count


@njit(cache=True, nogil=True, fastmath=_LARGEST)
def _largest_corrected(
    row: Vector, log_count: Vector, highest: np.float32, sharpness: np.float32
) -> np.float32:
    largest = -_INF
    for s in range(len(row)):
        largest = max(largest, (row[s] - highest) * sharpness - log_count[s])
    return largest


@njit(cache=True, nogil=True, fastmath=_REORDER)
def _raise(
    row: Vector, log_count: Vector, highest: np.float32, sharpness: np.float32, shift: np.float32
) -> np.float32:
    """Replace F by exp((F − highest)·sharpness − log Q − shift) and return the sum."""
    total = _f(0)
    for s in range(len(row)):
        below = ((row[s] - highest) * sharpness - log_count[s]) - shift
        # A comparison with NaN is false: it goes through to the total.
        power = exp(_LOWEST if below < _LOWEST else below)
        power = _f(0) if below < _LOWEST else power
        row[s] = power
        total += power
    return total


@njit(cache=True, nogil=True)
def sum_rows(
    start: int, stop: int, scores: Matrix, log_count: Matrix, extent: Matrix,
    removed: NDArray[np.bool_], sharpness: np.float32, top: Vector, log_sum: Vector, scale: Vector,
) -> None:  # fmt: skip
    """Do what ``row_log_sums`` does on some rows; scores may have more columns than count."""
    for place in range(start, stop):
        row = scores[place, : log_count.shape[1]]
        number = place if len(log_count) > 1 else 0
        counts, lowest, spread = log_count[number], extent[number, 0], extent[number, 1]
        _remove(row, removed[place if len(removed) > 1 else 0])
        highest = largest(row)
        if highest == -_INF and _competing(row) == 0:
            row[:] = 0.0
            top[place], log_sum[place], scale[place] = -_INF, -_INF, 0.0
            continue
        # No corrected score is above the shift, and the one of the highest score is at most the
        # spread below it: close enough that no power which matters is lost, without another pass.
        shift = -lowest
        if spread > _WIDE:
            shift = _largest_corrected(row, counts, highest, sharpness)
        total = _raise(row, counts, highest, sharpness, shift)
        top[place] = highest
        log_sum[place] = shift + _f(math.log(total))
        scale[place] = sharpness / total


@njit(cache=True, nogil=True)
def _sum_copied(start: int, stop: int, source: Matrix, scores: Matrix, *batch: Any) -> None:
    """Copy the rows of a source, if it has any, each just before it is summed."""
    if not len(source):
        sum_rows(start, stop, scores, *batch)
        return
    for row in range(start, stop):
        scores[row] = source[row]
        sum_rows(row, row + 1, scores, *batch)


@njit(cache=True, nogil=True, parallel=True)
def _sum_in_blocks(blocks: int, rows: int, *batch: Any) -> None:
    for block in prange(blocks):
        _sum_copied(rows * block // blocks, rows * (block + 1) // blocks, *batch)


def row_log_sums(
    scores: Matrix,
    log_count: Matrix,
    removed: NDArray[np.bool_],
    sharpness: float,
    source: Matrix | None = None,
) -> tuple[Vector, Vector, Vector]:
    """Return top, log_sum and scale of the rows, [B] each, and turn the scores into powers.

    Given a ``source``, the scores are there, and ``scores`` is only written to.

    Over the candidates that are neither removed nor −inf, top = max F and log_sum = log Σ exp((F −
    top)·sharpness − log_count), both −inf where there is none. scale·power is the derivative of
    log_sum with top held fixed. NaN or +inf that is not removed makes log_sum and scale NaN.
    ``log_count`` and ``removed`` are [B, S] like the scores, or [1, S] for all rows. Each row is
    read from memory once; ``widemax.objectives.log_sum`` is the reference.

    >>> nothing = np.zeros((1, 2), np.float32)
    >>> scores = np.array([[5.0, 5.0]], np.float32)
    >>> top, log_sum, scale = row_log_sums(scores, nothing, nothing > 0, 1.0)
    >>> top.tolist(), round(float(log_sum[0]), 4), (scale * scores).tolist()
    ([5.0], 0.6931, [[0.5, 0.5]])
    """
    rows, width = scores.shape
    top, log_sum, scale = (np.empty(rows, np.float32) for _ in range(3))
    extent = count_extent(log_count)
    source = scores[:0] if source is None else source
    batch = source, scores, log_count, extent, removed, _f(sharpness), top, log_sum, scale
    # Blocks of at least 2^16 scores: below, waking a thread costs more than it saves.
    blocks = num_blocks(rows, smallest=2**16 // max(1, width))
    if blocks == 1:
        _sum_copied(0, rows, *batch)
    else:
        _sum_in_blocks(blocks, rows, *batch)
    return top, log_sum, scale


@njit(cache=True, nogil=True)
def count_extent(log_count: Matrix) -> Matrix:
    """Return the lowest log count of each row of them, and how far above it the highest is.

    >>> count_extent(np.array([[1.0, 3.0, 2.0]], np.float32)).tolist()
    [[1.0, 2.0]]
    """
    extent = np.empty((len(log_count), 2), log_count.dtype)
    for row in range(len(log_count)):
        lowest, highest = _INF, -_INF
        for count in log_count[row]:
            lowest, highest = min(lowest, count), max(highest, count)
        extent[row, 0], extent[row, 1] = lowest, highest - lowest
    return extent


@njit(cache=True, nogil=True)
def lead_losses(
    target_scores: Vector,
    target_log_count: Vector,
    top: Vector,
    log_sum: Vector,
    sharpness: float,
) -> tuple[Vector, Vector]:
    """Return log(1 + e^lead) and its derivative by the lead of the candidates over the target, [B].

    lead = log Σ exp(G) − G_t, with G_t = F_t·sharpness − log Q(t), and the sum as ``row_log_sums``
    gives it.

    >>> one = np.ones(1, np.float32)
    >>> losses, push = lead_losses(one, 0 * one, one, 0 * one, 1.0)
    >>> losses.round(4).tolist() == np.float32([0.6931]).tolist(), push.tolist()
    (True, [0.5])
    """
    losses, push = np.empty_like(top), np.empty_like(top)
    for row in range(len(top)):
        if log_sum[row] == -_INF:
            losses[row], push[row] = 0.0, 0.0
            continue
        # In float64, where a difference of two large scores and a small count loses nothing.
        lead = (np.float64(top[row]) - target_scores[row]) * sharpness
        lead += np.float64(log_sum[row]) + target_log_count[row]
        power = math.exp(-abs(lead))
        losses[row] = max(lead, 0.0) + math.log1p(power)
        push[row] = 1 / (1 + power) if lead > 0 else power / (1 + power)
    return losses, push


@njit(cache=True, nogil=True, fastmath=_REORDER)
def _spread_rows(
    start: int, stop: int, queries: Matrix, target_vectors: Matrix, away: Vector, towards: Vector,
    pulled: Matrix, by_queries: Matrix, by_targets: Matrix, weighted: Matrix,
) -> None:  # fmt: skip
    for row in range(start, stop):
        weight, pull = away[row], towards[row]
        for j in range(queries.shape[1]):
            by_targets[row, j] = queries[row, j] * pull
            weighted[row, j] = queries[row, j] * weight
        if len(pulled):
            for j in range(queries.shape[1]):
                by_queries[row, j] = pulled[row, j] * weight + target_vectors[row, j] * pull


@njit(cache=True, nogil=True, parallel=True)
def _spread_in_blocks(blocks: int, rows: int, *batch: Any) -> None:
    for block in prange(blocks):
        _spread_rows(rows * block // blocks, rows * (block + 1) // blocks, *batch)


def spread_gradients(
    queries: Matrix,
    target_vectors: Matrix,
    away: Vector,
    towards: Vector,
    pulled: Matrix,
    *,
    by_queries: Matrix,
    by_targets: Matrix,
    weighted: Matrix,
) -> None:
    """Write the gradients of queries and targets' vectors, and the weighted queries.

    by_queries = away·pulled + towards·target_vectors; by_targets = towards·queries; weighted =
    away·queries. All matrices are [B, D] or longer, ``away`` and ``towards`` [B]; where ``pulled``
    is [0, D], ``by_queries`` is left alone.

    >>> one = np.ones((1, 2), np.float32)
    >>> found = [np.empty_like(one) for _ in range(3)]
    >>> spread_gradients(one, one, one[0, :1] * 3, one[0, :1] * 2, one, by_queries=found[0],
    ...                  by_targets=found[1], weighted=found[2])
    >>> [each.tolist() for each in found]
    [[[5.0, 5.0]], [[2.0, 2.0]], [[3.0, 3.0]]]
    """
    factors = (queries, target_vectors, away, towards, pulled)
    batch = (*factors, by_queries, by_targets, weighted)
    blocks = num_blocks(len(queries), smallest=2**15 // max(1, queries.shape[1]))
    if blocks == 1:
        _spread_rows(0, len(queries), *batch)
    else:
        _spread_in_blocks(blocks, len(queries), *batch)
