"""The model's own best classes as candidates: which they are, and what they are not."""

import copy
import math

import pytest
import torch

from widemax.contracts.head import check_head
from widemax.heads import FullHead, SampledHead
from widemax.objectives import corrected_log_q, info_nce, nce, sampled_softmax
from widemax.sampling import MixtureSampler, UniformSampler
from widemax.sampling.conditional.hard import HardNegativeSampler
from widemax.scoring import TableScorer

V, D = 25, 4


def make(first_rank=0, num_ranks=None, scorer=None):
    scorer = scorer or TableScorer(V, D)
    search = FullHead(scorer).topk
    return scorer, HardNegativeSampler(V, search, first_rank=first_rank, num_ranks=num_ranks)


def sorted_ids(scorer, hidden):
    return (hidden @ scorer.weight.T).argsort(-1, descending=True)


def test_candidates_are_the_best_of_the_model():
    scorer, sampler = make()
    hidden, targets = torch.randn(6, D), torch.arange(6)
    candidates = sampler.sample(5, targets, hidden=hidden)
    assert torch.equal(candidates.ids, sorted_ids(scorer, hidden)[:, :5])
    assert torch.equal(candidates.log_expected_count, torch.zeros(6, 5, dtype=torch.float64))
    assert torch.equal(candidates.target_log_expected_count, torch.zeros(6, dtype=torch.float64))


def test_semi_hard_candidates_are_the_next_ranks():
    scorer, sampler = make(first_rank=3)
    hidden = torch.randn(6, D)
    ids = sampler.sample(4, torch.arange(6), hidden=hidden).ids
    assert torch.equal(ids, sorted_ids(scorer, hidden)[:, 3:7])


def test_a_random_subset_of_a_wider_band_is_distinct_and_even():
    scorer, sampler = make(first_rank=2, num_ranks=6)
    hidden = torch.randn(1, D).expand(3000, D)
    generator = torch.Generator().manual_seed(0)
    ids = sampler.sample(3, torch.zeros(3000).long(), hidden=hidden, generator=generator).ids
    ordered = ids.sort(-1).values
    assert bool((ordered[:, 1:] != ordered[:, :-1]).all())
    counts = torch.bincount(ids.flatten(), minlength=V)
    band = sorted_ids(scorer, hidden[:1])[0, 2:8]
    assert int(counts.sum()) == int(counts[band].sum()) == 9000
    assert bool(((counts[band] - 1500).abs() < 150).all())
    again = sampler.sample(
        3, torch.zeros(3000).long(), hidden=hidden, generator=torch.Generator().manual_seed(0)
    )
    assert torch.equal(ids, again.ids)
    everything = sampler.sample(None, torch.tensor([0]), hidden=hidden[:1]).ids
    assert torch.equal(everything[0], band)


def test_candidates_follow_the_model_as_it_learns():
    torch.manual_seed(0)
    scorer, sampler = make()
    head = SampledHead(scorer, sampler, objective=info_nce, num_samples=6)
    optimiser = torch.optim.Adam(head.parameters(), lr=0.05)
    hidden, targets = torch.randn(8, D), torch.arange(8)
    before = sampler.sample(6, targets, hidden=hidden).ids
    for _ in range(100):
        optimiser.zero_grad()
        head(hidden, targets).mean().backward()
        optimiser.step()
    assert not torch.equal(before, sampler.sample(6, targets, hidden=hidden).ids)
    assert torch.equal(head.topk(hidden, 1).ids[:, 0], targets)


@pytest.mark.parametrize("objective", [sampled_softmax, info_nce, nce])
def test_the_head_keeps_its_contract(objective):
    torch.manual_seed(0)
    scorer, sampler = make(first_rank=1)
    head = SampledHead(scorer, sampler, objective=objective, num_samples=5)
    check_head(head, dimension=D)


