"""Sums and products of a few short rows, a register at a time.

Tables are [n, D] of whole registers, filled with zeros where the data ends before; those that
``dots`` reads have rows in fours. Every function becomes part of its caller.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from widemax.kernels.compiling import njit
from widemax.kernels.curves import exp
from widemax.kernels.registers import (
    LANES,
    add,
    clamp,
    load,
    multiply,
    multiply_add,
    peek,
    spread,
    store,
    store_sums,
    subtract,
)

_f = np.float32

Matrix = NDArray[np.float32]


@njit(inline="always")
def whole(count: int) -> int:
    """Return the next multiple of ``LANES``."""
    return -(-count // LANES) * LANES


@njit(cache=True, nogil=True)
def space_for(rows: int, columns: int) -> Matrix:
    """Return a table [rows, columns], not filled yet, that begins where a cache line does.

    A register that lies across two lines takes twice as long to load, and twice as often misses.

    >>> space_for(3, LANES).ctypes.data % 64
    0
    """
    memory = np.empty(rows * columns + 16, np.float32)
    first = -memory.ctypes.data % 64 // 4
    return memory[first : first + rows * columns].reshape(rows, columns)


@njit(cache=True, nogil=True)
def room_for(rows: int, columns: int) -> Matrix:
    """Return such a table of zeros.

    >>> float(room_for(1, LANES).sum())
    0.0
    """
    room = space_for(rows, columns)
    room[:] = 0
    return room


@njit(cache=True, nogil=True)
def rows_apart(rows: int, columns: int) -> Matrix:
    """Return a table of zeros, [rows, whole(columns)], with a register of nothing behind each row.

    As values of a sparse gradient: torch adds two of those by one copy where the rows of one do not
    touch, and else row by row, which takes five times as long.

    >>> table = rows_apart(2, LANES)
    >>> table.shape == (2, LANES), table.flags.c_contiguous
    (True, False)
    """
    return room_for(rows, whole(columns) + LANES)[:, : whole(columns)]


@njit(inline="always")
def fill(table: Matrix, source: Matrix, start: int, first: int, size: int, count: int) -> None:
    """Copy ``size`` columns of rows of a source, from ``start`` on, and clear all behind them."""
    for row in range(count):
        copy(table, row, 0, source, start + row, first, size)
    for row in range(count, len(table)):
        clear(table, row)


@njit(inline="always")
def copy(
    table: Matrix, row: int, first: int, source: Matrix, of: int, start: int, size: int
) -> None:
    """Copy ``size`` numbers of row ``of`` of a source, from ``start`` on, into a row of a table."""
    if size % LANES:
        for j in range(size):
            table[row, first + j] = source[of, start + j]
    else:
        for j in range(0, size, LANES):
            store(table, row, first + j, load(source, of, start + j))


@njit(inline="always")
def clear(table: Matrix, row: int) -> None:
    """Write zeros to a row of a table."""
    for j in range(0, table.shape[1], LANES):
        store(table, row, j, spread(_f(0)))


@njit(inline="always")
def dots(out: Matrix, place: int, rows: Matrix, count: int, table: Matrix, x: int) -> None:
    """Write the products of the first rows with row ``x`` of a table to row ``place`` of ``out``.

    They are written in fours: there may be up to three more than asked for.
    """
    zero = spread(_f(0))
    for i in range(0, count, 4):
        a, b, c, d = zero, zero, zero, zero
        for j in range(0, rows.shape[1], LANES):
            factor = load(table, x, j)
            a = multiply_add(load(rows, i, j), factor, a)
            b = multiply_add(load(rows, i + 1, j), factor, b)
            c = multiply_add(load(rows, i + 2, j), factor, c)
            d = multiply_add(load(rows, i + 3, j), factor, d)
        store_sums(out, place, i, a, b, c, d)


@njit(inline="always")
def square_norms(out: Matrix, first: int, rows: Matrix) -> None:
    """Write the products of four rows with themselves, from ``first`` on, to the row of ``out``."""
    a, b, c, d = spread(_f(0)), spread(_f(0)), spread(_f(0)), spread(_f(0))
    for j in range(0, rows.shape[1], LANES):
        one, two = load(rows, first, j), load(rows, first + 1, j)
        three, four = load(rows, first + 2, j), load(rows, first + 3, j)
        a, b = multiply_add(one, one, a), multiply_add(two, two, b)
        c, d = multiply_add(three, three, c), multiply_add(four, four, d)
    store_sums(out, 0, first, a, b, c, d)


@njit(inline="always")
def weighted(rows: Matrix, column: int, weights: Matrix, place: int, count: int) -> Any:
    """Return the sum of a register of the first rows, weighted by row ``place`` of a table."""
    one, two = spread(_f(0)), spread(_f(0))
    for i in range(0, count - 1, 2):
        # Two sums that do not wait for each other.
        one = multiply_add(spread(peek(weights, place, i)), load(rows, i, column), one)
        two = multiply_add(spread(peek(weights, place, i + 1)), load(rows, i + 1, column), two)
    if count % 2:
        one = multiply_add(
            spread(peek(weights, place, count - 1)), load(rows, count - 1, column), one
        )
    return add(one, two)


@njit(inline="always")
def softmax_row(scores: Matrix, shares: Matrix, place: int, count: int) -> None:
    """Write the softmax of the first numbers of a table's one row to a row of whole registers.

    Behind them it is 0, to the end of the register. What was scored is written over.
    """
    zero, infinite = spread(_f(0)), spread(_f(np.inf))
    for at in range(count, whole(count)):
        scores[0, at] = scores[0, 0]
    tops = load(scores, 0, 0)
    for at in range(LANES, count, LANES):
        tops = clamp(tops, load(scores, 0, at), infinite)
    store(shares, place, 0, tops)
    top = peek(shares, place, 0)
    for at in range(1, LANES):
        top = max(top, peek(shares, place, at))
    for at in range(0, count, LANES):
        store(scores, 0, at, exp(subtract(load(scores, 0, at), spread(top))))
    for at in range(count, whole(count)):
        scores[0, at] = 0
    total = zero
    for at in range(0, count, LANES):
        total = add(total, load(scores, 0, at))
    store_sums(shares, place, 0, total, zero, zero, zero)
    share = spread(_f(1) / peek(shares, place, 0))
    for at in range(0, count, LANES):
        store(shares, place, at, multiply(load(scores, 0, at), share))


@njit(inline="always")
def sum_rows(
    out: Matrix, place: int, rows: Matrix, weights: Matrix, weighing: int, count: int
) -> None:
    """Write the sum of the first rows, weighted by row ``weighing`` of a table, to a row."""
    for j in range(0, rows.shape[1], LANES):
        store(out, place, j, weighted(rows, j, weights, weighing, count))


@njit(inline="always")
def four_sums(
    out: Matrix, place: int, column: int, rows: Matrix, weights: Matrix, count: int
) -> None:
    """Write a register of the first rows' sums, by rows ``place`` to ``place + 3`` of weights.

    They go to rows of the same numbers: a row is loaded once for four sums.
    """
    a, b, c, d = spread(_f(0)), spread(_f(0)), spread(_f(0)), spread(_f(0))
    for i in range(count):
        row = load(rows, i, column)
        a = multiply_add(spread(peek(weights, place, i)), row, a)
        b = multiply_add(spread(peek(weights, place + 1, i)), row, b)
        c = multiply_add(spread(peek(weights, place + 2, i)), row, c)
        d = multiply_add(spread(peek(weights, place + 3, i)), row, d)
    store(out, place, column, a)
    store(out, place + 1, column, b)
    store(out, place + 2, column, c)
    store(out, place + 3, column, d)


@njit(inline="always")
def sum_four_rows(out: Matrix, place: int, rows: Matrix, weights: Matrix, count: int) -> None:
    """Write the sums of the first rows, weighted by rows ``place`` to ``place + 3`` of a table."""
    for j in range(0, rows.shape[1], LANES):
        four_sums(out, place, j, rows, weights, count)


@njit(inline="always")
def sum_four_by_column(out: Matrix, place: int, rows: Matrix, weights: Matrix, count: int) -> None:
    """Do the same, weighted by columns ``place`` to ``place + 3`` of a table."""
    for j in range(0, rows.shape[1], LANES):
        a, b, c, d = spread(_f(0)), spread(_f(0)), spread(_f(0)), spread(_f(0))
        for i in range(count):
            row = load(rows, i, j)
            a = multiply_add(spread(peek(weights, i, place)), row, a)
            b = multiply_add(spread(peek(weights, i, place + 1)), row, b)
            c = multiply_add(spread(peek(weights, i, place + 2)), row, c)
            d = multiply_add(spread(peek(weights, i, place + 3)), row, d)
        store(out, place, j, a)
        store(out, place + 1, j, b)
        store(out, place + 2, j, c)
        store(out, place + 3, j, d)
