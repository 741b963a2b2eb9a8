"""An exponential that vectorises: the loop around it becomes one over whole registers."""

from __future__ import annotations

import numpy as np

from widemax.kernels.compiling import njit

_f = np.float32


@njit(inline="always")
def exp(x: np.float32) -> np.float32:
    """Return e^x for −87 ≤ x ≤ 88 with an error below 2e-7 of the result."""
    # 2^n · e^r with |r| ≤ log(2)/2 and e^r by a polynomial (Cephes): a call of expf would keep the
    # loop around it scalar.
    n = np.floor(x * _f(1.44269504088896341) + _f(0.5))
    r = x - n * _f(0.693359375)
    r = r + n * _f(2.12194440e-4)
    p = _f(1.9875691500e-4)
    p = p * r + _f(1.3981999507e-3)
    p = p * r + _f(8.3334519073e-3)
    p = p * r + _f(4.1665795894e-2)
    p = p * r + _f(1.6666665459e-1)
    p = p * r + _f(5.0000001201e-1)
    p = p * r * r + r + _f(1.0)
    bits = (np.int32(n) + np.int32(127)) << np.int32(23)
    power: np.float32 = p * np.int32(bits).view(np.float32)
    return power
