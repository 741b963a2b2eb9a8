"""Perplexity against distributions written out in float64."""

import math

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from widemax.data import Sequences, Windows
from widemax.evaluation import (
    PerplexityReport,
    evaluate_perplexity,
    evaluate_ranking,
    mixed_perplexity,
    target_log_probs,
)
from widemax.heads import AdaptiveHead, FullHead, HierarchicalHead, SampledHead, SparsemaxHead, Tree
from widemax.models import MIND
from widemax.objectives import negative_sampling
from widemax.sampling import UniformSampler
from widemax.scoring import TableScorer

NUM_CLASSES, DIMENSION = 30, 6


def table():
    return TableScorer(NUM_CLASSES, DIMENSION, bias=True)


HEADS = {
    "full": lambda: FullHead(table()),
    "negative sampling": lambda: SampledHead(
        table(), UniformSampler(NUM_CLASSES), objective=negative_sampling, num_samples=5
    ),
    "adaptive": lambda: AdaptiveHead(DIMENSION, NUM_CLASSES, cutoffs=[5, 15]),
    "hierarchical": lambda: HierarchicalHead(DIMENSION, Tree.balanced(NUM_CLASSES)),
}


@pytest.fixture
def windows():
    generator = torch.Generator().manual_seed(0)
    lists = [torch.randint(NUM_CLASSES, (n,), generator=generator).tolist() for n in (700, 1, 900)]
    return Windows(Sequences.from_lists(lists), before=2)


@pytest.fixture
def encode():
    """A hidden state that depends on the whole context, padding too."""
    vectors = torch.randn(NUM_CLASSES + 1, DIMENSION, generator=torch.Generator().manual_seed(1))
    return lambda context: vectors[context].sum(1)


def learned(head):
    """Return the head with parameters drawn wide: at the start, some have all classes alike."""
    generator = torch.Generator().manual_seed(2)
    for parameter in head.parameters():
        nn.init.normal_(parameter, std=0.7, generator=generator)
    return head


@pytest.mark.parametrize("name", HEADS)
def test_perplexity_is_that_of_the_whole_distribution(name, windows, encode):
    head = learned(HEADS[name]())
    report = evaluate_perplexity(head, encode, windows)
    batch = windows.batch(torch.arange(len(windows)))
    whole = head.double().log_prob(encode(batch.context).double())
    torch.testing.assert_close(whole.exp().sum(-1), torch.ones(len(windows)).double())
    mean = whole[torch.arange(len(windows)), batch.targets].mean().item()
    assert report.tokens == len(windows) == 1601
    assert report.mean_log_prob == pytest.approx(mean, rel=1e-5)
    assert report.perplexity == pytest.approx(math.exp(-mean), rel=1e-5)


def test_scores_of_a_table_are_normalised_as_by_hand(windows, encode):
    head = learned(HEADS["negative sampling"]())
    batch = windows.batch(torch.arange(len(windows)))
    scores = encode(batch.context) @ head.scorer.weight.T + head.scorer.bias
    expected = scores.double().log_softmax(-1).gather(1, batch.targets[:, None])[:, 0]
    found = target_log_probs(head, encode, windows)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, expected.detach(), rtol=1e-5, atol=1e-5)


def test_perplexity_is_the_loss_of_the_ranking_report(windows, encode):
    head = learned(HEADS["full"]())
    loss = evaluate_ranking(lambda batch: head.log_prob(encode(batch.context)), windows).loss
    assert math.log(evaluate_perplexity(head, encode, windows).perplexity) == pytest.approx(loss)


def test_no_more_than_the_targets_are_asked_for(windows, encode):
    """[B, V] of a wide head would not fit; and progress adds up to the examples."""
    asked, seen = [], []

    class Watched(FullHead):
        def log_prob(self, hidden, ids=None):
            asked.append(tuple(ids.shape))
            return super().log_prob(hidden, ids)

    evaluate_perplexity(Watched(table()), encode, windows, progress=seen.append)
    assert asked == [(1024, 1), (577, 1)]
    assert seen == [1024, 577]


