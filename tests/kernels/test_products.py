"""Whole products by tiles, against NumPy's."""

import numpy as np
import pytest
import torch

from widemax.kernels.products import add_product, product, product_over_rows
from widemax.kernels.tiles import DEPTH_STEP, HEIGHT, WIDTH


@pytest.fixture(params=[1, 2])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def numbers(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("rows", [0, 1, HEIGHT, 5 * HEIGHT + 3, 40 * HEIGHT + 1])
@pytest.mark.parametrize("depth", [DEPTH_STEP, 3 * DEPTH_STEP, 64])
def test_rows_of_all_numbers_are_multiplied(rows, depth, threads):
    left, right = numbers(rows, depth), numbers(depth, 2 * WIDTH)
    expected = left.astype(np.float64) @ right
    np.testing.assert_allclose(product(left, right), expected, rtol=1e-5, atol=1e-4)
    turned = np.ascontiguousarray(right.T).T
    np.testing.assert_array_equal(product(left, turned), product(left, right))


@pytest.mark.parametrize("depth", [1, DEPTH_STEP, 63, 64, 200, 1003])
def test_products_over_rows_of_all_numbers(depth, threads):
    left, right = numbers(depth, 3 * HEIGHT), numbers(depth, 2 * WIDTH)
    expected = left.T.astype(np.float64) @ right
    np.testing.assert_allclose(product_over_rows(left, right), expected, rtol=1e-5, atol=2e-4)


@pytest.mark.parametrize("rows", [0, 1, HEIGHT, 40 * HEIGHT + 1])
def test_products_are_added_to_rows_that_stand_apart(rows, threads):
    left, right, before = numbers(rows, 64), numbers(64, 2 * WIDTH), numbers(rows, 3 * WIDTH)
    out = before.copy()
    add_product(left, right, out[:, : 2 * WIDTH])
    expected = before.astype(np.float64)
    expected[:, : 2 * WIDTH] += left.astype(np.float64) @ right
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-4)
