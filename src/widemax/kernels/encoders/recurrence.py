"""One step of an LSTM, and back, around the products with its weights.

Gates are [4·H] in torch's order: i, f, g, o, before or after what bends them (g by tanh, the others
by a sigmoid). A cell c' = f·c + i·g has the state h = o·tanh(c'). H fills whole registers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from widemax.kernels.compiling import njit
from widemax.kernels.curves import sigmoid, tanh
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

_f = np.float32

Matrix = NDArray[np.float32]
Ids = NDArray[np.int64]
Register = Any


@njit(cache=True, nogil=True)
def step_forward(
    gates: Matrix,
    projected: Matrix,
    places: Ids,
    cells: Matrix,
    states: Matrix,
    step: int,
    count: int,
) -> None:
    """Bend the gates of a step in place, and write the cells and states after it.

    ``gates`` [B, L, 4·H] hold what the states before are mapped to; to them comes the row of
    ``projected`` [U, 4·H] that ``places`` [B, L] name. States are [B, L, H]; cells [B, L + 1, H]
    begin with what was before step 0. It is done for the first ``count`` rows; one whose place is
    -1 gets the state 0.

    >>> gates, cells = np.zeros((1, 1, 4 * LANES), np.float32), np.zeros((1, 2, LANES), np.float32)
    >>> projected, states = np.zeros((1, 4 * LANES), np.float32), np.zeros_like(cells[:, :1])
    >>> projected[0, 2 * LANES : 3 * LANES] = 9
    >>> step_forward(gates, projected, np.array([[0]]), cells, states, 0, 1)
    >>> gates[0, 0, ::LANES].round(3).tolist(), round(float(states[0, 0, 0]), 3)
    ([0.5, 0.5, 1.0, 0.5], 0.231)
    """
    size = states.shape[2]
    for row in range(count):
        place = places[row, step]
        if place < 0:
            states[row, step] = 0
            continue
        own, cell, state = gates[row], cells[row], states[row]
        for i in range(0, size, LANES):
            f, g, o = i + size, i + 2 * size, i + 3 * size
            by_i = sigmoid(add(load(own, step, i), load(projected, place, i)))
            by_f = sigmoid(add(load(own, step, f), load(projected, place, f)))
            by_g = tanh(add(load(own, step, g), load(projected, place, g)))
            by_o = sigmoid(add(load(own, step, o), load(projected, place, o)))
            after = multiply_add(by_f, load(cell, step, i), multiply(by_i, by_g))
            store(own, step, i, by_i)
            store(own, step, f, by_f)
            store(own, step, g, by_g)
            store(own, step, o, by_o)
            store(cell, step + 1, i, after)
            store(state, step, i, multiply(by_o, tanh(after)))


@njit(cache=True, nogil=True)
def step_back(
    by_states: Matrix,
    by_later: Matrix,
    by_cells: Matrix,
    gates: Matrix,
    cells: Matrix,
    places: Ids,
    step: int,
    count: int,
    by_gates: Matrix,
    by_projected: Matrix,
) -> None:
    """Write the gradient of the gates before they were bent, and add it to that of ``projected``.

    It comes from the gradients of the states [B, L, H] and, of the step after, those of its states
    before and its cells, [B, H]; ``by_cells`` becomes that of the cells before. ``gates`` are as
    ``step_forward`` leaves them. Rows whose place is -1 get 0 and leave theirs as they are.
    """
    size = cells.shape[2]
    one = spread(_f(1))
    for row in range(count):
        place = places[row, step]
        if place < 0:
            by_gates[row] = 0
            continue
        own, cell, by_state = gates[row], cells[row], by_states[row]
        for i in range(0, size, LANES):
            f, g, o = i + size, i + 2 * size, i + 3 * size
            by_i, by_f = load(own, step, i), load(own, step, f)
            by_g, by_o = load(own, step, g), load(own, step, o)
            bent = tanh(load(cell, step + 1, i))
            grad = add(load(by_state, step, i), load(by_later, row, i))
            through = multiply(multiply(grad, by_o), subtract(one, multiply(bent, bent)))
            of_cell = add(load(by_cells, row, i), through)
            store(by_cells, row, i, multiply(of_cell, by_f))
            of_i = multiply(multiply(of_cell, by_g), multiply(by_i, subtract(one, by_i)))
            before = load(cell, step, i)
            of_f = multiply(multiply(of_cell, before), multiply(by_f, subtract(one, by_f)))
            of_g = multiply(multiply(of_cell, by_i), subtract(one, multiply(by_g, by_g)))
            of_o = multiply(multiply(grad, bent), multiply(by_o, subtract(one, by_o)))
            _write(by_gates, row, i, of_i, by_projected, place)
            _write(by_gates, row, f, of_f, by_projected, place)
            _write(by_gates, row, g, of_g, by_projected, place)
            _write(by_gates, row, o, of_o, by_projected, place)


@njit(inline="always")
def _write(
    target: Matrix, row: int, column: int, value: Register, totals: Matrix, place: int
) -> None:
    store(target, row, column, value)
    store(totals, place, column, add(load(totals, place, column), value))
