"""Objectives that keep hits, with candidates from the batch: the own target must not be one."""

import itertools
import math

import pytest
import torch

import widemax as wm
from widemax.objectives import importance_sampling, nce, negative_sampling
from widemax.sampling import InBatchSampler, MixtureSampler, QueueSampler, UniformSampler

PROB = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]], dtype=torch.float64)
"""P(y | x) of two contexts that are equally likely."""
SHARES = PROB.mean(0)
ROWS = 3


class Shares:
    """The true share of each class among the targets."""

    def log_prob(self, ids):
        return SHARES.log()[ids]


def every_batch(rows):
    """Yield each batch of contexts and targets that there can be, with its probability."""
    pairs = list(itertools.product(range(2), range(3)))
    for chosen in itertools.product(pairs, repeat=rows):
        contexts, targets = (torch.tensor(each) for each in zip(*chosen, strict=True))
        yield contexts, targets, float((PROB[contexts, targets] / 2).prod())


def made(objective, scores, sampler):
    """A head whose score of class y in context x is ``scores[x, y]``."""
    head = wm.SampledHead(wm.TableScorer(3, 2).double(), sampler, objective=objective)
    head.scorer.weight.data.copy_(scores.T)
    return head.eval()


def in_batch():
    return InBatchSampler(3, Shares())


def queue():
    return QueueSampler(3, Shares(), capacity=1)


def expected_gradient(head, rows):
    """The gradient over all batches; of a queue the last row is queued first."""
    total = torch.zeros(3, 2, dtype=torch.float64)
    for contexts, targets, probability in every_batch(rows):
        if isinstance(head.sampler, QueueSampler):
            head.sampler.update(targets[-1:])
            contexts, targets = contexts[:-1], targets[:-1]
        losses = head(torch.eye(2, dtype=torch.float64)[contexts], targets)
        (gradient,) = torch.autograd.grad(losses.sum(), head.scorer.weight)
        total += probability * gradient
    return total


@pytest.mark.parametrize("sampler", [in_batch, queue])
@pytest.mark.parametrize("objective", [nce, negative_sampling])
def test_what_the_objective_learns_is_where_its_gradient_vanishes(objective, sampler):
    learned = PROB.log()
    if objective is negative_sampling:
        learned = learned - (SHARES * (ROWS - 1)).log()
    gradient = expected_gradient(made(objective, learned, sampler()), ROWS)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), atol=1e-7, rtol=0)


def test_importance_sampling_estimates_the_normaliser_without_the_own_target():
    scores = torch.tensor([[0.5, -1.0, 2.0], [0.0, 1.0, -0.5]], dtype=torch.float64)
    head = made(importance_sampling, scores, in_batch())
    found = torch.zeros(2, dtype=torch.float64)
    for contexts, targets, probability in every_batch(ROWS):
        losses = head(torch.eye(2, dtype=torch.float64)[contexts], targets).detach()
        estimate = (losses + scores[contexts, targets]).exp()
        found.index_add_(0, contexts[:1], 2 * probability * estimate[:1])
    torch.testing.assert_close(found, scores.exp().sum(1), atol=1e-7, rtol=1e-7)


def test_the_expected_counts_of_a_mixture_are_those_of_the_other_rows():
    counts = []

    def recording(target_scores, candidate_scores, **given):
        counts.append(given)
        return nce(target_scores, candidate_scores, **given)

    recording.keeps_hits = True
    mixture = MixtureSampler([in_batch(), UniformSampler(3)], [3, 2])
    head = wm.SampledHead(wm.TableScorer(3, 2), mixture, objective=recording, num_samples=5)
    targets = torch.tensor([0, 2, 2])
    head(torch.ones(3, 2), targets)
    expected = 2 * SHARES + 2 / 3
    (given,) = counts
    found = given["target_log_expected_count"].exp()
    torch.testing.assert_close(found, expected[targets])
    assert given["log_expected_count"].shape == (3, 5)
    found = given["log_expected_count"].exp()[:, 0]
    assert any(torch.allclose(found, each.expand(3)) for each in expected)


def test_all_positives_of_the_own_row_are_left_out():
    head = wm.SampledHead(wm.TableScorer(3, 2), in_batch(), objective=nce)
    targets = torch.tensor([[0, 1], [2, -100]])
    losses = head(torch.zeros(2, 2), targets)
    shares = SHARES.float()

    def loss(positives, negatives, number):
        gain = sum(math.log1p(number * float(shares[y])) for y in positives)
        return gain + sum(math.log1p(1 / (number * float(shares[y]))) for y in negatives)

    expected = torch.tensor([loss([0, 1], [2], 1), loss([2], [0, 1], 2)])
    torch.testing.assert_close(losses, expected)


@pytest.mark.parametrize("objective", [nce, negative_sampling, importance_sampling])
def test_an_example_that_is_alone_has_no_loss(objective):
    head = wm.SampledHead(wm.TableScorer(3, 2), in_batch(), objective=objective)
    losses = head(torch.ones(1, 2), torch.tensor([1]))
    losses.sum().backward()
    assert losses.tolist() == [0.0]
    assert not head.scorer.weight.grad.any()


def test_interests_leave_the_own_row_out_too():
    head = wm.SampledHead(wm.TableScorer(3, 2).double(), in_batch(), objective=nce)
    user, targets = torch.randn(4, 2, dtype=torch.float64), torch.tensor([0, 1, 1, 2])
    torch.testing.assert_close(
        head.interest_losses(user[:, None], user, targets), head(user, targets)
    )


def test_two_samplers_from_the_batch_are_refused_by_name():
    mixture = MixtureSampler([in_batch(), queue()], [1, 1])
    head = wm.SampledHead(wm.TableScorer(3, 2), mixture, objective=nce)
    with pytest.raises(ValueError, match="sampler must say how likely a class is"):
        head(torch.ones(3, 2), torch.tensor([0, 1, 2]))
