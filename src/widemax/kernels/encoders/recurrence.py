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
from widemax.kernels.encoders.register_rows import clear, room_for
from widemax.kernels.models.prefetch import prefetch_row
from widemax.kernels.products import panels_of
from widemax.kernels.registers import (
    LANES,
    add,
    load,
    multiply,
    multiply_add,
    store,
    unowned,
)
from widemax.kernels.threads import num_blocks
from widemax.kernels.tiles import HEIGHT, WIDTH, multiply_tile

_f = np.float32
ROWS = 64
"""Go through the steps together: what they hold stays in the nearest caches."""
AHEAD = 2
"""Rows: so long before its turn what is read and written of a row is asked for."""

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
    groups = -(-rows // ROWS)
    # By torch, whose memory begins where a cache line does: a register then is in one line.
    states = torch.empty(rows * length, size).numpy()
    gates = torch.empty(groups * length * ROWS, 4 * size).numpy()
    cells = torch.empty(groups * (length + 1) * ROWS, size).numpy()
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
    own, room = room_for(ROWS, size), room_for(ROWS, 4 * size)
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
        first, last = group * ROWS, min((group + 1) * ROWS, len(places))
        before = group * (length + 1) * ROWS
        own[:], room[:], cells[before : before + ROWS] = 0, 0, 0
        steps = lengths[first:last].max()
        for step in range(steps):
            if step:
                for c in range(len(panels)):
                    for r in range(0, last - first, HEIGHT):
                        into = room[r : r + HEIGHT, c * WIDTH : (c + 1) * WIDTH]
                        _multiply(own[r : r + HEIGHT], panels[c], into, False)
            gate, cell = (group * length + step) * ROWS, before + step * ROWS
            for row in range(first, last):
                at, place, state = row - first, places[row, step], row * length + step
                if row + AHEAD < last:
                    ahead = at + AHEAD
                    prefetch_row(projected, places[row + AHEAD, step], 4 * size)
                    prefetch_row(states, state + AHEAD * length, size)
                    prefetch_row(gates, gate + ahead, 4 * size)
                    prefetch_row(cells, cell + ROWS + ahead, size)
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
        store(cells, before + ROWS, i, cell)
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
