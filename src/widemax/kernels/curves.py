"""Curves of whole registers: exponential, sigmoid and tanh, each with an error near 1e-7."""

from __future__ import annotations

from typing import Any

import numpy as np

from widemax.kernels.compiling import njit
from widemax.kernels.registers import (
    add,
    clamp,
    divide,
    multiply,
    multiply_add,
    round_down,
    spread,
    subtract,
    two_to,
)

_f = np.float32

Register = Any


@njit(inline="always")
def sigmoid(x: Register) -> Register:
    """Return 1 / (1 + e^−x)."""
    one = spread(_f(1))
    return divide(one, add(one, exp(multiply(x, spread(_f(-1))))))


@njit(inline="always")
def tanh(x: Register) -> Register:
    """Return (e^x − e^−x) / (e^x + e^−x)."""
    one = spread(_f(1))
    power = exp(multiply(x, spread(_f(-2))))
    return divide(subtract(one, power), add(one, power))


@njit(inline="always")
def exp(x: Register) -> Register:
    """Return e^x, as ``widemax.kernels.exponential`` does; beyond ±80 as at the limit."""
    x = clamp(x, spread(_f(-80)), spread(_f(80)))
    n = round_down(multiply_add(x, spread(_f(1.44269504088896341)), spread(_f(0.5))))
    r = multiply_add(n, spread(_f(-0.693359375)), x)
    r = multiply_add(n, spread(_f(2.12194440e-4)), r)
    p = spread(_f(1.9875691500e-4))
    p = multiply_add(p, r, spread(_f(1.3981999507e-3)))
    p = multiply_add(p, r, spread(_f(8.3334519073e-3)))
    p = multiply_add(p, r, spread(_f(4.1665795894e-2)))
    p = multiply_add(p, r, spread(_f(1.6666665459e-1)))
    p = multiply_add(p, r, spread(_f(5.0000001201e-1)))
    p = multiply_add(multiply(p, r), r, add(r, spread(_f(1))))
    return multiply(p, two_to(n))
