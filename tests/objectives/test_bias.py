"""The mean gradient over many samples: how far it is from the exact one, and how that falls."""

import pytest
import torch

from widemax.objectives import (
    corrected_log_q,
    importance_sampling,
    info_nce,
    nce,
    negative_sampling,
    sampled_logistic,
    sampled_softmax,
)
from widemax.sampling import UnigramSampler

CHUNKS = 20


class Problem:
    """One example: scores of V classes, a target, and a proposal that follows popularity."""

    def __init__(self, num_classes, target, *, tilt, seed=0):
        generator = torch.Generator().manual_seed(seed)
        popularity = 1 / torch.arange(1, num_classes + 1, dtype=torch.float64)
        self.proposal = popularity / popularity.sum()
        noise = torch.randn(num_classes, generator=generator, dtype=torch.float64)
        self.scores = noise + tilt * popularity.log()
        self.target = target

    def exact(self):
        gradient = self.scores.softmax(-1)
        gradient[self.target] -= 1
        return gradient

    def sampled(self, objective, num_samples, draws, *, unique=False):
        """Return the mean gradient for all scores and its standard error, both [V]."""
        generator = torch.Generator().manual_seed(num_samples)
        sampler = UnigramSampler(
            len(self.scores), self.proposal, distortion=1.0, unique=unique, per_example=True
        )
        targets = torch.full((draws // CHUNKS,), self.target)
        means = torch.stack(
            [
                self._mean_gradient(
                    objective, sampler.sample(num_samples, targets, generator=generator)
                )
                for _ in range(CHUNKS)
            ]
        )
        return means.mean(0), means.std(0) / CHUNKS**0.5

    def _mean_gradient(self, objective, candidates):
        ids = candidates.ids
        size = len(ids)
        positive = self.scores[self.target].repeat(size).requires_grad_()
        negative = self.scores[ids].requires_grad_()
        losses = objective(
            positive,
            negative,
            target_log_expected_count=candidates.target_log_expected_count,
            log_expected_count=candidates.log_expected_count,
            hits=ids == self.target,
        )
        of_positive, of_negative = torch.autograd.grad(losses.sum(), [positive, negative])
        total = torch.zeros_like(self.scores).index_add(0, ids.flatten(), of_negative.flatten())
        total[self.target] += of_positive.sum()
        return total / size

    def bias(self, objective, num_samples, draws, *, unique=False):
        """Return the relative bias and its standard error."""
        exact = self.exact()
        mean, error = self.sampled(objective, num_samples, draws, unique=unique)
        return ((mean - exact).norm() / exact.norm()).item(), (error.norm() / exact.norm()).item()


def biases(objective, *, unique=False):
    problem = Problem(100, 50, tilt=0.5)
    draws = {5: 100_000, 20: 100_000, 80: 60_000}
    return [problem.bias(objective, size, draws[size], unique=unique) for size in draws]


@pytest.mark.parametrize(
    ("objective", "unique"),
    [(sampled_softmax, True), (corrected_log_q, False), (importance_sampling, False)],
)
def test_bias_falls_as_samples_grow(objective, unique):
    (few, few_error), (more, more_error), (many, many_error) = biases(objective, unique=unique)
    assert few > 20 * few_error
    assert more > 10 * more_error
    assert more < 0.6 * few
    assert many + 4 * many_error < 0.6 * more
    assert many < 0.03


def test_without_log_q_the_bias_stays():
    """What the test above must distinguish from a consistent estimator."""
    _, (more, _), (many, error) = biases(info_nce)
    assert error < many / 20
    assert many > more / 2
    assert many > 0.2


def test_sampled_softmax_with_replacement_keeps_a_bias_where_the_target_is_likely():
    """Its limit for many draws is the exact gradient divided by 1 − P(t).

    The denominator holds the target once, at e^F / Q, and Q = S·p grows without end, so that the
    target vanishes from it. Distinct draws have Q ≤ 1 and no such bias.
    """
    problem = Problem(20, 0, tilt=1.0)
    problem.scores[0] += 3
    prob = problem.scores.softmax(-1)[0].item()
    assert prob > 0.3
    mean, error = problem.sampled(sampled_softmax, 4000, 1000)
    limit = problem.exact() / (1 - prob)
    assert error.norm() < 0.01 * limit.norm()
    assert (mean - limit).norm() < 0.02 * limit.norm()
    distinct, _ = problem.bias(sampled_softmax, 18, 20_000, unique=True)
    assert distinct < 0.02
    corrected, _ = problem.bias(corrected_log_q, 4000, 1000)
    assert corrected < 0.02


@pytest.mark.parametrize("num_samples", [5, 20, 80])
@pytest.mark.parametrize("objective", [nce, sampled_logistic, negative_sampling])
def test_logistic_gradients_are_unbiased_for_any_number_of_samples(objective, num_samples):
    """The logistic rows are sums over draws: their expectation is a sum over classes."""
    problem = Problem(20, 2, tilt=0.5)
    count = num_samples * problem.proposal
    g = problem.scores if objective is negative_sampling else problem.scores - count.log()
    expected = count * g.sigmoid()
    if objective is sampled_logistic:
        expected[problem.target] = 0
    expected[problem.target] -= (-g[problem.target]).sigmoid()
    mean, error = problem.sampled(objective, num_samples, 2_000_000 // num_samples)
    assert error.max() < 0.01 * expected.norm()
    # Six standard errors: with 180 comparisons (t, 19 degrees) one false alarm in 600 seeds.
    assert bool(((mean - expected).abs() <= 6 * error + 1e-6).all())


def test_corrected_log_q_has_at_most_a_third_of_the_bias():
    """METHODS' setting: 200 classes, a unigram proposal, a rare target, five samples."""
    problem = Problem(200, 100, tilt=0.5)
    plain, plain_error = problem.bias(sampled_softmax, 5, 400_000)
    corrected, corrected_error = problem.bias(corrected_log_q, 5, 400_000)
    assert plain_error < 0.01
    assert corrected_error < 0.01
    assert corrected <= plain / 3


def test_the_bias_of_corrected_log_q_rests_on_the_target_probability():
    """Where the proposal favours the target, forgetting Q' = Q/(1 − Q(t)) would show."""
    problem = Problem(20, 0, tilt=-0.5)
    assert problem.proposal[0] > 0.25
    bias, error = problem.bias(corrected_log_q, 80, 100_000)
    assert error < 0.005
    assert bias < 0.03
