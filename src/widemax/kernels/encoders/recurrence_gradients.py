"""The gradients of an LSTM, a few rows through all steps before the next few.

Gates, cells and states are those that ``widemax.kernels.encoders.recurrence`` returned.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from widemax.kernels.compiling import njit, prange
from widemax.kernels.curves import tanh
from widemax.kernels.encoders.recurrence import AHEAD, ROWS, Ids, Matrix, Register
from widemax.kernels.encoders.register_rows import copy, room_for
from widemax.kernels.models.prefetch import prefetch_row
from widemax.kernels.registers import (
    LANES,
    add,
    load,
    multiply,
    spread,
    store,
    subtract,
    unowned,
)
from widemax.kernels.threads import num_blocks
from widemax.kernels.tiles import HEIGHT, WIDTH, multiply_tile

_f = np.float32

_multiply: Any = multiply_tile  # numba's own type counts the argument that it adds


def read_back(
    by_states: Matrix,
    states: Matrix,
    gates: Matrix,
    cells: Matrix,
    places: Ids,
    lengths: Ids,
    by_state: Matrix,
    num_inputs: int,
) -> tuple[Matrix, Matrix]:
    """Return the gradients of ``projected`` [U, 4·H] and of ``by_state`` from that of the states.

    All else is as ``recurrence.read_forward`` takes and returns it.
    """
    size, groups = states.shape[1], -(-len(places) // ROWS)
    blocks = num_blocks(groups)
    by_projected = torch.zeros(blocks, num_inputs, 4 * size).numpy()
    by_weight = torch.zeros(blocks, 4 * size, size).numpy()
    batch = (by_states, states, gates, cells, places, lengths, by_state)
    if blocks == 1:
        _back(0, groups, by_projected[0], by_weight[0], *batch)
        return by_projected[0], by_weight[0]
    _back_in_blocks(blocks, groups, by_projected, by_weight, *batch)
    return by_projected.sum(0), by_weight.sum(0)


@njit(cache=True, nogil=True)
def _back(
    start: int, stop: int, by_projected: Matrix, by_weight: Matrix, by_states: Matrix,
    states: Matrix, gates: Matrix, cells: Matrix, places: Ids, lengths: Ids, by_state: Matrix,
) -> None:  # fmt: skip
    size = states.shape[1]
    before, by_gates = room_for(ROWS, size), room_for(ROWS, 4 * size)
    by_later, by_cells = room_for(ROWS, size), room_for(ROWS, size)
    _back_rows(
        start, stop, by_projected, by_weight, by_states, states, gates, cells, places, lengths,
        by_state, before, by_gates, by_later, by_cells,
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _back_rows(
    start: int, stop: int, by_projected: Matrix, by_weight: Matrix, by_states: Matrix,
    states: Matrix, gates: Matrix, cells: Matrix, places: Ids, lengths: Ids, by_state: Matrix,
    before: Matrix, by_gates: Matrix, by_later: Matrix, by_cells: Matrix,
) -> None:  # fmt: skip
    length, size = places.shape[1], states.shape[1]
    by_projected, by_weight, by_states = unowned(by_projected, by_weight, by_states)
    states, gates, cells, places = unowned(states, gates, cells, places)
    lengths, by_state, before = unowned(lengths, by_state, before)
    by_gates, by_later, by_cells = unowned(by_gates, by_later, by_cells)
    for group in range(start, stop):
        first, last = group * ROWS, min((group + 1) * ROWS, len(places))
        by_later[:], by_cells[:], by_gates[:], before[:] = 0, 0, 0, 0
        for step in range(lengths[first:last].max() - 1, -1, -1):
            gate, cell = (group * length + step) * ROWS, (group * (length + 1) + step) * ROWS
            for row in range(first, last):
                at, place, state = row - first, places[row, step], row * length + step
                if row + AHEAD < last:
                    ahead = at + AHEAD
                    prefetch_row(by_projected, places[row + AHEAD, step], 4 * size)
                    prefetch_row(by_states, state + AHEAD * length, size)
                    prefetch_row(states, state + AHEAD * length - 1, size)
                    prefetch_row(gates, gate + ahead, 4 * size)
                    prefetch_row(cells, cell + ROWS + ahead, size)
                if place < 0:  # behind the last step of this row, where all is 0 still
                    continue
                if step:
                    copy(before, at, 0, states, state - 1, 0, size)
                _unbend(
                    by_states, state, by_later, by_cells, at, gates, gate + at, cells, cell + at,
                    by_gates, by_projected, place,
                )  # fmt: skip
            if step:
                rows = -(-(last - first) // HEIGHT) * HEIGHT
                _multiply_back(by_gates[:rows], before[:rows], by_state, by_later, by_weight)


@njit(cache=True, nogil=True)
def _multiply_back(
    by_gates: Matrix, before: Matrix, by_state: Matrix, by_later: Matrix, by_weight: Matrix
) -> None:
    """Write what gradients of gates are for the states before, and add what for the weights."""
    for c in range(0, before.shape[1], WIDTH):
        columns = slice(c, c + WIDTH)
        for r in range(0, len(by_gates), HEIGHT):
            rows = slice(r, r + HEIGHT)
            _multiply(by_gates[rows], by_state[:, columns], by_later[rows, columns], False)
        for r in range(0, len(by_state), HEIGHT):
            rows = slice(r, r + HEIGHT)
            _multiply(by_gates[:, rows].T, before[:, columns], by_weight[rows, columns], True)


@njit(inline="always")
def _unbend(
    by_states: Matrix, state: int, by_later: Matrix, by_cells: Matrix, at: int, gates: Matrix,
    gate: int, cells: Matrix, cell: int, by_gates: Matrix, by_projected: Matrix, place: int,
) -> None:  # fmt: skip
    """Write the gradient of a row's gates before they were bent, and add it to its input's.

    It comes from that of the state and, of the step after, those of the state and of the cell;
    ``by_cells`` becomes that of the cell before.
    """
    size = by_cells.shape[1]
    one = spread(_f(1))
    for i in range(0, size, LANES):
        f, g, o = i + size, i + 2 * size, i + 3 * size
        by_i, by_f = load(gates, gate, i), load(gates, gate, f)
        by_g, by_o = load(gates, gate, g), load(gates, gate, o)
        bent = tanh(load(cells, cell + ROWS, i))
        grad = add(load(by_states, state, i), load(by_later, at, i))
        through = multiply(multiply(grad, by_o), subtract(one, multiply(bent, bent)))
        of_cell = add(load(by_cells, at, i), through)
        store(by_cells, at, i, multiply(of_cell, by_f))
        of_i = multiply(multiply(of_cell, by_g), multiply(by_i, subtract(one, by_i)))
        of_f = multiply(
            multiply(of_cell, load(cells, cell, i)), multiply(by_f, subtract(one, by_f))
        )
        of_g = multiply(multiply(of_cell, by_i), subtract(one, multiply(by_g, by_g)))
        of_o = multiply(multiply(grad, bent), multiply(by_o, subtract(one, by_o)))
        _write(by_gates, at, i, of_i, by_projected, place)
        _write(by_gates, at, f, of_f, by_projected, place)
        _write(by_gates, at, g, of_g, by_projected, place)
        _write(by_gates, at, o, of_o, by_projected, place)


@njit(cache=True, nogil=True, parallel=True)
def _back_in_blocks(
    blocks: int, groups: int, by_projected: Matrix, by_weight: Matrix, *batch: Any
) -> None:
    for block in prange(blocks):
        start, stop = groups * block // blocks, groups * (block + 1) // blocks
        _back(start, stop, by_projected[block], by_weight[block], *batch)


@njit(inline="always")
def _write(
    target: Matrix, row: int, column: int, value: Register, totals: Matrix, place: int
) -> None:
    store(target, row, column, value)
    store(totals, place, column, add(load(totals, place, column), value))
