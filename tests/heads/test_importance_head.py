"""Importance sampling with a controlled effective sample size."""

import logging
import math

import pytest
import torch

from tests.heads import head_cases_sampled
from widemax.contracts.head import check_head
from widemax.heads import FullHead, SampledHead
from widemax.heads.importance import ImportanceHead
from widemax.objectives import importance_sampling
from widemax.sampling import (
    AllClassesSampler,
    InBatchSampler,
    LearnedUnigramSampler,
    LogUniformSampler,
    MixtureSampler,
    UniformSampler,
    UnigramSampler,
)
from widemax.sampling.conditional.hard import HardNegativeSampler
from widemax.sampling.conditional.ngram import NGramSampler
from widemax.scoring import TableScorer

V, D = 40, 5


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


SAMPLERS = {
    "uniform": lambda: UniformSampler(V),
    "per example": lambda: UniformSampler(V, per_example=True),
    "learned": lambda: LearnedUnigramSampler(V),
    "mixture": lambda: MixtureSampler([UniformSampler(V), LogUniformSampler(V)], [0.5, 0.5]),
    "n-gram": lambda: NGramSampler.from_corpus(torch.arange(V).repeat(3), V),
}


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("effective_size", [None, 20])
def test_contract(name, effective_size):
    torch.manual_seed(0)
    head = ImportanceHead(
        TableScorer(V, D, bias=True),
        SAMPLERS[name](),
        num_samples=12,
        effective_size=effective_size,
    )
    check_head(head, dimension=D)


@pytest.mark.parametrize("name", head_cases_sampled.HEADS)
def test_contract_of_every_combination(name):
    make, gradients = head_cases_sampled.HEADS[name]
    torch.manual_seed(0)
    check_head(make(), dimension=head_cases_sampled.DIMENSION, gradients=gradients)


def test_without_control_it_is_the_sampled_head():
    scorer = TableScorer(V, D).double()
    hidden, targets = torch.randn(6, D, dtype=torch.float64), torch.arange(6)
    sampler = LogUniformSampler(V)
    head = ImportanceHead(scorer, sampler, num_samples=9)
    plain = SampledHead(scorer, sampler, objective=importance_sampling, num_samples=9)
    torch.testing.assert_close(
        head(hidden, targets, generator=seeded()), plain(hidden, targets, generator=seeded())
    )
    assert head.last_draw.num_drawn == 9


@pytest.mark.parametrize("per_example", [False, True])
def test_loss_over_several_blocks_equals_the_plain_formula(per_example):
    """All draws count once, whatever block they came in: r = exp(F)/(S·q) with S the total."""
    scorer = TableScorer(V, D).double()
    hidden, targets = torch.randn(6, D, dtype=torch.float64), torch.arange(6)
    sampler = LogUniformSampler(V, per_example=per_example)
    head = ImportanceHead(scorer, sampler, num_samples=8, effective_size=56, max_samples=56)
    losses = head(hidden, targets, generator=seeded())
    assert head.last_draw.num_drawn == 56, "8, 16, 32, then what is left"
    blocks, generator = [], seeded()
    for size in (8, 8, 16, 24):
        blocks.append(sampler.sample(size, targets, generator=generator).ids)
    ids = torch.cat(blocks, -1).expand(6, -1)
    scores = (hidden @ scorer.weight.T).detach()
    log_ratio = scores.gather(1, ids) - sampler.log_prob(ids) - math.log(56)
    expected = log_ratio.logsumexp(-1) - scores.gather(1, targets[:, None])[:, 0]
    torch.testing.assert_close(losses, expected)
    ratio = log_ratio.softmax(-1)
    size = ratio.sum(-1) ** 2 / (ratio**2).sum(-1)
    assert head.last_draw.smallest_effective_size == pytest.approx(size.min().item())
    assert head.last_draw.mean_effective_size == pytest.approx(size.mean().item())


def test_draws_from_p_itself_are_worth_their_number():
    scorer = TableScorer(V, D).double()
    hidden = torch.randn(1, D, dtype=torch.float64).expand(4, D)
    probability = (hidden[0] @ scorer.weight.T).softmax(-1).detach()
    sampler = UnigramSampler(V, probability, distortion=1.0)
    head = ImportanceHead(scorer, sampler, num_samples=50, effective_size=49.9)
    losses = head(hidden, torch.arange(4))
    assert head.last_draw.num_drawn == 50
    assert head.last_draw.smallest_effective_size == pytest.approx(50, rel=1e-6)
    exact = FullHead(scorer)(hidden, torch.arange(4))
    torch.testing.assert_close(losses, exact, atol=1e-5, rtol=1e-5)


