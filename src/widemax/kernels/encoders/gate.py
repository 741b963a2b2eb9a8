"""What is between the products of a gate over two halves: curves and sums, a register at a time.

With pre-activations z and a, p = tanh(z), g = sigmoid(a) and hidden = s + g ⊙ (p − s). All rows are
whole registers.
"""

from __future__ import annotations

import numpy as np

from widemax.kernels.compiling import njit
from widemax.kernels.curves import sigmoid, tanh
from widemax.kernels.encoders.rows import Matrix
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


@njit(cache=True, nogil=True)
def bend_half(short: Matrix, mapped: Matrix, bias: Matrix, halves: Matrix) -> None:
    """Write s [B, D] and tanh(mapped + bias), side by side, to ``halves`` [B, 2·D].

    >>> zeros, halves = np.zeros((1, LANES), np.float32), np.empty((1, 2 * LANES), np.float32)
    >>> bend_half(zeros + 2, zeros + 9, zeros, halves)
    >>> halves[0, [0, LANES]].round(3).tolist()
    [2.0, 1.0]
    """
    size = short.shape[1]
    for row in range(len(short)):
        for j in range(0, size, LANES):
            store(halves, row, j, load(short, row, j))
            store(halves, row, size + j, tanh(add(load(mapped, row, j), load(bias, 0, j))))


@njit(cache=True, nogil=True)
def mix_halves(halves: Matrix, asked: Matrix, gates: Matrix, hidden: Matrix) -> None:
    """Write sigmoid(gates + asked) over ``gates`` [B, D], and the halves mixed by it.

    ``asked`` is [B, D], or [1, D] for all rows.

    >>> halves = np.array([[0] * LANES + [1] * LANES], np.float32)
    >>> gates, hidden = np.zeros((1, LANES), np.float32), np.empty((1, LANES), np.float32)
    >>> mix_halves(halves, np.zeros((1, LANES), np.float32), gates, hidden)
    >>> float(gates[0, 0]), float(hidden[0, 0])
    (0.5, 0.5)
    """
    size = hidden.shape[1]
    for row in range(len(hidden)):
        of = row if len(asked) > 1 else 0
        for j in range(0, size, LANES):
            gate = sigmoid(add(load(gates, row, j), load(asked, of, j)))
            short = load(halves, row, j)
            store(gates, row, j, gate)
            further = subtract(load(halves, row, size + j), short)
            store(hidden, row, j, multiply_add(gate, further, short))


@njit(cache=True, nogil=True)
def unbend_gates(grad: Matrix, halves: Matrix, gates: Matrix, by_gates: Matrix) -> None:
    """Write the gradient of the gates before they were bent from that of the hidden, [B, D].

    >>> halves = np.array([[0] * LANES + [1] * LANES], np.float32)
    >>> one, found = np.ones((1, LANES), np.float32), np.empty((1, LANES), np.float32)
    >>> unbend_gates(one, halves, one / 2, found)
    >>> float(found[0, 0])
    0.25
    """
    size, one = grad.shape[1], spread(_f(1))
    for row in range(len(grad)):
        for j in range(0, size, LANES):
            gate = load(gates, row, j)
            slope = multiply(gate, subtract(one, gate))
            further = subtract(load(halves, row, size + j), load(halves, row, j))
            store(by_gates, row, j, multiply(multiply(load(grad, row, j), further), slope))


@njit(cache=True, nogil=True)
def unbend_halves(
    grad: Matrix, halves: Matrix, gates: Matrix, by_halves: Matrix, by_short: Matrix,
    by_mapped: Matrix,
) -> None:  # fmt: skip
    """Write the gradients of s and, before it was bent, of the other half.

    ``by_halves`` [B, 2·D] is what comes to both through the gates.

    >>> halves, one = np.zeros((1, 2 * LANES), np.float32), np.ones((1, LANES), np.float32)
    >>> by_short, by_mapped = np.empty((1, LANES), np.float32), np.empty((1, LANES), np.float32)
    >>> unbend_halves(one, halves, one / 4, halves + 1, by_short, by_mapped)
    >>> float(by_short[0, 0]), float(by_mapped[0, 0])
    (1.75, 1.25)
    """
    size, one = grad.shape[1], spread(_f(1))
    for row in range(len(grad)):
        for j in range(0, size, LANES):
            gate, out = load(gates, row, j), load(grad, row, j)
            by_long = multiply_add(gate, out, load(by_halves, row, size + j))
            long = load(halves, row, size + j)
            short = multiply_add(subtract(one, gate), out, load(by_halves, row, j))
            store(by_short, row, j, short)
            store(by_mapped, row, j, multiply(by_long, subtract(one, multiply(long, long))))
