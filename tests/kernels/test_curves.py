"""Curves of whole registers, against NumPy's in float64."""

import numpy as np

from widemax.kernels.compiling import njit
from widemax.kernels.curves import exp, sigmoid, tanh
from widemax.kernels.registers import LANES, load, store


@njit()
def _bend(numbers, found):
    for j in range(0, numbers.shape[1], LANES):
        x = load(numbers, 0, j)
        store(found, 0, j, tanh(x))
        store(found, 1, j, sigmoid(x))
        store(found, 2, j, exp(x))


def bent(numbers):
    numbers = np.asarray(numbers, np.float32)
    table = np.resize(numbers, (1, -(-len(numbers) // LANES) * LANES))
    found = np.empty((3, table.shape[1]), np.float32)
    _bend(table, found)
    return found[:, : len(numbers)]


def test_curves_are_as_near_as_they_say():
    numbers = np.concatenate([np.linspace(-30, 30, 100_001), [0, 1e-30, -1e-6, 79, -79]])
    numbers = numbers.astype(np.float32)
    by_tanh, by_sigmoid, by_exp = bent(numbers)
    exact = numbers.astype(np.float64)
    np.testing.assert_allclose(by_tanh, np.tanh(exact), rtol=3e-7, atol=0)
    np.testing.assert_allclose(by_sigmoid, 1 / (1 + np.exp(-exact)), rtol=0, atol=3e-7)
    np.testing.assert_allclose(by_exp, np.exp(exact), rtol=3e-7, atol=0)


def test_curves_of_what_is_not_finite():
    by_tanh, by_sigmoid, _ = bent([np.nan, np.inf, -np.inf])
    assert np.isnan([by_tanh[0], by_sigmoid[0]]).all()
    np.testing.assert_allclose(by_tanh[1:], [1, -1], rtol=3e-7)
    np.testing.assert_allclose(by_sigmoid[1:], [1, 0], atol=3e-7)
