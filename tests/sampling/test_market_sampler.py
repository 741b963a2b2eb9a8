"""Negatives of the target's market: their distribution, their log Q, and mixtures with others."""

import math

import pytest
import torch

from widemax.contracts.distribution import check_distribution
from widemax.contracts.sampler import check_sampler
from widemax.sampling import MixtureSampler, UnigramSampler
from widemax.sampling.conditional.market import MarketSampler

V = 40
MARKETS = torch.tensor([(7 * y) % 5 * 10 for y in range(V)])
"""Markets 0, 10, … 40, in no order of the classes."""
COUNTS = torch.tensor([1000 // (1 + (3 * y) % V) for y in range(V)])


def build(distortion=0.75):
    return MarketSampler(MARKETS, COUNTS, distortion=distortion)


def by_hand(market, distortion=0.75):
    weights = [float(COUNTS[y]) ** distortion if MARKETS[y] == market else 0.0 for y in range(V)]
    return torch.tensor(weights, dtype=torch.float64) / sum(weights)


@pytest.mark.parametrize("market", [0, 10, 40])
def test_contract_in_one_market(market):
    sampler = build()
    sampler.set_markets(torch.tensor([market]))
    assert check_sampler(sampler, draws=200_000) > 1e-6


@pytest.mark.parametrize("distortion", [-0.5, 0.0, 0.75, 1.0])
def test_draws_follow_log_prob_in_every_row_of_a_batch(distortion):
    sampler = build(distortion)
    targets = torch.tensor([0, 1, 2, 3, 4, 0])
    candidates = sampler.sample(20_000, targets, generator=torch.Generator().manual_seed(0))
    probability = sampler.log_prob(torch.arange(V).expand(6, V)).exp()
    for row, target in enumerate(targets.tolist()):
        expected = by_hand(int(MARKETS[target]), distortion)
        torch.testing.assert_close(probability[row], expected, rtol=1e-6, atol=0)
        check_distribution(torch.bincount(candidates.ids[row], minlength=V), expected)
    log_size = math.log(20_000)
    torch.testing.assert_close(
        candidates.log_expected_count, sampler.log_prob(candidates.ids) + log_size
    )
    torch.testing.assert_close(
        candidates.target_log_expected_count, probability[range(6), targets].log() + log_size
    )


def test_the_first_positive_that_is_there_names_the_market():
    sampler = build()
    targets = torch.tensor([[3, 4], [-1, 4], [4, -1]])
    candidates = sampler.sample(50, targets, generator=torch.Generator().manual_seed(0))
    assert (MARKETS[candidates.ids] == MARKETS[[3, 4, 4]][:, None]).all()
    counts = candidates.target_log_expected_count
    assert counts[0, 1] == -math.inf, "class 4 is not of the market of class 3"
    assert counts[1, 0] == counts[2, 1] == 0
    assert counts[[0, 1, 2], [0, 1, 0]].isfinite().all()


def test_a_mixture_with_all_classes_has_exact_expected_counts():
    everywhere = UnigramSampler(V, COUNTS, per_example=True)
    sampler = MixtureSampler([everywhere, build()], [3, 5])
    targets = torch.tensor([0, 1, 7])
    candidates = sampler.sample(8, targets, generator=torch.Generator().manual_seed(0))
    assert candidates.ids.shape == (3, 8)
    assert (MARKETS[candidates.ids[:, 3:]] == MARKETS[targets][:, None]).all()
    everywhere_prob = everywhere.log_prob(torch.arange(V)).exp()
    for row, target in enumerate(targets.tolist()):
        expected = (3 * everywhere_prob + 5 * by_hand(int(MARKETS[target]))).log()
        torch.testing.assert_close(
            candidates.log_expected_count[row], expected[candidates.ids[row]], rtol=1e-6, atol=1e-6
        )
        torch.testing.assert_close(
            candidates.target_log_expected_count[row], expected[target], rtol=1e-6, atol=1e-6
        )


def test_classes_without_a_count_are_drawn_only_where_their_market_has_no_other():
    sampler = MarketSampler(torch.tensor([0, 0, 1, 1, 2]), [5, 0, 0, 0, 1])
    ids = sampler.sample(
        200, torch.tensor([1, 2, 4]), generator=torch.Generator().manual_seed(0)
    ).ids
    assert [set(row) for row in ids.tolist()] == [{0}, {2, 3}, {4}]


def test_the_same_seed_gives_the_same_bits_and_halving_the_model_changes_none():
    sampler, halved = build(), build().half()
    targets = torch.arange(10)
    first, second = (
        each.sample(6, targets, generator=torch.Generator().manual_seed(3))
        for each in (sampler, halved)
    )
    assert torch.equal(first.ids, second.ids)
    assert torch.equal(first.log_expected_count, second.log_expected_count)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: MarketSampler(torch.tensor([0, -1]), [1, 1]), "markets"),
        (lambda: MarketSampler(torch.tensor([[0, 1]]), [1, 1]), "markets"),
        (lambda: MarketSampler(torch.tensor([], dtype=torch.int64), []), "markets"),
        (lambda: MarketSampler(torch.tensor([0.0, 1.0]), [1, 1]), "markets"),
        (lambda: MarketSampler(torch.tensor([0, 1]), [1, 1, 1]), "counts"),
        (lambda: MarketSampler(torch.tensor([0, 1]), [1, 1], distortion=-11.0), "distortion"),
        (lambda: build().set_markets(torch.tensor([11])), "markets"),
        (lambda: build().set_markets(torch.tensor([99])), "markets"),
        (lambda: build().sample(None, torch.tensor([0])), "num_samples"),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
