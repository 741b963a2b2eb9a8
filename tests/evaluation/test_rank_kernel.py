"""The kernel that ranks targets against its plain reference."""

import numpy as np
import pytest

from widemax.kernels.evaluation.ranks import target_ranks, target_ranks_reference


@pytest.mark.parametrize(("rows", "classes"), [(1, 1), (3, 7), (40, 9001)])
@pytest.mark.parametrize("spread", [0.0, 1.0, 200.0])
def test_ranks_and_log_softmax_are_those_of_the_reference(rows, classes, spread):
    rng = np.random.default_rng(classes)
    # Rounded, so that some scores are equal.
    scores = np.round(rng.normal(size=(rows, classes)) * spread, 1).astype(np.float32)
    targets = rng.integers(0, classes, rows)
    if classes > 1:
        scores[0, (targets[0] + 1) % classes] = -np.inf
    found, expected = target_ranks(scores, targets), target_ranks_reference(scores, targets)
    assert np.array_equal(found[0], expected[0])
    assert np.array_equal(found[1], expected[1])
    np.testing.assert_allclose(found[2], expected[2], rtol=1e-6, atol=2e-6)


def test_a_score_that_is_nan_shows_in_the_loss():
    scores = np.array([[0.0, np.nan, 1.0]], np.float32)
    assert np.isnan(target_ranks(scores, np.array([0]))[2]).all()
