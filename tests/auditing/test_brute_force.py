"""The figures of an audit against plain means over 100,000 draws, for every head and space.

The brute force knows nothing of the audit: it repeats the examples, lets each draw for itself,
and takes the mean of what autograd returns.
"""

import copy
import math

import pytest
import torch

from widemax.auditing import audit
from widemax.declarations import names
from widemax.heads import (
    AdaptiveHead,
    Entmax15Head,
    FullHead,
    HierarchicalHead,
    ImportanceHead,
    InfrequentHead,
    SampledHead,
    SelfNormalisedHead,
    SparsemaxHead,
    TopKSoftmaxHead,
    Tree,
)
from widemax.objectives import (
    corrected_log_q,
    importance_sampling,
    info_nce,
    nce,
    negative_sampling,
    sampled_softmax,
)
from widemax.sampling import AllClassesSampler, InBatchSampler, UniformSampler, UnigramSampler
from widemax.scoring import TableScorer

V, D, N = 12, 3, 3
DRAWS = 100_000
COUNTS = torch.arange(V, 0, -1)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def scorer():
    made = TableScorer(V, D).double()
    with torch.no_grad():
        made.weight.copy_(torch.randn(V, D, generator=seeded(1)))
    return made


def examples():
    hidden = torch.randn(N, D, generator=seeded(2), dtype=torch.float64)
    return hidden, torch.tensor([0, 4, 11])


def unigram(**options):
    return UnigramSampler(V, COUNTS, distortion=0.75, per_example=True, **options)


def sampled(objective, sampler=None, number=4):
    return SampledHead(scorer(), sampler or unigram(), objective=objective, num_samples=number)


SAMPLED = {
    "sampled-softmax": lambda: sampled(sampled_softmax),
    "distinct": lambda: sampled(sampled_softmax, unigram(unique=True)),
    "uniform": lambda: sampled(sampled_softmax, UniformSampler(V, per_example=True)),
    "corrected-log-q": lambda: sampled(corrected_log_q),
    "importance-sampling": lambda: sampled(importance_sampling),
    "info-nce": lambda: sampled(info_nce),
    "nce": lambda: sampled(nce),
    "negative-sampling": lambda: sampled(negative_sampling),
    "importance": lambda: ImportanceHead(scorer(), unigram(), num_samples=4),
    "all": lambda: sampled(sampled_softmax, AllClassesSampler(V), None),
}
OTHERS = {
    "full": lambda: FullHead(scorer()),
    "self-normalised": lambda: SelfNormalisedHead(scorer()),
    "infrequent": lambda: InfrequentHead(scorer(), alpha=0.3, fraction=0.4),
    "top-k-softmax": lambda: TopKSoftmaxHead(scorer(), k=5),
    "sparsemax": lambda: SparsemaxHead(scorer()),
    "entmax-1.5": lambda: Entmax15Head(scorer()),
    "adaptive": lambda: AdaptiveHead(D, V, cutoffs=[4, 8]).double(),
    "hierarchical": lambda: grown(HierarchicalHead(D, Tree.huffman(COUNTS)).double()),
}


def grown(head):
    with torch.no_grad():
        head.weight.copy_(torch.randn(head.weight.shape, generator=seeded(5)))
    return head


def test_every_declared_head_is_compared_with_brute_force():
    assert {*names("head")} <= {*SAMPLED, *OTHERS, "sampled"}


def repeated_gradient(head, hidden, targets, wanted):
    """Return the mean gradient over so many draws, of a tensor [N, ...] or a parameter."""
    times = DRAWS // len(targets) if wanted == "parameter" else DRAWS
    total, left, generator = 0.0, times, seeded(7)
    while left:
        now = min(left, 10_000)
        many = hidden.repeat(now, 1).requires_grad_()
        losses = head(many, targets.repeat(now), generator=generator)
        if wanted == "parameter":
            (gradient,) = torch.autograd.grad(losses.sum(), head.scorer.weight)
            total = total + gradient / len(targets)
        else:
            (gradient,) = torch.autograd.grad(losses.sum(), many)
            total = total + gradient.view(now, *hidden.shape).sum(0)
        left -= now
    return total / times


def as_scores(head, hidden):
    """Return a head of which the hidden states are the scores themselves, and those."""
    other = copy.copy(head)
    other._modules = dict(head._modules)
    other.scorer = TableScorer(V, V).double()
    with torch.no_grad():
        other.scorer.weight.copy_(torch.eye(V))
        scores = head.scorer(hidden)
    other.dimension = V
    return other, scores


def exact_by_scores(head, hidden, targets):
    gradient = head.scorer(hidden).softmax(-1)
    gradient[torch.arange(N), targets] -= 1
    return gradient.detach()


def distance(mean, exact):
    return float((mean - exact).norm() / exact.norm())


def agrees(figures, truth):
    # Both ends are of 95 %, and the brute force has some noise of its own.
    slack = 0.25 * (figures.bias_high - figures.bias_low) + 0.003
    return figures.bias_low - slack <= truth <= figures.bias_high + slack


