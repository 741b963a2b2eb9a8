"""The arithmetic of one window: few queries against few outputs, held in registers.

Every function becomes part of its caller. Rows of the tables are whole registers. Queries come in
twos and outputs in threes: what only fills them has steps of 0. The step of query j against output
k stands at ``steps[0, j·width + k]``, where ``width`` leaves a place free after the last output.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from widemax.kernels.compiling import njit
from widemax.kernels.exponential import exp
from widemax.kernels.registers import (
    LANES,
    add,
    load,
    multiply,
    multiply_add,
    peek,
    spread,
    store,
    store_sums,
    store_sums_apart,
)

_f = np.float32
_LARGEST_SCORE = _f(30)  # beyond it the sigmoid is 0 or 1 in float32

Matrix = NDArray[np.float32]
Ids = NDArray[np.int64]


@njit(inline="always")
def add_row(target: Matrix, place: int, source: Matrix, row: int) -> None:
    """Add a row of the source to a place of the target."""
    for d in range(0, source.shape[1], LANES):
        store(target, place, d, add(load(target, place, d), load(source, row, d)))


@njit(inline="always")
def fill_mean(
    means: Matrix, place: int, table: Matrix, rows: Ids, start: int, num_rows: int
) -> None:
    """Write the mean of the rows at ``start`` … of a table to a place of ``means``."""
    share = spread(_f(1) / _f(num_rows))
    for d in range(0, means.shape[1], LANES):
        total = load(table, peek(rows, 0, start), d)
        for j in range(start + 1, start + num_rows):
            total = add(total, load(table, peek(rows, 0, j), d))
        store(means, place, d, multiply(total, share))


@njit(inline="always")
def score(
    queries: Matrix,
    rows: Ids,
    num_rows: int,
    outputs: Matrix,
    columns: Ids,
    slot: int,
    num_columns: int,
    scores: Matrix,
    width: int,
) -> None:
    """Fill the scores query j · output k, two by six at a time; three columns may be left."""
    zero = spread(_f(0))
    dimension = outputs.shape[1]
    for j in range(0, num_rows, 2):
        row, other = peek(rows, 0, j), peek(rows, 0, j + 1)
        place, below = j * width, (j + 1) * width
        for k in range(0, num_columns - 3, 6):
            c0, c1 = peek(columns, slot, k), peek(columns, slot, k + 1)
            c2, c3 = peek(columns, slot, k + 2), peek(columns, slot, k + 3)
            c4, c5 = peek(columns, slot, k + 4), peek(columns, slot, k + 5)
            a0, a1, a2, a3, a4, a5 = zero, zero, zero, zero, zero, zero
            b0, b1, b2, b3, b4, b5 = zero, zero, zero, zero, zero, zero
            for d in range(0, dimension, LANES):
                a, b = load(queries, row, d), load(queries, other, d)
                o0, o1, o2 = load(outputs, c0, d), load(outputs, c1, d), load(outputs, c2, d)
                a0, b0 = multiply_add(a, o0, a0), multiply_add(b, o0, b0)
                a1, b1 = multiply_add(a, o1, a1), multiply_add(b, o1, b1)
                a2, b2 = multiply_add(a, o2, a2), multiply_add(b, o2, b2)
                o3, o4, o5 = load(outputs, c3, d), load(outputs, c4, d), load(outputs, c5, d)
                a3, b3 = multiply_add(a, o3, a3), multiply_add(b, o3, b3)
                a4, b4 = multiply_add(a, o4, a4), multiply_add(b, o4, b4)
                a5, b5 = multiply_add(a, o5, a5), multiply_add(b, o5, b5)
            store_sums(scores, 0, place + k, a0, a1, a2, a3)
            store_sums(scores, 0, below + k, b0, b1, b2, b3)
            store_sums_apart(scores, place + k + 4, below + k + 4, a4, a5, b4, b5)
        if num_columns % 6:
            k = num_columns - 3
            c0, c1 = peek(columns, slot, k), peek(columns, slot, k + 1)
            c2 = peek(columns, slot, k + 2)
            a0, a1, a2, b0, b1, b2 = zero, zero, zero, zero, zero, zero
            for d in range(0, dimension, LANES):
                a, b = load(queries, row, d), load(queries, other, d)
                o0, o1, o2 = load(outputs, c0, d), load(outputs, c1, d), load(outputs, c2, d)
                a0, b0 = multiply_add(a, o0, a0), multiply_add(b, o0, b0)
                a1, b1 = multiply_add(a, o1, a1), multiply_add(b, o1, b1)
                a2, b2 = multiply_add(a, o2, a2), multiply_add(b, o2, b2)
            # The fourth sum falls on a place that is left free.
            store_sums(scores, 0, place + k, a0, a1, a2, a2)
            store_sums(scores, 0, below + k, b0, b1, b2, b2)


@njit(inline="always")
def push_down(scores: Matrix, num: int, rate: np.float32) -> None:
    """Replace each score F by −rate·σ(F), all in one long loop, which vectorises."""
    for i in range(num):
        value = scores[0, i]
        value = -_LARGEST_SCORE if value < -_LARGEST_SCORE else value
        value = _LARGEST_SCORE if value > _LARGEST_SCORE else value
        scores[0, i] = -rate / (_f(1) + exp(-value))


@njit(inline="always")
def gather_moves(
    queries: Matrix,
    rows: Ids,
    num_rows: int,
    outputs: Matrix,
    columns: Ids,
    slot: int,
    num_columns: int,
    steps: Matrix,
    width: int,
    row_moves: Matrix,
    column_moves: Matrix,
) -> None:
    """Fill row_moves[j] = Σ_k step(j, k)·output k and column_moves[k] = Σ_j step(j, k)·query j."""
    zero = spread(_f(0))
    for d in range(0, outputs.shape[1], LANES):
        for k in range(0, num_columns - 3, 6):
            o0 = load(outputs, peek(columns, slot, k), d)
            o1 = load(outputs, peek(columns, slot, k + 1), d)
            o2 = load(outputs, peek(columns, slot, k + 2), d)
            o3 = load(outputs, peek(columns, slot, k + 3), d)
            o4 = load(outputs, peek(columns, slot, k + 4), d)
            o5 = load(outputs, peek(columns, slot, k + 5), d)
            m0, m1, m2, m3, m4, m5 = zero, zero, zero, zero, zero, zero
            for j in range(num_rows):
                x = load(queries, peek(rows, 0, j), d)
                place = j * width + k
                s0, s1 = spread(peek(steps, 0, place)), spread(peek(steps, 0, place + 1))
                s2, s3 = spread(peek(steps, 0, place + 2)), spread(peek(steps, 0, place + 3))
                s4, s5 = spread(peek(steps, 0, place + 4)), spread(peek(steps, 0, place + 5))
                move = zero if k == 0 else load(row_moves, j, d)
                move = multiply_add(s2, o2, multiply_add(s1, o1, multiply_add(s0, o0, move)))
                other = multiply_add(s5, o5, multiply_add(s4, o4, multiply(s3, o3)))
                store(row_moves, j, d, add(move, other))
                m0, m1 = multiply_add(s0, x, m0), multiply_add(s1, x, m1)
                m2, m3 = multiply_add(s2, x, m2), multiply_add(s3, x, m3)
                m4, m5 = multiply_add(s4, x, m4), multiply_add(s5, x, m5)
            store(column_moves, k, d, m0)
            store(column_moves, k + 1, d, m1)
            store(column_moves, k + 2, d, m2)
            store(column_moves, k + 3, d, m3)
            store(column_moves, k + 4, d, m4)
            store(column_moves, k + 5, d, m5)
        if num_columns % 6:
            k = num_columns - 3
            o0 = load(outputs, peek(columns, slot, k), d)
            o1 = load(outputs, peek(columns, slot, k + 1), d)
            o2 = load(outputs, peek(columns, slot, k + 2), d)
            m0, m1, m2 = zero, zero, zero
            for j in range(num_rows):
                x = load(queries, peek(rows, 0, j), d)
                place = j * width + k
                s0, s1 = spread(peek(steps, 0, place)), spread(peek(steps, 0, place + 1))
                s2 = spread(peek(steps, 0, place + 2))
                move = zero if k == 0 else load(row_moves, j, d)
                move = multiply_add(s2, o2, multiply_add(s1, o1, multiply_add(s0, o0, move)))
                store(row_moves, j, d, move)
                m0, m1 = multiply_add(s0, x, m0), multiply_add(s1, x, m1)
                m2 = multiply_add(s2, x, m2)
            store(column_moves, k, d, m0)
            store(column_moves, k + 1, d, m1)
            store(column_moves, k + 2, d, m2)
