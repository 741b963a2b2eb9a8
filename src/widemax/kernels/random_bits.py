"""Random bits inside a kernel: the state is one number, so that a seed determines everything."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from widemax.kernels.compiling import njit

_u = np.uint64
_MASK = 2**64 - 1


@njit(inline="always")
def next_random(state: NDArray[np.uint64]) -> np.uint64:
    """Return the next 64 bits of SplitMix64 (Steele, Lea & Flood 2014)."""
    state[0] += _u(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> _u(30))) * _u(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> _u(27))) * _u(0x94D049BB133111EB)
    bits: np.uint64 = z ^ (z >> _u(31))
    return bits


@njit(inline="always")
def below(bits: np.uint64, limit: int) -> np.int64:
    """Return a whole number below ``limit`` < 2^32 from the upper half of 64 random bits."""
    return np.int64(((bits >> _u(32)) * _u(limit)) >> _u(32))


def split_mix_reference(state: int) -> Iterator[int]:
    """Yield what ``next_random`` returns from a state on, in plain Python."""
    while True:
        state = (state + 0x9E3779B97F4A7C15) & _MASK
        mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        yield mixed ^ (mixed >> 31)
