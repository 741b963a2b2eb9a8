"""The states of an LSTM and their gradients, a few rows through all steps before the next few.

Gates are [4·H] in torch's order: i, f, g, o, before or after what bends them (g by tanh, the others
by a sigmoid). A cell c' = f·c + i·g has the state h = o·tanh(c'). H is a multiple of ``WIDTH``.
Products are made by tiles: what is multiplied out is bent while it is in the nearest cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from widemax.kernels.compiling import njit, prange
from widemax.kernels.curves import sigmoid, tanh
from widemax.kernels.encoders.register_rows import clear, copy, room_for
from widemax.kernels.models.prefetch import prefetch_row
from widemax.kernels.products import panels_of
from widemax.kernels.registers import (
    LANES,
    add,
    load,
    multiply,
    multiply_add,
    spread,
    store,
    subtract,
    unowned,
)
from widemax.kernels.threads import num_blocks
from widemax.kernels.tiles import HEIGHT, WIDTH, multiply_tile

_f = np.float32
_ROWS = 64  # that go through the steps together: what they hold stays in the nearest caches
_AHEAD = 2  # rows: so long before its turn what is read and written of a row is asked for

_multiply: Any = multiply_tile  # numba's own type counts the argument that it adds

Matrix = NDArray[np.float32]
Vector = NDArray[np.float32]
Ids = NDArray[np.int64]
Register = Any


def read_forward(
    projected: Matrix, bias: Vector, places: Ids, lengths: Ids, by_state: Matrix
) -> list[Matrix]:
    """Return the states [B·L, H], the bent gates [n·L·R, 4·H] and the cells [n·(L + 1)·R, H].

    ``projected`` [U, 4·H] is what each input is mapped to, without its ``bias``, ``places`` [B, L]
    say which of them comes at each step, -1 for none behind the ``lengths`` [B]. ``by_state``
    [4·H, H] maps a state to the next gates. States are 0 where nothing comes; gates and cells are
    not written there. These are of n groups of R rows in the order in which they are computed, so
    that they are read as they lie; cells begin with what was before step 0.

    >>> projected = np.zeros((1, 4 * WIDTH), np.float32)
    >>> projected[0, 2 * WIDTH : 3 * WIDTH] = 9
    >>> bias, weights = np.zeros(4 * WIDTH, np.float32), np.zeros((4 * WIDTH, WIDTH), np.float32)
    >>> read = read_forward(projected, bias, np.array([[0]]), np.array([1]), weights)
    >>> read[1][0, ::WIDTH].round(3).tolist(), round(float(read[0][0, 0]), 3)
    ([0.5, 0.5, 1.0, 0.5], 0.231)
    """
    (rows, length), size = places.shape, by_state.shape[1]
    groups = -(-rows // _ROWS)
    # By torch, whose memory begins where a cache line does: a register then is in one line.
    states = torch.empty(rows * length, size).numpy()
    gates = torch.empty(groups * length * _ROWS, 4 * size).numpy()
    cells = torch.empty(groups * (length + 1) * _ROWS, size).numpy()
    panels = panels_of(by_state.T)
    batch = (projected, bias[None], places, lengths, panels, gates, cells, states)
    blocks = num_blocks(groups)
    if blocks == 1:
        _forward(0, groups, *batch)
    else:
        _forward_in_blocks(blocks, groups, *batch)
    return [states, gates, cells]


@njit(cache=True, nogil=True)
def _forward(
    start: int, stop: int, projected: Matrix, bias: Matrix, places: Ids, lengths: Ids,
    panels: Matrix, gates: Matrix, cells: Matrix, states: Matrix,
) -> None:  # fmt: skip
    size = states.shape[1]
    own, room = room_for(_ROWS, size), room_for(_ROWS, 4 * size)
    _forward_rows(
        start, stop, projected, bias, places, lengths, panels, gates, cells, states, own, room
    )


@njit(cache=True, nogil=True)
def _forward_rows(
    start: int, stop: int, projected: Matrix, bias: Matrix, places: Ids, lengths: Ids,
    panels: Matrix, gates: Matrix, cells: Matrix, states: Matrix, own: Matrix, room: Matrix,
) -> None:  # fmt: skip
    length, size = places.shape[1], states.shape[1]
    projected, bias, places, lengths = unowned(projected, bias, places, lengths)
    panels, gates, cells, states = unowned(panels, gates, cells, states)
    own, room = unowned(own, room)
    for group in range(start, stop):
        first, last = group * _ROWS, min((group + 1) * _ROWS, len(places))
        before = group * (length + 1) * _ROWS
        own[:], room[:], cells[before : before + _ROWS] = 0, 0, 0
        steps = lengths[first:last].max()
        for step in range(steps):
            if step:
                for c in range(len(panels)):
                    for r in range(0, last - first, HEIGHT):
                        into = room[r : r + HEIGHT, c * WIDTH : (c + 1) * WIDTH]
                        _multiply(own[r : r + HEIGHT], panels[c], into, False)
            gate, cell = (group * length + step) * _ROWS, before + step * _ROWS
            for row in range(first, last):
                at, place, state = row - first, places[row, step], row * length + step
                if row + _AHEAD < last:
                    ahead = at + _AHEAD
                    prefetch_row(projected, places[row + _AHEAD, step], 4 * size)
                    prefetch_row(states, state + _AHEAD * length, size)
                    prefetch_row(gates, gate + ahead, 4 * size)
                    prefetch_row(cells, cell + _ROWS + ahead, size)
                if place < 0:
                    clear(own, at)
                    clear(states, state)
                    continue
                _bend(
                    room, at, projected, place, bias, gates, gate + at, cells, cell + at,
                    states, state, own,
                )  # fmt: skip
        for row in range(first, last):
            for step in range(steps, length):
                clear(states, row * length + step)


@njit(inline="always")
def _bend(
    room: Matrix, at: int, projected: Matrix, place: int, bias: Matrix, gates: Matrix, gate: int,
    cells: Matrix, before: int, states: Matrix, state: int, own: Matrix,
) -> None:  # fmt: skip
    """Write gates, cells and state of a step of one row."""
    size = own.shape[1]
    for i in range(0, size, LANES):
        f, g, o = i + size, i + 2 * size, i + 3 * size
        by_i = sigmoid(_sum(room, at, projected, place, bias, i))
        by_f = sigmoid(_sum(room, at, projected, place, bias, f))
        by_g = tanh(_sum(room, at, projected, place, bias, g))
        by_o = sigmoid(_sum(room, at, projected, place, bias, o))
        cell = multiply_add(by_f, load(cells, before, i), multiply(by_i, by_g))
        read = multiply(by_o, tanh(cell))
        store(gates, gate, i, by_i)
        store(gates, gate, f, by_f)
        store(gates, gate, g, by_g)
        store(gates, gate, o, by_o)
        store(cells, before + _ROWS, i, cell)
        store(states, state, i, read)
        store(own, at, i, read)


@njit(inline="always")
def _sum(
    room: Matrix, at: int, projected: Matrix, place: int, bias: Matrix, column: int
) -> Register:
    """Return a register of gates before they are bent: by the state, by the input, and the bias."""
    by_input = add(load(projected, place, column), load(bias, 0, column))
    return add(load(room, at, column), by_input)


@njit(cache=True, nogil=True, parallel=True)
def _forward_in_blocks(blocks: int, groups: int, *batch: Any) -> None:
    for block in prange(blocks):
        _forward(groups * block // blocks, groups * (block + 1) // blocks, *batch)


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

    All else is as ``read_forward`` takes and returns it.
    """
    size, groups = states.shape[1], -(-len(places) // _ROWS)
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
    before, by_gates = room_for(_ROWS, size), room_for(_ROWS, 4 * size)
    by_later, by_cells = room_for(_ROWS, size), room_for(_ROWS, size)
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
        first, last = group * _ROWS, min((group + 1) * _ROWS, len(places))
        by_later[:], by_cells[:], by_gates[:], before[:] = 0, 0, 0, 0
        for step in range(lengths[first:last].max() - 1, -1, -1):
            gate, cell = (group * length + step) * _ROWS, (group * (length + 1) + step) * _ROWS
            for row in range(first, last):
                at, place, state = row - first, places[row, step], row * length + step
                if row + _AHEAD < last:
                    ahead = at + _AHEAD
                    prefetch_row(by_projected, places[row + _AHEAD, step], 4 * size)
                    prefetch_row(by_states, state + _AHEAD * length, size)
                    prefetch_row(states, state + _AHEAD * length - 1, size)
                    prefetch_row(gates, gate + ahead, 4 * size)
                    prefetch_row(cells, cell + _ROWS + ahead, size)
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
        bent = tanh(load(cells, cell + _ROWS, i))
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