def test_the_asked_size_is_reached_in_every_row_or_the_limit_is():
    torch.manual_seed(0)
    scorer = TableScorer(V, D)
    hidden, targets = 4 * torch.randn(8, D), torch.arange(8)
    head = ImportanceHead(
        scorer, UniformSampler(V), num_samples=10, effective_size=30, max_samples=100_000
    )
    head(hidden, targets, generator=seeded())
    assert head.last_draw.smallest_effective_size >= 30
    assert head.last_draw.num_drawn > 40
    short = ImportanceHead(
        scorer, UniformSampler(V), num_samples=10, effective_size=30, max_samples=35
    )
    short(hidden, targets, generator=seeded())
    assert short.last_draw.num_drawn == 35
    assert short.last_draw.smallest_effective_size < 30


def test_what_was_drawn_is_logged(caplog):
    head = ImportanceHead(TableScorer(V, D), UniformSampler(V), num_samples=10)
    assert head.last_draw is None
    with caplog.at_level(logging.DEBUG, logger="widemax.heads.importance"):
        head(torch.randn(2, D), torch.tensor([1, 2]))
    assert "num_drawn=10" in caplog.text


def peaked_distribution(num_classes=100, contexts=4):
    generator = seeded()
    logits = 3 * torch.randn(contexts, num_classes, generator=generator, dtype=torch.float64)
    return logits.log_softmax(-1)


def divergence_after_training(head, truth, steps=400):
    features, generator = torch.eye(len(truth)), seeded(1)
    optimiser = torch.optim.Adam(head.parameters(), lr=0.03)
    for _ in range(steps):
        contexts = torch.randint(len(truth), (64,), generator=generator)
        targets = torch.multinomial(truth.exp()[contexts], 1, generator=generator)[:, 0]
        optimiser.zero_grad()
        head(features[contexts], targets, generator=generator).mean().backward()
        optimiser.step()
    with torch.no_grad():
        log_prob = head.log_prob(features).double()
    return (truth.exp() * (truth - log_prob)).sum(-1).mean().item()


def test_a_fixed_small_sample_fails_where_a_controlled_one_does_not():
    """P is peaked, Q uniform: ten draws miss the peak, and nothing then holds F back."""
    truth = peaked_distribution()

    def trained(make):
        torch.manual_seed(0)
        return divergence_after_training(make(TableScorer(100, 4)), truth)

    exact = trained(FullHead)
    fixed = trained(lambda scorer: ImportanceHead(scorer, UniformSampler(100), num_samples=10))
    controlled = trained(
        lambda scorer: ImportanceHead(
            scorer, UniformSampler(100), num_samples=10, effective_size=10, max_samples=2000
        )
    )
    assert exact < 0.03
    assert fixed > 0.5
    assert controlled < 0.06


def markov_text(num_classes=30, length=4000):
    generator = seeded()
    probability = (2.5 * torch.randn(num_classes, num_classes, generator=generator)).softmax(-1)
    text = [0]
    for _ in range(length - 1):
        text.append(int(torch.multinomial(probability[text[-1]], 1, generator=generator)))
    return torch.tensor(text), probability


def test_an_adapted_ngram_proposal_makes_the_same_draws_worth_more():
    """A model that knows P(y | x): the proposal must move its weight to the bigram."""
    text, probability = markov_text()
    scorer = TableScorer(30, 30)
    scorer.weight.data.copy_(probability.log().T)
    sampler = NGramSampler.from_corpus(text, 30, order=3)
    head = ImportanceHead(scorer, sampler, num_samples=40)
    context = text.unfold(0, 2, 1)[:256]
    hidden, targets = torch.eye(30)[context[:, 1]], text[2 : 2 + len(context)]
    worth = []
    for step in range(60):
        with torch.no_grad():
            head(hidden, targets, context=context, generator=seeded(step))
        worth.append(head.last_draw.mean_effective_size)
    assert worth[-1] > 1.4 * worth[0]
    assert sampler.weights[2] > 0.5
    before = sampler.weights.clone()
    head.eval()(hidden, targets, context=context)
    assert torch.equal(sampler.weights, before), "nothing adapts in eval mode"


