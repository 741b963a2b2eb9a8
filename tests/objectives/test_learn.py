"""What F learns: a table of scores, fitted to data of a known P, shows the last column.

No draw is random here. A list that holds class y exactly Q(y) times is the expectation of every
objective that is linear in the draws, and the exact sum for those that estimate one. The softmax
rows are not: for them all sets of independently chosen classes are enumerated.
"""

from functools import partial
from itertools import product
from math import log

import pytest
import torch

from widemax.heads import hits_by_class
from widemax.objectives import (
    corrected_log_q,
    full_logistic,
    full_softmax,
    gbce,
    importance_sampling,
    info_nce,
    nce,
    negative_sampling,
    sampled_logistic,
    sampled_softmax,
)

V = 6
CONTEXTS = 3
COPIES = torch.tensor([13, 1, 5, 2, 8, 3])
INCLUSION = torch.tensor([0.9, 0.05, 0.4, 0.1, 0.6, 0.25], dtype=torch.float64)
ONCE = torch.ones(V, dtype=torch.int64)


def true_log_prob():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(CONTEXTS, V, generator=generator, dtype=torch.float64).log_softmax(-1)


class Examples:
    """Every (context, target) once, weighted by P; candidates in proportion to ``copies``."""

    def __init__(self, copies):
        self.contexts = torch.arange(CONTEXTS).repeat_interleave(V)
        self.targets = torch.arange(V).repeat(CONTEXTS)
        self.weights = true_log_prob().exp().flatten()
        self.ids = torch.arange(V).repeat_interleave(copies)
        self.log_count = copies.double().log()

    def loss(self, objective, scores, log_count):
        rows = scores[self.contexts]
        losses = objective(
            rows.gather(1, self.targets[:, None])[:, 0],
            rows[:, self.ids],
            target_log_expected_count=log_count[self.targets],
            log_expected_count=log_count[self.ids],
            hits=hits_by_class(self.ids, self.targets),
        )
        return (self.weights * losses).sum()


class Subsets(Examples):
    """Every (context, target, set of candidates): class y is in the set with its inclusion."""

    def __init__(self, inclusion):
        super().__init__(ONCE)
        sets = torch.tensor(list(product([False, True], repeat=V)))
        chance = torch.where(sets, inclusion, 1 - inclusion).prod(-1)
        self.contexts = self.contexts.repeat_interleave(len(sets))
        self.targets = self.targets.repeat_interleave(len(sets))
        self.weights = (self.weights[:, None] * chance).flatten()
        self.outside = ~sets.repeat(CONTEXTS * V, 1)
        self.log_count = inclusion.log()

    def loss(self, objective, scores, log_count):
        def inside(positive, negative, **keywords):
            return objective(positive, negative.masked_fill(self.outside, -torch.inf), **keywords)

        return super().loss(inside, scores, log_count)


def learn(objective, examples, log_count=None):
    """Return F [contexts, V] where the mean gradient vanishes."""
    log_count = examples.log_count if log_count is None else log_count
    scores = torch.zeros(CONTEXTS, V, dtype=torch.float64, requires_grad=True)
    # Steps follow the gradient alone: the value of corrected_log_q is a surrogate.
    optimiser = torch.optim.LBFGS([scores], lr=0.5, max_iter=500, tolerance_change=0)

    def closure():
        optimiser.zero_grad()
        loss = examples.loss(objective, scores, log_count)
        loss.backward()
        return loss

    optimiser.step(closure)
    return scores.detach()


def centred(scores):
    return scores - scores.mean(-1, keepdim=True)


def error(learned, expected, *, up_to_a_constant=False):
    if up_to_a_constant:
        learned, expected = centred(learned), centred(expected)
    return (learned - expected).abs().max().item()


def log_odds():
    return true_log_prob().exp().logit()


LOGISTIC = {
    "nce learns log P itself": (nce, COPIES, true_log_prob),
    "negative_sampling learns log P/Q": (
        negative_sampling,
        COPIES,
        lambda: true_log_prob() - COPIES.double().log(),
    ),
    "sampled_logistic learns the log odds": (sampled_logistic, COPIES, log_odds),
    "full_logistic learns the log odds": (full_logistic, ONCE, log_odds),
    # Uniform draws, as it asks for. Drawn from V classes, not V − 1: hence the constant.
    "gbce, fully calibrated, learns the log odds": (
        partial(gbce, num_classes=V, calibration=1.0),
        4 * ONCE,
        lambda: log_odds() + log(V / (V - 1)),
    ),
    "gbce, not calibrated, is overconfident": (
        partial(gbce, num_classes=V, calibration=0.0),
        4 * ONCE,
        lambda: log_odds() - log(4),
    ),
}


@pytest.mark.parametrize("claim", LOGISTIC)
def test_logistic_rows(claim):
    objective, copies, expected = LOGISTIC[claim]
    assert error(learn(objective, Examples(copies)), expected()) < 1e-5


SOFTMAX = {
    "full_softmax": (full_softmax, Examples(ONCE), true_log_prob),
    "corrected_log_q": (corrected_log_q, Examples(COPIES), true_log_prob),
    "importance_sampling": (importance_sampling, Examples(COPIES), true_log_prob),
    "sampled_softmax": (sampled_softmax, Subsets(INCLUSION), true_log_prob),
    "info_nce": (info_nce, Subsets(INCLUSION), lambda: true_log_prob() - INCLUSION.log()),
}


@pytest.mark.parametrize("name", SOFTMAX)
def test_softmax_rows_learn_up_to_a_constant(name):
    objective, examples, expected = SOFTMAX[name]
    assert error(learn(objective, examples), expected(), up_to_a_constant=True) < 1e-5


@pytest.mark.parametrize(
    ("objective", "examples", "expected"),
    [
        (nce, Examples(COPIES), true_log_prob),
        (sampled_logistic, Examples(COPIES), log_odds),
        (corrected_log_q, Examples(COPIES), true_log_prob),
        (importance_sampling, Examples(COPIES), true_log_prob),
        (sampled_softmax, Subsets(INCLUSION), true_log_prob),
    ],
)
def test_a_dropped_log_q_would_be_noticed(objective, examples, expected):
    wrong = learn(objective, examples, log_count=torch.zeros(V, dtype=torch.float64))
    assert error(wrong, expected(), up_to_a_constant=True) > 0.5


@pytest.mark.parametrize("objective", [corrected_log_q, importance_sampling])
def test_real_draws_lead_to_the_same_place(objective):
    generator = torch.Generator().manual_seed(0)
    proposal, num_samples, steps = COPIES / COPIES.sum(), 256, 600
    examples = Examples(ONCE)
    log_count = (num_samples * proposal.double()).log()
    scores = torch.zeros(CONTEXTS, V, dtype=torch.float64, requires_grad=True)
    mean = torch.zeros_like(scores)
    for step in range(steps):
        examples.ids = torch.multinomial(proposal, num_samples, True, generator=generator)
        loss = examples.loss(objective, scores, log_count)
        (gradient,) = torch.autograd.grad(loss, scores)
        with torch.no_grad():
            scores -= 3.0 * gradient
            # The mean of the second half: what the noise of single steps hides.
            mean += scores * (step >= steps // 2) / (steps - steps // 2)
    assert error(mean, true_log_prob(), up_to_a_constant=True) < 0.05
