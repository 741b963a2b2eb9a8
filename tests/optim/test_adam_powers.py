"""Adam's corrections of rows that were updated any number of times."""

from __future__ import annotations

import numpy as np
import pytest

from widemax.kernels.optim import rows as kernel


@pytest.mark.parametrize("count", [0, 1, 62, 63, 64, 4_094, 4_095, 4_096, 262_142, 262_143, 10**7])
@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.0, 0.9999999)])
def test_a_row_is_corrected_by_the_powers_of_its_own_count(count, betas):
    weight, means, squares = np.ones((1, 2)), np.full((1, 2), 0.1), np.full((1, 2), 0.2)
    steps, gradient = np.array([count]), np.array([[3.0, -4.0]])
    mean = betas[0] * 0.1 + (1 - betas[0]) * gradient
    square = betas[1] * 0.2 + (1 - betas[1]) * gradient**2
    rate = 0.5 / (1 - betas[0] ** (count + 1))
    root = np.sqrt(square / (1 - betas[1] ** (count + 1)))
    one = np.array([0])
    kernel.adam(
        weight, one, one, gradient, np.empty(2), np.empty(2), means, squares, steps, 0.5, *betas,
        1e-8, 0.0, 1.0,
    )  # fmt: skip
    assert np.allclose(weight, 1 - rate * mean / (root + 1e-8), rtol=1e-12, atol=1e-12)
    assert steps.tolist() == [count + 1]
