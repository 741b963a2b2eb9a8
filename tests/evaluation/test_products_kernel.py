"""Scores by tiles against NumPy, and against themselves."""

import numpy as np
import pytest

from widemax.kernels.evaluation.products import Products
from widemax.kernels.tiles import HEIGHT, WIDTH


@pytest.mark.parametrize("queries", [0, 1, HEIGHT, 2 * HEIGHT + 3])
@pytest.mark.parametrize("dimension", [1, 100, 101])
def test_scores_are_products_of_any_shape(queries, dimension):
    random = np.random.default_rng(0)
    x = random.standard_normal((queries, dimension), np.float32)
    products = Products(x, 3 * WIDTH - 1)
    for classes in (3 * WIDTH - 1, 0, 1, 2 * WIDTH):  # what was there before does not show
        y = random.standard_normal((classes, dimension), np.float32)
        scores = products.with_classes(y)
        assert scores.flags.c_contiguous
        assert scores.shape == (queries, classes)
        expected = x.astype(np.float64) @ y.T.astype(np.float64)
        np.testing.assert_allclose(scores, expected, atol=1e-4)


def test_classes_alike_score_alike_wherever_they_stand():
    random = np.random.default_rng(0)
    x = random.standard_normal((HEIGHT + 1, 37), np.float32)
    y = random.standard_normal((2 * WIDTH + 5, 37), np.float32)
    products = Products(x, len(y))
    together = products.with_classes(y).copy()
    for place in (0, WIDTH + 1, len(y) - 1):
        assert (products.with_classes(y[[place]])[:, 0] == together[:, place]).all()


def test_what_is_not_finite_stays_with_its_class():
    y = np.ones((3, 2), np.float32)
    y[1] = np.nan
    scores = Products(np.ones((1, 2), np.float32), 3).with_classes(y)
    assert np.isnan(scores).tolist() == [[False, True, False]]
