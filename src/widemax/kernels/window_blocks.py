"""The arithmetic of one window: few inputs against few outputs, held in registers.

Rows and columns beyond the true numbers fill the last block: their scores are waste, their steps
are 0, their ids are any valid ones.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from widemax.kernels.exponential import exp

_f = np.float32
# Sums may be reordered and products contracted, which vectorises the loops; and a division that
# could raise would keep them scalar.
_REORDER = {"reassoc", "contract", "nsz"}
_LARGEST_SCORE = _f(30)  # beyond it the sigmoid is 0 or 1 in float32

Matrix = NDArray[np.float32]
Ids = NDArray[np.int64]


@njit(inline="always")
def copy_row(target: Matrix, place: int, source: Matrix, row: int) -> None:
    """Write a row of the source to a place of the target."""
    for d in range(target.shape[1]):
        target[place, d] = source[row, d]


@njit(inline="always")
def add_row(target: Matrix, place: int, source: Matrix, row: int) -> None:
    """Add a row of the source to a place of the target."""
    for d in range(target.shape[1]):
        target[place, d] += source[row, d]


@njit(nogil=True, fastmath=_REORDER, error_model="numpy")
def score(
    table: Matrix, ids: Ids, num_ids: int, o: Matrix, num_outputs: int, scores: Matrix
) -> None:
    """Fill scores[j, k] = table[ids[j]]·o[k], two by three at a time: they stay in registers."""
    for j in range(0, num_ids, 2):
        row_a, row_b = ids[j], ids[j + 1]
        for k in range(0, num_outputs, 3):
            a0, a1, a2, b0, b1, b2 = _f(0), _f(0), _f(0), _f(0), _f(0), _f(0)
            for d in range(table.shape[1]):
                a, b = table[row_a, d], table[row_b, d]
                o0, o1, o2 = o[k, d], o[k + 1, d], o[k + 2, d]
                a0 += a * o0
                a1 += a * o1
                a2 += a * o2
                b0 += b * o0
                b1 += b * o1
                b2 += b * o2
            scores[j, k], scores[j, k + 1], scores[j, k + 2] = a0, a1, a2
            scores[j + 1, k], scores[j + 1, k + 1], scores[j + 1, k + 2] = b0, b1, b2


@njit(nogil=True, fastmath=_REORDER, error_model="numpy")
def _push(flat_scores: NDArray[np.float32], num: int, rate: np.float32) -> None:
    """Replace each score F by −rate·σ(F); in one long loop, which vectorises."""
    for i in range(num):
        score = flat_scores[i]
        score = -_LARGEST_SCORE if score < -_LARGEST_SCORE else score
        score = _LARGEST_SCORE if score > _LARGEST_SCORE else score
        flat_scores[i] = -rate / (_f(1) + exp(-score))


@njit(nogil=True, fastmath=_REORDER, error_model="numpy")
def to_steps(
    steps: Matrix,
    flat_steps: NDArray[np.float32],
    num_ids: int,
    labels: Matrix,
    weights: Matrix,
    slot: int,
    rate: np.float32,
) -> None:
    """Turn scores into steps rate·(label − weight·σ(F)), 0 in the rows that only fill a block."""
    _push(flat_steps, num_ids * steps.shape[1], rate)
    for j in range(num_ids):
        for k in range(steps.shape[1]):
            steps[j, k] = steps[j, k] * weights[slot, k] + rate * labels[slot, k]
    for j in range(num_ids, num_ids + 2):
        for k in range(steps.shape[1]):
            steps[j, k] = 0


@njit(nogil=True, fastmath=_REORDER, error_model="numpy")
def gather_moves(
    moves: Matrix, num_outputs: int, steps: Matrix, table: Matrix, ids: Ids, num_ids: int
) -> None:
    """Fill moves[k] = Σ_j steps[j, k]·table[ids[j]], two by three at a time."""
    for k in range(0, num_outputs, 2):
        for d in range(table.shape[1]):
            moves[k, d] = _f(0)
            moves[k + 1, d] = _f(0)
        for j in range(0, num_ids, 3):
            row_0, row_1, row_2 = ids[j], ids[j + 1], ids[j + 2]
            a0, a1, a2 = steps[j, k], steps[j + 1, k], steps[j + 2, k]
            b0, b1, b2 = steps[j, k + 1], steps[j + 1, k + 1], steps[j + 2, k + 1]
            for d in range(table.shape[1]):
                x0, x1, x2 = table[row_0, d], table[row_1, d], table[row_2, d]
                moves[k, d] += a0 * x0 + a1 * x1 + a2 * x2
                moves[k + 1, d] += b0 * x0 + b1 * x1 + b2 * x2


@njit(nogil=True, fastmath=_REORDER, error_model="numpy")
def move_row(table: Matrix, row: int, steps: Matrix, j: int, o: Matrix, num_outputs: int) -> None:
    """Add Σ_k steps[j, k]·o[k] to a row of the table, six at a time; steps beyond them are 0."""
    for k in range(0, num_outputs, 6):
        s0, s1, s2 = steps[j, k], steps[j, k + 1], steps[j, k + 2]
        s3, s4, s5 = steps[j, k + 3], steps[j, k + 4], steps[j, k + 5]
        for d in range(table.shape[1]):
            first = s0 * o[k, d] + s1 * o[k + 1, d] + s2 * o[k + 2, d]
            second = s3 * o[k + 3, d] + s4 * o[k + 4, d] + s5 * o[k + 5, d]
            table[row, d] += first + second


@njit(nogil=True, fastmath=_REORDER, error_model="numpy")
def fill_mean(bag: Matrix, table: Matrix, ids: Ids, num_ids: int) -> None:
    """Write the mean of the rows ``ids`` of a table to the first row of the bag."""
    copy_row(bag, 0, table, ids[0])
    for j in range(1, num_ids):
        add_row(bag, 0, table, ids[j])
    share = _f(1) / _f(num_ids)
    for d in range(table.shape[1]):
        bag[0, d] *= share
