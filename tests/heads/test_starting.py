"""Where a logistic head starts: its loss, its gradient and its ranking in the first steps."""

import math
from functools import partial

import pytest
import torch

import widemax as wm
from widemax.models import NextItem, SkipGram
from widemax.objectives import (
    full_logistic,
    gbce,
    nce,
    negative_sampling,
    sampled_logistic,
    sampled_softmax,
)
from widemax.optim import RowAdagrad
from widemax.sampling import (
    AllClassesSampler,
    HardNegativeSampler,
    InBatchSampler,
    StreamingFrequency,
    UniformSampler,
    UnigramSampler,
)
from widemax.scoring import ShardedTableScorer

V, D = 500, 8
COUNTS = (20_000 / torch.arange(1, V + 1)).long()
PROB = (COUNTS + 1.0).double() / (COUNTS + 1.0).sum()

SAMPLERS = {
    "uniform": lambda: UniformSampler(V),
    "unigram": lambda: UnigramSampler(V, COUNTS),
    "unigram, distinct": lambda: UnigramSampler(V, COUNTS, unique=True),
}

LOGISTIC = [
    *(
        (objective, name)
        for objective in (nce, sampled_logistic, negative_sampling)
        for name in SAMPLERS
    ),
    *((objective, "uniform") for objective in (gbce, partial(gbce, calibration=0.0))),
]


