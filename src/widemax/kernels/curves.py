"""Curves of whole registers: exponential, sigmoid and tanh, each with an error below 3e-7."""

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
    two_to,
)

_f = np.float32

Register = Any


@njit(inline="always")
def sigmoid(x: Register) -> Register:
    """Return 1 / (1 + e^−x)."""
    half = spread(_f(0.5))
    return multiply_add(tanh(multiply(x, half)), half, half)


@njit(inline="always")
def tanh(x: Register) -> Register:
    """Return (e^x − e^−x) / (e^x + e^−x), by the quotient of two polynomials that Eigen has."""
    x = clamp(x, spread(_f(-7.90531110763549805)), spread(_f(7.90531110763549805)))
    square = multiply(x, x)
    p = spread(_f(-2.76076847742355e-16))
    p = multiply_add(p, square, spread(_f(2.00018790482477e-13)))
    p = multiply_add(p, square, spread(_f(-8.60467152213735e-11)))
    p = multiply_add(p, square, spread(_f(5.12229709037114e-08)))
    p = multiply_add(p, square, spread(_f(1.48572235717979e-05)))
    p = multiply_add(p, square, spread(_f(6.37261928875436e-04)))
    p = multiply_add(p, square, spread(_f(4.89352455891786e-03)))
    q = spread(_f(1.19825839466702e-06))
    q = multiply_add(q, square, spread(_f(1.18534705686654e-04)))
    q = multiply_add(q, square, spread(_f(2.26843463243900e-03)))
    q = multiply_add(q, square, spread(_f(4.89352518554385e-03)))
    return divide(multiply(x, p), q)


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
