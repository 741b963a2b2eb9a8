"""Heads whose F is log P as it stands, and target sampling over the parts of a corpus."""

import math

import pytest
import torch

from widemax.contracts.head import check_head
from widemax.heads import FullHead, SampledHead
from widemax.heads.normalised import (
    InfrequentHead,
    SelfNormalisedHead,
    log_normalizer_statistics,
)
from widemax.sampling import PartitionSampler
from widemax.scoring import TableScorer

V, D, CONTEXTS = 30, 6, 6


def make_self_normalised(scorer):
    return SelfNormalisedHead(scorer, alpha=0.3)


def make_infrequent(scorer):
    return InfrequentHead(scorer, alpha=2.0, fraction=0.5)


@pytest.mark.parametrize("make", [make_self_normalised, make_infrequent])
@pytest.mark.parametrize("bias", [False, True])
def test_contract(make, bias):
    torch.manual_seed(0)
    check_head(make(TableScorer(V, D, bias=bias)), dimension=D)


def reference_scores(scorer, hidden, targets):
    scores = hidden @ scorer.weight.T + scorer.bias
    return scores.gather(1, targets[:, None])[:, 0], scores.logsumexp(-1)


def double_scorer():
    torch.manual_seed(0)
    scorer = TableScorer(V, D, bias=True).double()
    torch.nn.init.normal_(scorer.bias)
    return scorer