def targets(number, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.multinomial(PROB, number, replacement=True, generator=generator)


def made(objective, sampler, *, counts=COUNTS, num_samples=20):
    torch.manual_seed(0)
    scorer = wm.TableScorer(V, D, bias=True)
    return wm.SampledHead(
        scorer, sampler, objective=objective, num_samples=num_samples, counts=counts
    )


def mean_gradient(head):
    """The gradient of the biases over many examples that say nothing, for each draw of them."""
    torch.nn.init.zeros_(head.scorer.weight)
    generator = torch.Generator().manual_seed(1)
    for seed in range(100):
        chosen = targets(2000, seed)
        loss = head(torch.zeros(len(chosen), D), chosen, generator=generator).mean() / 100
        loss.backward()
    return head.scorer.bias.grad.double()


@pytest.mark.parametrize(("objective", "name"), LOGISTIC)
def test_the_biases_start_where_an_empty_context_leaves_them(objective, name):
    head = made(objective, SAMPLERS[name]())
    gradient = mean_gradient(head)
    torch.nn.init.zeros_(head.scorer.bias)
    head.scorer.bias.grad = None
    at_zero = mean_gradient(head)
    assert gradient.norm() < 0.1 * at_zero.norm()
    # The pull on the frequent classes, which at 0 are pushed down by every draw.
    assert gradient[:10].abs().max() < 0.3 * PROB[0]


def test_full_logistic_starts_at_the_log_odds():
    head = made(full_logistic, AllClassesSampler(V), num_samples=None)
    torch.testing.assert_close(head.scorer.bias.double(), torch.logit(PROB), atol=1e-5, rtol=0)


@pytest.mark.parametrize("objective", [nce, sampled_logistic, negative_sampling])
def test_the_first_steps_find_what_is_popular(objective):
    """Nothing but popularity can be known here: the first ten classes hold half of all targets."""
    head = made(objective, UniformSampler(V), num_samples=50)
    optimizer = RowAdagrad(head.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(1)
    losses = []
    for step in range(60):
        hidden = torch.randn(64, D, generator=generator)
        loss = head(hidden, targets(64, step), generator=generator).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step in (0, 10, 59):
            asked = targets(500, 1000 + step)
            found = head.topk(torch.randn(500, D, generator=generator), 10).ids
            recall = (found == asked[:, None]).any(1).double().mean().item()
            assert recall > 0.7 * PROB[:10].sum().item()
    assert losses[0] < 1.6 * losses[-1]


def test_without_counts_the_draws_stand_for_the_targets():
    sampler = UnigramSampler(V, COUNTS)
    log_prob = sampler.log_prob(torch.arange(V))
    bias = made(nce, sampler, counts=None).scorer.bias.double()
    torch.testing.assert_close(bias, log_prob, atol=1e-5, rtol=0)
    bias = made(negative_sampling, sampler, counts=None).scorer.bias
    torch.testing.assert_close(bias, torch.full((V,), 1 / 20).log(), atol=1e-5, rtol=0)
    some = UnigramSampler(3, [8, 0, 2], distortion=1.0)
    rare = wm.SampledHead(wm.TableScorer(3, 2, bias=True), some, objective=nce, num_samples=2)
    torch.testing.assert_close(rare.scorer.bias.exp(), torch.tensor([0.8, 0.2, 0.2]))


def test_biases_start_evenly_where_a_class_alone_has_no_probability():
    in_batch = made(nce, InBatchSampler(V, StreamingFrequency(V)), counts=None, num_samples=None)
    torch.testing.assert_close(in_batch.scorer.bias.exp(), torch.full((V,), 1 / V))
    scorer = wm.TableScorer(V, D, bias=True)
    hard = HardNegativeSampler(V, wm.FullHead(scorer).topk)
    wm.SampledHead(scorer, hard, objective=negative_sampling, num_samples=5)
    torch.testing.assert_close(scorer.bias.exp(), torch.full((V,), 1 / 5))


def test_biases_that_were_learned_or_that_a_softmax_reads_stay():
    assert not made(sampled_softmax, UniformSampler(V)).scorer.bias.any()
    scorer = wm.TableScorer(V, D, bias=True)
    scorer.bias.data[3] = 0.5
    before = scorer.bias.detach().clone()
    wm.SampledHead(scorer, UniformSampler(V), objective=nce, num_samples=5, counts=COUNTS)
    assert torch.equal(scorer.bias, before)
    plain = wm.SampledHead(wm.TableScorer(V, D), UniformSampler(V), objective=nce, num_samples=5)
    assert plain.scorer.bias is None


def test_runs_start_at_their_counts():
    model = NextItem.create(COUNTS, objective="nce", dimension=D)  # with a bias, as usual
    torch.testing.assert_close(model.head.scorer.bias.double(), PROB.log(), atol=1e-5, rtol=0)
    words = SkipGram.create(COUNTS, trainer="torch", bias=True, dimension=D, num_samples=5)
    log_count = UnigramSampler(V, COUNTS).log_prob(torch.arange(V)) + math.log(5)
    expected = PROB.log() - log_count
    torch.testing.assert_close(words.head.scorer.bias.double(), expected, atol=1e-5, rtol=0)


def test_gbce_gets_the_number_of_classes_from_the_head():
    head, given = (
        made(objective, UniformSampler(V)) for objective in (gbce, partial(gbce, num_classes=V))
    )
    losses = [
        each(torch.ones(4, D), torch.arange(4), generator=torch.Generator().manual_seed(2))
        for each in (head, given)
    ]
    assert torch.equal(*losses)
    with pytest.raises(ValueError, match=r"num_classes = 500 like the scorer, got 9; leave it out"):
        made(partial(gbce, num_classes=9), UniformSampler(V))


def test_counts_of_other_classes_are_refused():
    with pytest.raises(ValueError, match=r"counts must have shape \[num_classes\] = \[500\]"):
        made(nce, UniformSampler(V), counts=COUNTS[:9])


@pytest.mark.parametrize("shard_by", ["mod", "div"])
def test_biases_in_shards_start_as_those_of_one_table(shard_by):
    one = made(nce, UniformSampler(V)).scorer.bias
    scorer = ShardedTableScorer(V, D, num_shards=3, shard_by=shard_by, bias=True)
    wm.SampledHead(scorer, UniformSampler(V), objective=nce, num_samples=20, counts=COUNTS)
    assert one.any()
    torch.testing.assert_close(scorer.class_biases(), one)


def test_distinct_draws_start_at_the_expected_counts_that_the_sampler_states():
    sampler = UnigramSampler(V, COUNTS, unique=True, distortion=1.0)
    bias = made(negative_sampling, sampler, num_samples=100).scorer.bias.double()
    generator = torch.Generator().manual_seed(0)
    stated = torch.stack(
        [
            sampler.sample(100, torch.arange(V), generator=generator).target_log_expected_count
            for _ in range(200)
        ]
    )
    # The number of tries differs from draw to draw, by some percent.
    torch.testing.assert_close(bias, PROB.log() - stated.mean(0), atol=0.03, rtol=0)
