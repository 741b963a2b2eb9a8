"""What kernels of encoders do with one or two rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from widemax.kernels.compiling import njit
from widemax.kernels.exponential import exp

# Sums may be reordered and products contracted, which vectorises the loops.
_REORDER = {"reassoc", "contract", "nsz"}
_LEAST = np.float32(-87)

Matrix = NDArray[np.float32]
Vector = NDArray[np.float32]
Ids = NDArray[np.int64]


@njit(cache=True, nogil=True, fastmath=_REORDER)
def dot(x: Vector, y: Vector) -> np.float32:
    """Return x · y."""
    total = np.float32(0)
    for j in range(len(x)):
        total += x[j] * y[j]
    return total


@njit(cache=True, nogil=True, fastmath=_REORDER)
def add_to(total: Vector, weight: np.float32, row: Vector) -> None:
    """Add weight · row to a total."""
    for j in range(len(total)):
        total[j] += weight * row[j]


@njit(cache=True, nogil=True, fastmath=_REORDER)
def add_rows(total: Vector, weights: Vector, rows: Matrix) -> None:
    """Add the rows of a matrix, each times its weight, to a total.

    >>> total = np.ones(2, np.float32)
    >>> add_rows(total, np.array([2, 3], np.float32), np.eye(2, dtype=np.float32))
    >>> total.tolist()
    [3.0, 4.0]
    """
    whole = len(rows) - len(rows) % 4
    for i in range(0, whole, 4):
        # Four rows at a time: the total is read and written once for all of them.
        a, b, c, d = rows[i], rows[i + 1], rows[i + 2], rows[i + 3]
        by_a, by_b, by_c, by_d = weights[i], weights[i + 1], weights[i + 2], weights[i + 3]
        for j in range(len(total)):
            total[j] += by_a * a[j] + by_b * b[j] + by_c * c[j] + by_d * d[j]
    for i in range(whole, len(rows)):
        add_to(total, weights[i], rows[i])


@njit(cache=True, nogil=True, fastmath=_REORDER)
def add_dots(totals: Vector, weight: np.float32, rows: Matrix, x: Vector) -> None:
    """Add the product of each row with x, times a weight, to its total.

    >>> totals = np.ones(2, np.float32)
    >>> add_dots(totals, np.float32(2), np.eye(2, dtype=np.float32), np.array([3, 4], np.float32))
    >>> totals.tolist()
    [7.0, 9.0]
    """
    whole = len(rows) - len(rows) % 4
    for i in range(0, whole, 4):
        # Four rows at a time: x is read once for all of them.
        a, b, c, d = rows[i], rows[i + 1], rows[i + 2], rows[i + 3]
        by_a, by_b, by_c, by_d = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
        for j in range(len(x)):
            by_a += x[j] * a[j]
            by_b += x[j] * b[j]
            by_c += x[j] * c[j]
            by_d += x[j] * d[j]
        totals[i] += weight * by_a
        totals[i + 1] += weight * by_b
        totals[i + 2] += weight * by_c
        totals[i + 3] += weight * by_d
    for i in range(whole, len(rows)):
        totals[i] += weight * dot(rows[i], x)


@njit(cache=True, nogil=True, error_model="numpy")
def softmax(logits: Vector, shares: Vector) -> None:
    """Write the softmax of at least one logit, which may be the same memory."""
    top = logits.max()
    for k in range(len(logits)):
        # Below -87 it is 0 in any case.
        shares[k] = exp(max(logits[k] - top, _LEAST))
    total = np.float32(0)
    for k in range(len(logits)):
        total += shares[k]
    for k in range(len(logits)):
        shares[k] /= total


@njit(cache=True, nogil=True, error_model="numpy")
def softmax_columns(logits: Matrix, shares: Matrix, tops: Vector) -> None:
    """Write the softmax of each column of at least one row; ``tops`` is room for a row.

    >>> logits = np.log(np.array([[1, 2], [3, 2]], np.float32))
    >>> softmax_columns(logits, logits, np.empty(2, np.float32))
    >>> logits.round(4).tolist()
    [[0.25, 0.5], [0.75, 0.5]]
    """
    width = logits.shape[1]
    tops[:width] = logits[0]
    for k in range(1, len(logits)):
        for i in range(width):
            tops[i] = max(tops[i], logits[k, i])
    for k in range(len(logits)):
        for i in range(width):
            shares[k, i] = exp(max(logits[k, i] - tops[i], _LEAST))
    tops[:width] = 0
    for k in range(len(logits)):
        for i in range(width):
            tops[i] += shares[k, i]
    for k in range(len(logits)):
        for i in range(width):
            shares[k, i] /= tops[i]