@pytest.mark.parametrize("name", SAMPLED)
def test_the_bias_of_a_sampled_head_is_that_of_brute_force_in_every_space(name):
    head, (hidden, targets) = SAMPLED[name](), examples()
    report = audit(head, hidden, targets, draws=1000, generator=seeded(3))
    found = report.overall.gradients
    exact = exact_by_scores(head, hidden, targets)
    by_scores, scores = as_scores(head, hidden)
    truths = {
        "scores": distance(repeated_gradient(by_scores, scores, targets, "hidden"), exact),
        "hidden": distance(
            repeated_gradient(head, hidden, targets, "hidden"), exact @ head.scorer.weight.detach()
        ),
        # The gradient of the sum over the examples, of which autograd returned the mean.
        "class vectors": distance(
            len(targets) * repeated_gradient(head, hidden, targets, "parameter"), exact.T @ hidden
        ),
    }
    for space, truth in truths.items():
        assert agrees(found[space], truth), (space, truth, found[space])
        assert found[space].bias_high - found[space].bias_low < 0.4 * max(0.3, truth)


@pytest.mark.parametrize("name", OTHERS)
def test_the_bias_of_any_other_head_is_that_of_brute_force(name):
    head, (hidden, targets) = OTHERS[name](), examples()
    report = audit(head, hidden, targets, draws=2000, generator=seeded(3))
    if hasattr(head, "scorer"):
        exact = exact_by_scores(head, hidden, targets) @ head.scorer.weight.detach()
    else:
        leaf = hidden.clone().requires_grad_()
        log_prob = head.log_prob(leaf)[torch.arange(N), targets]
        (exact,) = torch.autograd.grad(-log_prob.sum(), leaf)
    truth = distance(repeated_gradient(head, hidden, targets, "hidden"), exact)
    assert agrees(report.overall.gradients["hidden"], truth), (truth, report.overall)
    by_construction = name in ("full", "adaptive", "hierarchical")
    assert (report.aim == "exact") == by_construction
    assert not by_construction or report.bias_high < 1e-6


def test_the_bias_of_candidates_from_the_batch_is_that_of_brute_force():
    generator, number = seeded(8), 24
    hidden = torch.randn(number, D, generator=generator, dtype=torch.float64)
    targets = torch.cat([torch.arange(V), torch.randint(V, (number - V,), generator=generator)])
    counts = torch.bincount(targets, minlength=V)
    frequency = UnigramSampler(V, counts, distortion=1.0)
    head = SampledHead(scorer(), InBatchSampler(V, frequency), objective=sampled_softmax)
    report = audit(head, hidden, targets, draws=600, batch_size=6, generator=seeded(3))
    total, batches = torch.zeros_like(hidden), torch.zeros(number, 1, dtype=torch.float64)
    for _ in range(5000):
        rows = torch.randperm(number, generator=generator)[:6]
        own = hidden[rows].requires_grad_()
        (gradient,) = torch.autograd.grad(head(own, targets[rows]).sum(), own)
        total[rows] += gradient
        batches[rows] += 1
    exact = head.scorer(hidden).softmax(-1)
    exact[torch.arange(number), targets] -= 1
    truth = distance(total / batches, (exact @ head.scorer.weight).detach())
    assert agrees(report.overall.gradients["hidden"], truth)


def test_groups_are_what_an_audit_of_them_alone_finds():
    head, (hidden, targets) = SAMPLED["info-nce"](), examples()
    groups = {"one": torch.tensor([True, False, True]), "none": torch.zeros(N, dtype=torch.bool)}
    report = audit(head, hidden, targets, draws=2000, groups=groups, generator=seeded(3))
    alone = audit(
        head, hidden[[0, 2]], targets[[0, 2]], draws=2000, groups=None, generator=seeded(4)
    )
    assert list(report.groups) == ["one"]
    assert report.groups["one"].num_examples == 2
    for space, figures in report.groups["one"].gradients.items():
        other = alone.overall.gradients[space]
        assert figures.bias == pytest.approx(other.bias, rel=0.05)
        assert figures.length == pytest.approx(other.length, rel=0.05)
    assert report.groups["one"].divergence == pytest.approx(alone.divergence)
    assert report.groups["one"].log_normalizer == pytest.approx(alone.overall.log_normalizer)


def test_log_normaliser_and_divergence_are_those_of_the_definition():
    head, (hidden, targets) = SAMPLED["sampled-softmax"](), examples()
    found = audit(head, hidden, targets, draws=20, generator=seeded(3)).overall
    log_normalizer = head.scorer(hidden).logsumexp(-1)
    assert found.log_normalizer == pytest.approx(log_normalizer.mean().item())
    assert found.log_normalizer_spread == pytest.approx(log_normalizer.std(correction=0).item())
    prob, proposal = head.log_prob(hidden).exp(), COUNTS.double() ** 0.75
    proposal = (proposal / proposal.sum()).log()
    truth = (prob * (prob.log() - proposal)).sum(-1).mean()
    assert found.divergence == pytest.approx(truth.item())
    assert found.gradients["scores"].length == pytest.approx(1.0, abs=0.5)
    assert not math.isnan(found.effective_sample_size)