def test_context_of_ignored_examples_is_left_out():
    text, _ = markov_text(length=500)
    sampler = NGramSampler.from_corpus(text, 30, order=3)
    head = ImportanceHead(TableScorer(30, D), sampler, num_samples=10).eval()
    context, hidden = text.unfold(0, 2, 1)[:6], torch.randn(6, D)
    targets = text[2:8].clone()
    targets[2] = -100
    kept = torch.tensor([0, 1, 3, 4, 5])
    losses = head(hidden, targets, context=context, generator=seeded())
    alone = head(hidden[kept], targets[kept], context=context[kept], generator=seeded())
    torch.testing.assert_close(losses[kept], alone)
    assert losses[2].item() == 0
    with pytest.raises(ValueError, match="context must have 6 rows"):
        head(hidden, targets, context=context[:5])
    uniform = ImportanceHead(TableScorer(30, D), UniformSampler(30), num_samples=10)
    with pytest.raises(ValueError, match="UniformSampler does not depend on one"):
        uniform(hidden, targets, context=context)


def test_a_learning_sampler_learns_each_batch_once():
    sampler = LearnedUnigramSampler(V)
    head = ImportanceHead(
        TableScorer(V, D), sampler, num_samples=4, effective_size=64, max_samples=64
    )
    head(torch.randn(6, D), torch.arange(6))
    assert head.last_draw.num_drawn == 64
    assert int(sampler.tree[1]) == V + 6
    assert sampler.training


def test_state_round_trip():
    text, _ = markov_text(length=300)

    def make():
        return ImportanceHead(TableScorer(30, D), NGramSampler.from_corpus(text, 30), num_samples=8)

    head, fresh = make(), make()
    hidden, targets = torch.randn(4, D), torch.arange(4)
    head(hidden, targets)
    fresh.load_state_dict(head.state_dict())
    torch.testing.assert_close(
        head(hidden, targets, generator=seeded()), fresh(hidden, targets, generator=seeded())
    )


def test_samplers_that_do_not_draw_independently_are_refused():
    scorer = TableScorer(V, D)
    with pytest.raises(ValueError, match="unique=True"):
        ImportanceHead(scorer, UniformSampler(V, unique=True), num_samples=5)
    hard = HardNegativeSampler(V, FullHead(scorer).topk)
    with pytest.raises(ValueError, match="no probability sample"):
        ImportanceHead(scorer, hard, num_samples=5)
    in_batch = InBatchSampler(V, UniformSampler(V))
    for sampler in (
        AllClassesSampler(V),
        in_batch,
        MixtureSampler([in_batch, UniformSampler(V)], [0.5, 0.5]),
    ):
        head = ImportanceHead(scorer, sampler, num_samples=5)
        with pytest.raises(ValueError, match="any number of candidates"):
            head(torch.randn(4, D), torch.arange(4))
    with pytest.raises(ValueError, match="num_classes"):
        ImportanceHead(scorer, UniformSampler(V + 1), num_samples=5)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"num_samples": 0}, "num_samples"),
        ({"num_samples": 3590707793247644003}, "num_samples"),
        ({"num_samples": None}, "num_samples"),
        ({"num_samples": 10, "max_samples": 9}, "max_samples"),
        ({"num_samples": 10, "max_samples": 2**62}, "max_samples"),
        ({"num_samples": 10, "effective_size": 0}, "effective_size"),
        ({"num_samples": 10, "effective_size": math.nan}, "effective_size"),
        ({"num_samples": 10, "effective_size": 21, "max_samples": 20}, "effective_size must be at"),
    ],
)
def test_senseless_sizes(options, named):
    with pytest.raises(ValueError, match=named):
        ImportanceHead(TableScorer(V, D), UniformSampler(V), **options)


def test_empty_batch_and_one_class():
    head = ImportanceHead(TableScorer(V, D), UniformSampler(V), num_samples=5, effective_size=50)
    assert head(torch.randn(0, D), torch.empty(0, dtype=torch.int64)).shape == (0,)
    assert head.last_draw.mean_effective_size == 0.0
    single = ImportanceHead(TableScorer(1, D), UniformSampler(1), num_samples=3, effective_size=3)
    losses = single(torch.randn(2, D), torch.zeros(2, dtype=torch.int64))
    assert losses.tolist() == pytest.approx([0.0, 0.0], abs=1e-6)
    assert single.last_draw.num_drawn == 3


def test_large_scores_and_half_precision_stay_finite():
    scorer = TableScorer(V, D)
    head = ImportanceHead(scorer, UniformSampler(V), num_samples=8, effective_size=4)
    assert head(1e4 * torch.randn(3, D), torch.arange(3)).isfinite().all()
    half = head.bfloat16()
    losses = half(torch.randn(3, D).bfloat16(), torch.arange(3))
    assert losses.dtype == torch.float32
    assert losses.isfinite().all()