def test_a_target_of_probability_zero_makes_it_infinite(encode):
    windows = Windows(Sequences.from_lists([[1, 2]]), before=1)
    head = SparsemaxHead(TableScorer(NUM_CLASSES, DIMENSION))
    head.scorer.weight.data.zero_()
    head.scorer.weight.data[7] = 100 * encode(torch.tensor([[1]]))[0]
    report = evaluate_perplexity(head, encode, windows)
    assert report.perplexity == math.inf
    assert report.mean_log_prob == -math.inf


def test_a_perplexity_beyond_float64_is_infinite_too():
    assert PerplexityReport.from_log_probs(torch.tensor([-1000.0])).perplexity == math.inf


@pytest.mark.parametrize("weight", [0.0, 0.3, 0.5, 1.0])
def test_mixing_is_that_of_probabilities(weight):
    generator = torch.Generator().manual_seed(3)
    first, second = torch.rand(2, 50, generator=generator, dtype=torch.float64)
    mixed = mixed_perplexity(first.log(), second.log(), weight)
    expected = (weight * first + (1 - weight) * second).log().mean()
    assert mixed.mean_log_prob == pytest.approx(float(expected), abs=1e-12)


def test_mixing_survives_probabilities_that_float64_cannot_hold():
    tiny = torch.tensor([-2000.0, -math.inf])
    other = torch.tensor([-2000.0, -1.0])
    report = mixed_perplexity(tiny, other)
    assert report.mean_log_prob == pytest.approx((-2000 - 1 + math.log(0.5)) / 2)
    assert mixed_perplexity(tiny, tiny).perplexity == math.inf
    assert mixed_perplexity(tiny, other, 0.0).mean_log_prob == pytest.approx(-1000.5)


@pytest.mark.parametrize(
    ("log_probs", "message"),
    [
        (torch.tensor([-1.0, 2.0]), "at most 0, got 2"),
        (torch.tensor([-1.0, math.nan]), "at most 0, got nan"),
        (torch.zeros(0), r"shape \[N\], N at least 1, got \[0\]"),
        (torch.zeros(2, 2), r"got \[2, 2\]"),
        ([-1.0], "must be a tensor"),
    ],
)
def test_what_are_no_log_probabilities_is_refused(log_probs, message):
    with pytest.raises(ValueError, match=f"^log_probs.*{message}"):
        PerplexityReport.from_log_probs(log_probs)
    with pytest.raises(ValueError, match=f"^other_log_probs.*{message}"):
        mixed_perplexity(torch.tensor([-1.0, -1.0]), log_probs)


def test_mixing_refuses_weights_and_lengths():
    half = torch.full((3,), 0.5).log()
    for weight in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="weight must be between 0 and 1"):
            mixed_perplexity(half, half, weight)
    with pytest.raises(ValueError, match="same 3 tokens, got 2"):
        mixed_perplexity(half, half[:2])


def test_no_examples_are_refused(encode):
    with pytest.raises(ValueError, match="no examples"):
        evaluate_perplexity(
            FullHead(table()), encode, Windows(Sequences.from_lists([[]]), before=1)
        )


class LargestTensor(TorchDispatchMode):
    """Keeps how many values the largest tensor has that an operation makes."""

    values = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for each in tree_leaves(made):
            if isinstance(each, torch.Tensor):
                self.values = max(self.values, each.numel())
        return made


@pytest.mark.parametrize("interests", [1, 4])
def test_fault_35_ranking_holds_a_bounded_block_of_scores(interests):
    """What is found is what all rows at once would find."""
    num_classes, limit = 2**16, 2**24
    model = MIND.create(torch.ones(num_classes), dimension=4, num_interests=interests).eval()
    generator = torch.Generator().manual_seed(0)
    lists = torch.randint(num_classes, (2, 257), generator=generator).tolist()
    windows = Windows(Sequences.from_lists(lists), before=3, require_context=True)
    with LargestTensor() as largest:
        report = evaluate_ranking(model.log_prob, windows)
    assert largest.values <= limit
    with torch.no_grad():
        batch = windows.batch(torch.arange(len(windows)))
        assert len(batch.targets) * num_classes > limit
        whole = model.log_prob(batch)
    own = whole.gather(1, batch.targets[:, None])
    rank = 1 + (whole > own).sum(-1) + ((whole == own).sum(-1) - 1).double() / 2
    assert report.loss == pytest.approx(-own.double().mean().item(), rel=1e-6)
    assert report.mrr == pytest.approx((1 / rank).mean().item(), rel=1e-6)
