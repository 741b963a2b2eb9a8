"""Products by tiles against NumPy's in float64."""

from __future__ import annotations

import numpy as np
import pytest

from widemax.kernels.compiling import njit
from widemax.kernels.tiles import DEPTH_STEP, HEIGHT, WIDTH, multiply_tile


@njit()
def _multiply(left, right, out, add):
    multiply_tile(left, right, out, add)


def _numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


@pytest.mark.parametrize("depth", [DEPTH_STEP, 5 * DEPTH_STEP, 128])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("add", [False, True])
def test_a_tile_is_a_product(depth, transposed, add):
    left = _numbers(depth, HEIGHT + 3)[:, 2:-1].T if transposed else _numbers(HEIGHT, depth)
    right = _numbers(depth, 2 * WIDTH)[:, 1 : WIDTH + 1]
    around = _numbers(HEIGHT + 2, WIDTH + 2)
    before = around.copy()
    _multiply(left, right, around[1:-1, 1:-1], add)
    expected = before.astype(np.float64)
    inside = expected[1:-1, 1:-1]
    inside[:] = left.astype(np.float64) @ right + (inside if add else 0)
    np.testing.assert_allclose(around, expected, rtol=1e-5, atol=1e-5 * depth**0.5)
    inside[:] = around[1:-1, 1:-1]
    np.testing.assert_array_equal(around, expected.astype(np.float32))  # nothing beside the tile
