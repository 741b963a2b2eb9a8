"""The corrected log-sum-exp of each row and its derivative, in one reading of the scores."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from widemax.kernels.threads import in_blocks

_f = np.float32
_LOWEST = _f(-87.0)  # below it exp leaves the normal numbers of float32; it counts as 0
_INF = _f(np.inf)
_WIDE = _f(55.0)  # counts spread further than this need the exact largest corrected score
# Sums may be reordered and products contracted, which vectorises the loops.
_REORDER = {"reassoc", "contract", "nsz"}
# A largest value is vectorised only where NaN need not be respected. Whatever it then is, the NaN
# itself stays in the row and makes the total NaN, which is summed without this licence.
_LARGEST = _REORDER | {"nnan"}

Matrix = NDArray[np.float32]
Vector = NDArray[np.float32]


@njit(inline="always")
def _exp(x: np.float32) -> np.float32:
    # 2^n · e^r with |r| ≤ log(2)/2 and e^r by a polynomial (Cephes): unlike a call of expf, the
    # loop around it is vectorised. The error is below 2e-7 of the result.
    n = np.floor(x * _f(1.44269504088896341) + _f(0.5))
    r = x - n * _f(0.693359375)
    r = r + n * _f(2.12194440e-4)
    p = _f(1.9875691500e-4)
    p = p * r + _f(1.3981999507e-3)
    p = p * r + _f(8.3334519073e-3)
    p = p * r + _f(4.1665795894e-2)
    p = p * r + _f(1.6666665459e-1)
    p = p * r + _f(5.0000001201e-1)
    p = p * r * r + r + _f(1.0)
    bits = (np.int32(n) + np.int32(127)) << np.int32(23)
    power: np.float32 = p * np.int32(bits).view(np.float32)
    return power


@njit(cache=True, nogil=True, fastmath=_LARGEST)
def _load(scores: Vector, removed: NDArray[np.bool_], row: Vector) -> np.float32:
    """Copy the scores to ``row``, −inf where removed, and return the largest."""
    found = False
    for s in range(len(scores)):
        found |= removed[s]
    highest = -_INF
    if found:
        for s in range(len(scores)):
            row[s] = -_INF if removed[s] else scores[s]
            highest = max(highest, row[s])
    else:
        for s in range(len(scores)):
            row[s] = scores[s]
            highest = max(highest, scores[s])
    return highest


@njit(cache=True, nogil=True)
def _competing(scores: Vector) -> np.int32:
    count = np.int32(0)
    for s in range(len(scores)):
        count += np.int32(scores[s] != -_INF)
    return count


@njit(cache=True, nogil=True, fastmath=_LARGEST)
def _largest_corrected(
    scores: Vector, log_count: Vector, highest: np.float32, sharpness: np.float32
) -> np.float32:
    largest = -_INF
    for s in range(len(scores)):
        largest = max(largest, (scores[s] - highest) * sharpness - log_count[s])
    return largest


@njit(cache=True, nogil=True, fastmath=_REORDER)
def _powers(
    scores: Vector,
    log_count: Vector,
    highest: np.float32,
    sharpness: np.float32,
    shift: np.float32,
    powers: Vector,
) -> np.float32:
    """Write exp((F − highest)·sharpness − log Q − shift) and return the sum."""
    total = _f(0)
    for s in range(len(scores)):
        below = ((scores[s] - highest) * sharpness - log_count[s]) - shift
        # A comparison with NaN is false: it goes through to the total.
        power = _exp(_LOWEST if below < _LOWEST else below)
        power = _f(0) if below < _LOWEST else power
        powers[s] = power
        total += power
    return total


@njit(cache=True, nogil=True)
def _rows(
    start: int,
    stop: int,
    scores: Matrix,
    log_count: Matrix,
    removed: NDArray[np.bool_],
    sharpness: np.float32,
    powers: Matrix,
    top: Vector,
    log_sum: Vector,
    count: Vector,
    scale: Vector,
) -> None:
    # A copy of the row in the cache: loops whose input may be their output are not vectorised.
    kept = np.empty(scores.shape[1], np.float32)
    shift, spread = _f(0), _f(0)
    for row in range(start, stop):
        counts = log_count[row if len(log_count) > 1 else 0]
        if len(counts) and (row == start or len(log_count) > 1):
            shift, spread = -counts.min(), counts.max() - counts.min()
        highest = _load(scores[row], removed[row if len(removed) > 1 else 0], kept)
        count[row] = _competing(kept)
        if count[row] == 0:
            powers[row] = 0.0
            top[row], log_sum[row], scale[row] = 0.0, -_INF, 0.0
            continue
        # No corrected score is above the shift, and the one of the highest score is at most the
        # spread below it: close enough that no power which matters is lost, without another pass.
        row_shift = shift
        if spread > _WIDE:
            row_shift = _largest_corrected(kept, counts, highest, sharpness)
        total = _powers(kept, counts, highest, sharpness, row_shift, powers[row])
        top[row] = highest
        log_sum[row] = row_shift + _f(math.log(total))
        scale[row] = sharpness / total


def row_log_sums(
    scores: Matrix,
    log_count: Matrix,
    removed: NDArray[np.bool_],
    sharpness: float,
    powers: Matrix | None = None,
) -> tuple[Vector, Vector, Vector, Vector, Matrix]:
    """Return top, log_sum, count and scale of the rows, [B] each, and their powers [B, S].

    Formula: over the candidates that are neither removed nor −inf, top = max F, log_sum =
    log Σ exp((F − top)·sharpness − log_count), count = how many; top is 0 and log_sum −inf where
    there is none. scale·power is the derivative of log_sum with top held fixed. NaN or +inf that
    is not removed makes log_sum and scale NaN.

    Shapes: scores [B, S]; log_count and removed [B, S], or [1, S] for all rows. ``powers`` takes
    the powers if given, and may be the scores themselves.

    Cost: O(B·S); each row is read from memory once and stays in the cache.

    Reference: none.

    Use when: float32 on the CPU. Avoid when: elsewhere (``widemax.objectives.log_sum``).

    >>> nothing = np.zeros((1, 2), np.float32)
    >>> top, log_sum, count, scale, powers = row_log_sums(
    ...     np.array([[5.0, 5.0]], np.float32), nothing, nothing > 0, 1.0)
    >>> top.tolist(), round(float(log_sum[0]), 4), count.tolist(), (scale * powers).tolist()
    ([5.0], 0.6931, [2.0], [[0.5, 0.5]])
    """
    rows, width = scores.shape
    top, log_sum, count, scale = (np.empty(rows, np.float32) for _ in range(4))
    powers = np.empty((rows, width), np.float32) if powers is None else powers
    shared = (scores, log_count, removed, _f(sharpness), powers, top, log_sum, count, scale)
    # Blocks of at least 2^16 scores: below, waking a thread costs more than it saves.
    smallest = max(1, 2**16 // max(1, width))
    in_blocks(lambda start, stop: _rows(start, stop, *shared), rows, smallest=smallest)
    return top, log_sum, count, scale, powers