def test_with_every_class_the_softmax_is_exact():
    scorer, sampler = make()
    head = SampledHead(scorer, sampler, objective=sampled_softmax, num_samples=V)
    hidden, targets = torch.randn(6, D), torch.arange(6)
    torch.testing.assert_close(head(hidden, targets), FullHead(scorer)(hidden, targets))


def test_it_says_that_it_is_no_probability_sample():
    _, sampler = make()
    assert sampler.is_probability_sample is False
    with pytest.raises(ValueError, match="no log_prob"):
        sampler.log_prob(torch.tensor([1]))
    with pytest.raises(ValueError, match="no probability sample"):
        MixtureSampler([sampler, UniformSampler(V, per_example=True)], [0.5, 0.5])


def test_a_copied_head_searches_its_own_copy():
    scorer, sampler = make()
    head = SampledHead(scorer, sampler, num_samples=3)
    other = copy.deepcopy(head)
    torch.nn.init.normal_(other.scorer.weight)
    hidden = torch.randn(2, D)
    ids = other.sampler.sample(3, torch.tensor([0, 1]), hidden=hidden).ids
    assert torch.equal(ids, sorted_ids(other.scorer, hidden)[:, :3])
    assert list(head.state_dict()) == ["scorer.weight"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"first_rank": -1}, "first_rank"),
        ({"first_rank": V}, "first_rank"),
        ({"first_rank": 1.5}, "first_rank"),
        ({"num_ranks": 0}, "num_ranks"),
        ({"first_rank": 5, "num_ranks": V - 4}, "num_ranks"),
    ],
)
def test_invalid_ranks(options, named):
    with pytest.raises(ValueError, match=named):
        make(**options)


def test_invalid_calls():
    _, sampler = make(first_rank=5)
    hidden, targets = torch.randn(2, D), torch.tensor([1, 2])
    for number in (0, -1, V - 4, 3590707793247644003, None):
        with pytest.raises(ValueError, match="num_samples"):
            sampler.sample(number, targets, hidden=hidden)
    for wrong in (None, hidden[:1], hidden[0]):
        with pytest.raises(ValueError, match="hidden"):
            sampler.sample(3, targets, hidden=wrong)
    for wrong in (V, -1, 2**62):
        with pytest.raises(ValueError, match="targets"):
            sampler.sample(3, torch.tensor([1, wrong]), hidden=hidden)
    with pytest.raises(ValueError, match="search"):
        HardNegativeSampler(V, "topk")
    assert sampler.sample(3, targets[:0], hidden=hidden[:0]).ids.shape == (0, 3)


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        (torch.tensor([[1, -1], [2, 3]]), "search's ids must lie"),
        (torch.tensor([[1, V], [2, 3]]), "search's ids must lie"),
        (torch.tensor([[1], [2]]), "search must return"),
        (torch.tensor([[0.5, 1], [2, 3]]), "search's ids must hold whole numbers"),
    ],
)
def test_a_search_that_answers_wrongly(answer, named):
    sampler = HardNegativeSampler(V, lambda hidden, k: answer)
    with pytest.raises(ValueError, match=named):
        sampler.sample(2, torch.tensor([1, 2]), hidden=torch.randn(2, D))


def test_nan_in_the_model_is_named_by_the_search():
    scorer, sampler = make()
    scorer.weight.data[3] = math.nan
    with pytest.raises(ValueError, match="NaN"):
        sampler.sample(2, torch.tensor([1]), hidden=torch.randn(1, D))


def test_a_batch_in_which_every_negative_is_the_target():
    scorer, sampler = make()
    hidden = torch.randn(3, D, requires_grad=True)
    targets = FullHead(scorer).topk(hidden, 1).ids[:, 0]
    for objective in (sampled_softmax, corrected_log_q, info_nce):
        head = SampledHead(scorer, sampler, objective=objective, num_samples=1)
        losses = head(hidden, targets)
        losses.sum().backward()
        assert losses.isfinite().all()
        assert hidden.grad.isfinite().all()