def test_self_normalised_equals_the_plain_formula_and_its_gradient():
    scorer = double_scorer()
    hidden = torch.randn(7, D, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(V, (7,))
    target_score, log_z = reference_scores(scorer, hidden, targets)
    expected = log_z - target_score + 0.3 * log_z**2
    actual = make_self_normalised(scorer)(hidden, targets)
    torch.testing.assert_close(actual, expected)
    variables = (hidden, scorer.weight, scorer.bias)
    for one, other in zip(
        torch.autograd.grad(actual.sum(), variables),
        torch.autograd.grad(expected.sum(), variables),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_infrequent_equals_the_plain_formula_on_the_chosen_rows_alone():
    scorer = double_scorer()
    hidden = torch.randn(400, D, dtype=torch.float64)
    targets = torch.randint(V, (400,))
    target_score, log_z = reference_scores(scorer, hidden, targets)
    head = InfrequentHead(scorer, alpha=2.0, fraction=0.25)
    losses = head(hidden, targets, generator=torch.Generator().manual_seed(3))
    chosen = (losses + target_score).abs() > 1e-9
    assert 70 < int(chosen.sum()) < 130
    expected = -target_score + chosen * (2.0 / 0.25) * log_z**2
    torch.testing.assert_close(losses, expected)


def test_infrequent_with_every_example_chosen_and_with_none():
    scorer = double_scorer()
    hidden, targets = torch.randn(3, D, dtype=torch.float64), torch.tensor([1, 2, 3])
    target_score, log_z = reference_scores(scorer, hidden, targets)
    every = InfrequentHead(scorer, alpha=2.0, fraction=1.0)(hidden, targets)
    torch.testing.assert_close(every, -target_score + 2 * log_z**2)
    none = InfrequentHead(scorer, alpha=2.0, fraction=1e-9)(hidden, targets)
    torch.testing.assert_close(none, -target_score)


@pytest.mark.parametrize("make", [make_self_normalised, make_infrequent])
def test_several_positives_share_the_label(make):
    scorer = double_scorer()
    hidden = torch.randn(1, D, dtype=torch.float64)
    head = make(scorer)
    seeded = {"generator": torch.Generator().manual_seed(0)}
    single = [
        head(hidden, torch.tensor([t]), generator=torch.Generator().manual_seed(0)) for t in (3, 8)
    ]
    several = head(hidden, torch.tensor([[3, 8, -100]]), **seeded)
    torch.testing.assert_close(several, sum(single) / 2)


def known_distribution():
    """As many directions as contexts: a table can learn each context's P exactly."""
    generator = torch.Generator().manual_seed(0)
    truth = (1.5 * torch.randn(CONTEXTS, V, generator=generator, dtype=torch.float64)).log_softmax(
        -1
    )
    return truth, torch.eye(CONTEXTS, dtype=torch.float64)


def every_example(truth):
    contexts = torch.arange(CONTEXTS).repeat_interleave(V)
    return contexts, torch.arange(V).repeat(CONTEXTS), truth.exp().flatten()


def fit_exactly(head, truth, features):
    """Every (context, target) once, weighted by P: no noise but the head's own."""
    contexts, targets, probability = every_example(truth)
    optimiser = torch.optim.LBFGS(head.parameters(), max_iter=400, line_search_fn="strong_wolfe")

    def closure():
        optimiser.zero_grad()
        loss = head(features[contexts], targets, weights=probability).sum()
        loss.backward()
        return loss

    optimiser.step(closure)


def test_self_normalised_scores_become_log_probabilities():
    truth, features = known_distribution()
    head = SelfNormalisedHead(TableScorer(V, CONTEXTS).double(), alpha=0.1)
    fit_exactly(head, truth, features)
    statistics = log_normalizer_statistics(head, features)
    assert statistics.max_abs < 1e-3
    torch.testing.assert_close(head.scores(features), truth, atol=0.02, rtol=0)


def test_infrequent_log_normalizer_settles_at_half_over_alpha():
    """The stated bias: −F_t pulls log Z up to 1/(2α); P itself is right."""
    truth, features = known_distribution()
    head = InfrequentHead(TableScorer(V, CONTEXTS).double(), alpha=5.0, fraction=1.0)
    fit_exactly(head, truth, features)
    statistics = log_normalizer_statistics(head, features)
    assert statistics.mean == pytest.approx(0.1, abs=1e-4)
    assert statistics.std < 1e-3
    torch.testing.assert_close(head.log_prob(features), truth, atol=0.02, rtol=0)


def kl(truth, log_prob):
    return (truth.exp() * (truth - log_prob)).sum(-1).mean().item()


def test_infrequent_learns_with_a_tenth_of_the_normalisers():
    truth, features = known_distribution()
    torch.manual_seed(0)
    scorer = TableScorer(V, CONTEXTS, bias=True).double()
    torch.nn.init.constant_(scorer.bias, -math.log(V))
    head = InfrequentHead(scorer, alpha=10.0, fraction=0.1)
    optimiser = torch.optim.Adam(head.parameters(), lr=0.03)
    contexts, targets, probability = every_example(truth)
    generator = torch.Generator().manual_seed(0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 800)
    for _ in range(800):
        optimiser.zero_grad()
        head(features[contexts], targets, weights=probability, generator=generator).sum().backward()
        optimiser.step()
        schedule.step()
    assert log_normalizer_statistics(head, features).max_abs < 0.15
    assert kl(truth, head.log_prob(features)) < 0.01
    assert kl(truth, head.scores(features).detach()) < 0.15


def test_target_sampling_over_the_parts_of_a_corpus_reaches_the_full_softmax():
    """Jean 2015: each part of the corpus competes only with its own 50 of 60 classes."""
    generator = torch.Generator().manual_seed(0)
    popularity = torch.arange(1, 61).double().pow(-1).log()
    tastes = torch.randn(4, 60, generator=generator, dtype=torch.float64)
    truth = (popularity + tastes).log_softmax(-1)
    contexts = torch.randint(4, (6000,), generator=generator)
    corpus = torch.multinomial(truth.exp()[contexts], 1, generator=generator)[:, 0]
    features = torch.eye(4)[contexts]
    sampler = PartitionSampler.from_targets(corpus, 60, max_classes=50)
    assert sampler.num_parts > 10
    reached = {}
    for name, head in (
        ("full", FullHead(TableScorer(60, 4))),
        ("parts", SampledHead(TableScorer(60, 4), sampler)),
    ):
        optimiser = torch.optim.Adam(head.parameters(), lr=0.02)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 30)
        for _ in range(30):
            for part, (start, stop) in enumerate(sampler.ranges):
                sampler.select(part)
                optimiser.zero_grad()
                head(features[start:stop], corpus[start:stop]).mean().backward()
                optimiser.step()
            schedule.step()
        with torch.no_grad():
            reached[name] = kl(truth, head.log_prob(torch.eye(4)).double())
    assert reached["full"] < 0.03
    assert reached["parts"] < reached["full"] + 0.03


def test_statistics_of_any_head():
    scorer = double_scorer()
    hidden = torch.randn(50, D, dtype=torch.float64)
    log_z = (hidden @ scorer.weight.T + scorer.bias).logsumexp(-1)
    found = log_normalizer_statistics(FullHead(scorer), hidden)
    assert found.mean == pytest.approx(log_z.mean().item())
    assert found.std == pytest.approx(log_z.std(correction=0).item())
    assert found.max_abs == pytest.approx(log_z.abs().max().item())
    with pytest.raises(ValueError, match="at least one row"):
        log_normalizer_statistics(FullHead(scorer), hidden[:0])


@pytest.mark.parametrize("make", [make_self_normalised, make_infrequent])
def test_huge_scores_stay_finite_where_their_square_does(make):
    scorer = TableScorer(V, D)
    hidden = torch.full((2, D), 1e4, requires_grad=True)
    losses = make(scorer)(hidden, torch.tensor([0, 1]))
    losses.sum().backward()
    assert losses.isfinite().all()
    assert hidden.grad.isfinite().all()


@pytest.mark.parametrize("make", [make_self_normalised, make_infrequent])
def test_half_precision_weights(make):
    head = make(TableScorer(V, D)).bfloat16()
    losses = head(torch.randn(4, D).bfloat16(), torch.tensor([0, 1, 2, 3]))
    assert losses.dtype == torch.float32
    assert losses.isfinite().all()


@pytest.mark.parametrize("alpha", [0.0, -1.0, math.nan, math.inf])
def test_senseless_alpha(alpha):
    for make in (SelfNormalisedHead, InfrequentHead):
        with pytest.raises(ValueError, match="alpha"):
            make(TableScorer(V, D), alpha=alpha)


@pytest.mark.parametrize("fraction", [0.0, -0.1, 1.1, math.nan])
def test_senseless_fraction(fraction):
    with pytest.raises(ValueError, match="fraction"):
        InfrequentHead(TableScorer(V, D), alpha=1.0, fraction=fraction)


def test_one_class_is_certain():
    head = SelfNormalisedHead(TableScorer(1, D), alpha=0.1)
    hidden = torch.randn(3, D)
    expected = 0.1 * head.scores(hidden)[:, 0].square()
    torch.testing.assert_close(head(hidden, torch.zeros(3, dtype=torch.int64)), expected)
