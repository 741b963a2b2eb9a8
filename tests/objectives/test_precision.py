"""Half precision, scores at the edge of float32, tiny temperatures, and the compiler."""

import shutil
from fractions import Fraction
from functools import partial

import pytest
import torch

from tests.objectives import objective_cases as cases
from widemax.objectives import corrected_log_q, info_nce, sampled_softmax

SHIFTABLE = [
    "corrected-log-q",
    "full-softmax",
    "importance-sampling",
    "info-nce",
    "sampled-softmax",
]
TARGET_LOG_COUNT = -1.5
LOG_COUNT = [-0.75, -3.0, -7.25]


def grid(values):
    """Return every combination of a target's and three candidates' scores, float32 [N, 4]."""
    return torch.cartesian_prod(*[torch.tensor(values)] * 4)


SCORES = {
    "huge and far apart": grid([-3e38, -1e4, 0.0, 1e4, 3e38]),
    "large and close": grid([1e4 - 3, 1e4 - 0.5, 1e4, 1e4 + 1]),
    "large, negative and close": grid([-1e4 - 3, -1e4, -1e4 + 1]),
    "huge and equal": grid([3e38]),
    "plain": grid([-2.0, 0.0, 0.7, 3.0]),
}


def counts(dtype=torch.float64):
    return {
        "target_log_expected_count": torch.tensor([TARGET_LOG_COUNT], dtype=dtype),
        "log_expected_count": torch.tensor(LOG_COUNT, dtype=dtype),
    }


def evaluate(objective, scores):
    positive = scores[:, 0].clone().requires_grad_()
    negative = scores[:, 1:].clone().requires_grad_()
    keywords = counts()
    keywords["target_log_expected_count"] = keywords["target_log_expected_count"].expand(
        len(scores)
    )
    losses = objective(positive, negative, hits=None, **keywords)
    gradients = torch.autograd.grad(losses.sum(), [positive, negative])
    return losses.detach(), torch.cat([gradients[0][:, None], gradients[1]], dim=1)


def less_the_largest(row, temperature=1.0, skip=0):
    """Return (F − max F)/τ of a row, exact but for one last rounding to float64."""
    exact = [Fraction(score) for score in row]
    top = max(exact[skip:])
    return [float((score - top) / Fraction(temperature)) for score in exact]


def truth(name, scores):
    """Return losses in float64 from the plain reference, cast to float32."""
    reference = cases.reference_of(name)
    count = torch.tensor([TARGET_LOG_COUNT, *LOG_COUNT], dtype=torch.float64).exp().tolist()
    losses = []
    for row in scores.tolist():
        row = less_the_largest(row) if name in SHIFTABLE else row
        losses.append(reference(row, [0], [1, 2, 3], count))
    return torch.tensor(losses, dtype=torch.float64).float()


@pytest.mark.parametrize("kind", SCORES)
@pytest.mark.parametrize("name", cases.OBJECTIVES)
def test_float32_equals_the_float64_truth(name, kind):
    """Infinite only where the truth is beyond float32, and the gradient is always finite."""
    scores = SCORES[kind]
    losses, gradients = evaluate(cases.OBJECTIVES[name], scores)
    torch.testing.assert_close(losses, truth(name, scores), rtol=1e-6, atol=1e-6)
    assert bool(gradients.isfinite().all())


@pytest.mark.parametrize("kind", SCORES)
@pytest.mark.parametrize("name", SHIFTABLE)
def test_float32_gradients_equal_those_of_exact_differences(name, kind):
    scores = SCORES[kind]
    _, gradients = evaluate(cases.OBJECTIVES[name], scores)
    # Only the candidates make up the sum of importance sampling: they must keep their digits.
    skip = int(name == "importance-sampling")
    exact = [less_the_largest(row, skip=skip) for row in scores.tolist()]
    _, expected = evaluate(cases.OBJECTIVES[name], torch.tensor(exact, dtype=torch.float64))
    torch.testing.assert_close(gradients, expected.float(), rtol=1e-5, atol=1e-6)
    assert float(gradients.sum(-1).abs().max()) < 1e-5


@pytest.mark.parametrize(
    "scores",
    [grid([0.9, 0.9 - 1e-6, 0.9 - 1e-5, -0.9]), grid([3e38, -3e38, 0.0])],
    ids=["close", "huge"],
)
def test_tiny_temperature(scores):
    temperature = 1e-6
    losses, gradients = evaluate(partial(info_nce, temperature=temperature), scores)
    exact = [less_the_largest(row, temperature) for row in scores.tolist()]
    expected = torch.tensor(
        [cases.info_nce(row, [0], [1, 2, 3], None) for row in exact], dtype=torch.float64
    ).float()
    torch.testing.assert_close(losses, expected, rtol=1e-6, atol=1e-6)
    assert bool(gradients.isfinite().all())


def test_corrected_log_q_keeps_the_weight_of_a_confident_row():
    """1 − P̂ = 1e-10 is a weight: as 1 − 1 in float32 it would be lost."""
    _, gradients = evaluate(corrected_log_q, torch.tensor([[25.0, 0.0, 0.0, 0.0]]))
    _, exact = evaluate(corrected_log_q, torch.tensor([[25.0, 0, 0, 0]], dtype=torch.float64))
    assert float(exact.abs().max()) < 1e-7
    torch.testing.assert_close(gradients.double(), exact, rtol=1e-5, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", cases.EVERY_CASE)
def test_half_precision_is_close_to_float32(name, dtype):
    scores = 4 * torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    losses, gradients = evaluate(cases.EVERY_CASE[name], scores.to(dtype))
    expected, expected_gradients = evaluate(cases.EVERY_CASE[name], scores.to(dtype).float())
    torch.testing.assert_close(losses, expected)
    assert gradients.dtype == dtype
    torch.testing.assert_close(gradients.float(), expected_gradients, rtol=0.01, atol=0.01)


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_compiles_without_a_graph_break():
    torch.manual_seed(0)
    arguments = (torch.randn(4), torch.randn(4, 6))
    keywords = {
        "target_log_expected_count": torch.randn(4),
        "log_expected_count": torch.randn(6),
        "hits": torch.rand(4, 6) < 0.3,
    }
    compiled = torch.compile(sampled_softmax, fullgraph=True)
    torch.testing.assert_close(
        compiled(*arguments, **keywords), sampled_softmax(*arguments, **keywords)
    )


@pytest.mark.parametrize("name", cases.EVERY_CASE)
def test_has_no_graph_break(name):
    """The same without a compiler: only the tracing."""
    torch.manual_seed(0)
    arguments = [torch.randn(4, 2), torch.randn(4, 6)]
    keywords = {
        "target_log_expected_count": torch.randn(4, 2) - 3,
        "log_expected_count": torch.randn(6),
        "hits": torch.rand(4, 6) < 0.3,
        "target_mask": torch.tensor([[True, False]] * 4),
    }
    objective = cases.EVERY_CASE[name]
    torch.compiler.reset()
    traced = torch.compile(lambda *a, **k: objective(*a, **k), backend="eager", fullgraph=True)
    torch.testing.assert_close(traced(*arguments, **keywords), objective(*arguments, **keywords))
