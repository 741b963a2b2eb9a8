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
from widemax.kernels.encoders.register_rows import room_for
from widemax.kernels.registers import (
    LANES,
    add,
    load,
    multiply,
    multiply_add,
    spread,
    store,
    subtract,
)
from widemax.kernels.threads import num_blocks
from widemax.kernels.tiles import HEIGHT, WIDTH, multiply_tile

_f = np.float32
_ROWS = 32  # that go through the steps together: what they hold stays in the nearest caches

_multiply: Any = multiply_tile  # numba's own type counts the argument that it adds

Matrix = NDArray[np.float32]
Ids = NDArray[np.int64]
Register = Any


def read_forward(projected: Matrix, places: Ids, lengths: Ids, by_state: Matrix) -> list[Matrix]:
    """Return the states [B, L, H], the bent gates [n, L, R, 4·H] and the cells [n, L + 1, R, H].

    ``projected`` [U, 4·H] is what each input is mapped to, biases included, ``places`` [B, L] say
    which of them comes at each step, -1 for none behind the ``lengths`` [B]. ``by_state`` [4·H, H]
    maps a state to the next gates. States are 0 where nothing comes; gates and cells are not
    written there. These are of n groups of R rows in the order in which they are computed, so that
    they are read as they lie; cells begin with what was before step 0.

    >>> projected = np.zeros((1, 4 * WIDTH), np.float32)
    >>> projected[0, 2 * WIDTH : 3 * WIDTH] = 9
    >>> weights = np.zeros((4 * WIDTH, WIDTH), np.float32)
    >>> states, gates, _ = read_forward(projected, np.array([[0]]), np.array([1]), weights)
    >>> gates[0, 0, 0, ::WIDTH].round(3).tolist(), round(float(states[0, 0, 0]), 3)
    ([0.5, 0.5, 1.0, 0.5], 0.231)
    """
    (rows, length), size = places.shape, by_state.shape[1]
    groups = -(-rows // _ROWS)
    panels = np.ascontiguousarray(by_state.reshape(-1, WIDTH, size).transpose(0, 2, 1))
    # By torch, whose memory begins where a cache line does: a register then is in one line.
    states = torch.zeros(rows, length, size).numpy()
    gates = torch.empty(groups, length, _ROWS, 4 * size).numpy()
    cells = torch.empty(groups, length + 1, _ROWS, size).numpy()
    batch = (projected, places, lengths, panels, gates, cells, states)
    blocks = num_blocks(groups)
    if blocks == 1:
        _forward(0, groups, *batch)
    else:
        _forward_in_blocks(blocks, groups, *batch)
    return [states, gates, cells]


@njit(cache=True, nogil=True)
def _forward(
    start: int, stop: int, projected: Matrix, places: Ids, lengths: Ids, panels: Matrix,
    gates: Matrix, cells: Matrix, states: Matrix,
) -> None:  # fmt: skip
    size = states.shape[2]
    own = room_for(_ROWS, size)
    room = room_for(_ROWS, 4 * size)
    for group in range(start, stop):
        first, last = group * _ROWS, min((group + 1) * _ROWS, len(states))
        own[:], room[:], cells[group, 0] = 0, 0, 0
        for step in range(lengths[first:last].max()):
            if step:
                for c in range(len(panels)):
                    for r in range(0, _ROWS, HEIGHT):
                        into = room[r : r + HEIGHT, c * WIDTH : (c + 1) * WIDTH]
                        _multiply(own[r : r + HEIGHT], panels[c], into, False)
            before, after = cells[group, step], cells[group, step + 1]
            for row in range(first, last):
                at, place = row - first, places[row, step]
                if place < 0:
                    own[at] = 0
                    continue
                into = gates[group, step]
                _bend(room, at, projected, place, into, before, after, states[row], step, own)


@njit(inline="always")
def _bend(
    room: Matrix, at: int, projected: Matrix, place: int, gates: Matrix, before: Matrix,
    after: Matrix, states: Matrix, step: int, own: Matrix,
) -> None:  # fmt: skip
    """Write gates, cells and state of a step of one row."""
    size = own.shape[1]
    for i in range(0, size, LANES):
        f, g, o = i + size, i + 2 * size, i + 3 * size
        by_i = sigmoid(add(load(room, at, i), load(projected, place, i)))
        by_f = sigmoid(add(load(room, at, f), load(projected, place, f)))
        by_g = tanh(add(load(room, at, g), load(projected, place, g)))
        by_o = sigmoid(add(load(room, at, o), load(projected, place, o)))
        cell = multiply_add(by_f, load(before, at, i), multiply(by_i, by_g))
        state = multiply(by_o, tanh(cell))
        store(gates, at, i, by_i)
        store(gates, at, f, by_f)
        store(gates, at, g, by_g)
        store(gates, at, o, by_o)
        store(after, at, i, cell)
        store(states, step, i, state)
        store(own, at, i, state)


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
    groups, size = len(gates), states.shape[2]
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
    size = states.shape[2]
    before = room_for(_ROWS, size)
    by_gates = room_for(_ROWS, 4 * size)
    by_later = room_for(_ROWS, size)
    by_cells = room_for(_ROWS, size)
    for group in range(start, stop):
        first, last = group * _ROWS, min((group + 1) * _ROWS, len(states))
        by_later[:], by_cells[:], by_gates[:], before[:] = 0, 0, 0, 0
        for step in range(lengths[first:last].max() - 1, -1, -1):
            earlier, later = cells[group, step], cells[group, step + 1]
            for row in range(first, last):
                at, place = row - first, places[row, step]
                if place < 0:  # behind the last step of this row, where all is 0 still
                    continue
                if step:
                    for j in range(0, size, LANES):
                        store(before, at, j, load(states[row], step - 1, j))
                _unbend(
                    by_states[row], step, by_later, by_cells, gates[group, step], earlier, later,
                    at, by_gates, by_projected, place,
                )  # fmt: skip
            if not step:
                continue
            for c in range(0, size, WIDTH):
                for r in range(0, _ROWS, HEIGHT):
                    into = by_later[r : r + HEIGHT, c : c + WIDTH]
                    _multiply(by_gates[r : r + HEIGHT], by_state[:, c : c + WIDTH], into, False)
                for r in range(0, 4 * size, HEIGHT):
                    into = by_weight[r : r + HEIGHT, c : c + WIDTH]
                    _multiply(by_gates.T[r : r + HEIGHT], before[:, c : c + WIDTH], into, True)


@njit(inline="always")
def _unbend(
    by_states: Matrix, step: int, by_later: Matrix, by_cells: Matrix, gates: Matrix,
    earlier: Matrix, later: Matrix, at: int, by_gates: Matrix, by_projected: Matrix, place: int,
) -> None:  # fmt: skip
    """Write the gradient of a row's gates before they were bent, and add it to its input's.

    It comes from that of the state and, of the step after, those of the state and of the cell;
    ``by_cells`` becomes that of the cell before.
    """
    size = by_cells.shape[1]
    one = spread(_f(1))
    for i in range(0, size, LANES):
        f, g, o = i + size, i + 2 * size, i + 3 * size
        by_i, by_f = load(gates, at, i), load(gates, at, f)
        by_g, by_o = load(gates, at, g), load(gates, at, o)
        bent = tanh(load(later, at, i))
        grad = add(load(by_states, step, i), load(by_later, at, i))
        through = multiply(multiply(grad, by_o), subtract(one, multiply(bent, bent)))
        of_cell = add(load(by_cells, at, i), through)
        store(by_cells, at, i, multiply(of_cell, by_f))
        of_i = multiply(multiply(of_cell, by_g), multiply(by_i, subtract(one, by_i)))
        of_f = multiply(
            multiply(of_cell, load(earlier, at, i)), multiply(by_f, subtract(one, by_f))
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
