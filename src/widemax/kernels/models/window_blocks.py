"""The arithmetic of one window: few inputs against few outputs, held in registers.

Every function becomes part of its caller: numbers that are constants there are constants here too,
and their loops are unrolled. Rows and columns beyond the true numbers fill the last block: their
scores are waste, and their steps are 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from widemax.kernels.compiling import njit
from widemax.kernels.exponential import exp

_f = np.float32
_LARGEST_SCORE = _f(30)  # beyond it the sigmoid is 0 or 1 in float32

Matrix = NDArray[np.float32]
Ids = NDArray[np.int64]


@njit(inline="always")
def copy_row(target: Matrix, place: int, source: Matrix, row: int, dimension: int) -> None:
    """Write a row of the source to a place of the target."""
    for d in range(dimension):
        target[place, d] = source[row, d]


@njit(inline="always")
def add_row(target: Matrix, place: int, source: Matrix, row: int, dimension: int) -> None:
    """Add a row of the source to a place of the target."""
    for d in range(dimension):
        target[place, d] += source[row, d]


@njit(inline="always")
def score(
    x: Matrix, num_inputs: int, o: Matrix, num_outputs: int, scores: Matrix, dimension: int
) -> None:
    """Fill scores[j, k] = x[j]·o[k], two by three at a time: they stay in registers."""
    for j in range(0, num_inputs, 2):
        for k in range(0, num_outputs, 3):
            a0, a1, a2, b0, b1, b2 = _f(0), _f(0), _f(0), _f(0), _f(0), _f(0)
            for d in range(dimension):
                a, b = x[j, d], x[j + 1, d]
                o0, o1, o2 = o[k, d], o[k + 1, d], o[k + 2, d]
                a0 += a * o0
                a1 += a * o1
                a2 += a * o2
                b0 += b * o0
                b1 += b * o1
                b2 += b * o2
            scores[j, k], scores[j, k + 1], scores[j, k + 2] = a0, a1, a2
            scores[j + 1, k], scores[j + 1, k + 1], scores[j + 1, k + 2] = b0, b1, b2


@njit(inline="always")
def push_down(flat_scores: NDArray[np.float32], num: int, rate: np.float32) -> None:
    """Replace each score F by −rate·σ(F), all in one long loop, which vectorises."""
    for i in range(num):
        value = flat_scores[i]
        value = -_LARGEST_SCORE if value < -_LARGEST_SCORE else value
        value = _LARGEST_SCORE if value > _LARGEST_SCORE else value
        flat_scores[i] = -rate / (_f(1) + exp(-value))


@njit(inline="always")
def gather_moves(
    moves: Matrix, num_outputs: int, steps: Matrix, x: Matrix, num_inputs: int, dimension: int
) -> None:
    """Fill moves[k] = Σ_j steps[j, k]·x[j], two by three at a time."""
    for k in range(0, num_outputs, 2):
        for d in range(dimension):
            moves[k, d] = _f(0)
            moves[k + 1, d] = _f(0)
        for j in range(0, num_inputs, 3):
            a0, a1, a2 = steps[j, k], steps[j + 1, k], steps[j + 2, k]
            b0, b1, b2 = steps[j, k + 1], steps[j + 1, k + 1], steps[j + 2, k + 1]
            for d in range(dimension):
                x0, x1, x2 = x[j, d], x[j + 1, d], x[j + 2, d]
                moves[k, d] += a0 * x0 + a1 * x1 + a2 * x2
                moves[k + 1, d] += b0 * x0 + b1 * x1 + b2 * x2


@njit(inline="always")
def move_row(
    table: Matrix,
    row: int,
    steps: Matrix,
    j: int,
    o: Matrix,
    num_outputs: int,
    dimension: int,
) -> None:
    """Add Σ_k steps[j, k]·o[k] to a row of the table, six at a time."""
    for k in range(0, num_outputs, 6):
        s0, s1, s2 = steps[j, k], steps[j, k + 1], steps[j, k + 2]
        s3, s4, s5 = steps[j, k + 3], steps[j, k + 4], steps[j, k + 5]
        for d in range(dimension):
            first = s0 * o[k, d] + s1 * o[k + 1, d] + s2 * o[k + 2, d]
            second = s3 * o[k + 3, d] + s4 * o[k + 4, d] + s5 * o[k + 5, d]
            table[row, d] += first + second


@njit(inline="always")
def fill_mean(x: Matrix, table: Matrix, ids: Ids, num_ids: int, dimension: int) -> None:
    """Write the mean of the rows ``ids`` of a table to the first row of x."""
    copy_row(x, 0, table, ids[0], dimension)
    for j in range(1, num_ids):
        add_row(x, 0, table, ids[j], dimension)
    share = _f(1) / _f(num_ids)
    for d in range(dimension):
        x[0, d] *= share
