"""The n-gram proposal that follows the model: its formula by hand, and what it reaches."""

import math

import pytest
import torch

from tests.sampling.test_ngram_sampler import CONTEXTS, CORPUS, V, divergence
from widemax.contracts.distribution import check_distribution
from widemax.contracts.sampler import check_sampler
from widemax.heads import ImportanceHead
from widemax.models import NNLM
from widemax.sampling import AdaptiveNGramSampler, NGramSampler
from widemax.scoring import TableScorer


def adaptive(**options):
    sampler = AdaptiveNGramSampler.from_corpus(CORPUS, V, order=3, **options)
    sampler.set_context(CONTEXTS)
    return sampler


def follow(sampler, truth, *, steps, seed=0, **options):
    """Adapt to draws whose weights are those of log P ``truth`` [R, V]."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        drawn = sampler.sample(20, torch.zeros(len(truth), dtype=torch.int64), generator=generator)
        ratios = truth.gather(1, drawn.ids) - drawn.log_expected_count
        sampler.adapt(drawn.ids, ratios, **options)


def every_class(sampler):
    return sampler.log_prob(torch.arange(V).expand(len(sampler._sizes), V)).exp()


def by_hand(text, context, stops, least):
    """p(y | context) by counting slices of a list, from the uniform distribution up."""
    probability = torch.full((V,), 1 / V, dtype=torch.float64)
    for n in range(1, 4):
        before = context[len(context) - n + 1 :]
        counts = torch.zeros(V, dtype=torch.float64)
        for i in range(len(text) - n + 1):
            counts[text[i + n - 1]] += text[i : i + n - 1] == before
        if counts.sum():
            stop = stops[n - 1, min(15, math.floor(math.log2(counts.sum())))]
            probability = stop * counts / counts.sum() + (1 - stop) * probability
    return least / V + (1 - least) * probability


def test_probabilities_are_those_of_counting_by_hand():
    sampler = adaptive(least_uniform=0.05)
    sampler.stops.copy_(torch.rand(3, 16, generator=torch.Generator().manual_seed(2)))
    found = every_class(sampler)
    for row, context in enumerate(CONTEXTS.tolist()):
        expected = by_hand(CORPUS.tolist(), context, sampler.stops, 0.05)
        torch.testing.assert_close(found[row], expected, rtol=1e-12, atol=1e-15)


def moved_by_hand(probabilities, drawn, ratios, rate):
    """One row: q_n of each order as a dict of classes, moved by the formula of the docstring."""
    moved = []
    for own in probabilities:
        wanted = {y: r * own[y] for y, r in zip(drawn, ratios, strict=True) if y in own}
        mass, total = sum(own[y] for y in wanted), sum(wanted.values())
        new = {y: (1 - rate) * own[y] + rate * mass * wanted[y] / total for y in wanted}
        moved.append({**own, **new})
    return moved


def n_grams(sampler, row):
    """The q_n of one row, by class."""
    return [
        {
            int(sampler._distinct[place]) % V: float(sampler._probabilities[place])
            for place in range(sampler._firsts[row, n], sampler._lasts[row, n])
        }
        for n in range(sampler.order)
    ]


@pytest.mark.parametrize("context", [[0, 1], [11, 4], [-1, -1]])
def test_a_step_is_the_formula_by_hand(context):
    sampler = AdaptiveNGramSampler.from_corpus(CORPUS[:90], V, order=3, adaptation_rate=0.3)
    sampler.set_context(torch.tensor([context]))
    drawn, ratios = [1, 4, 4, 7, 2, 11, 0], torch.tensor([[0.3, -1.0, -1.0, 2.0, 0.0, 0.5, 1.0]])
    expected = moved_by_hand(n_grams(sampler, 0), drawn, ratios.double().exp()[0].tolist(), 0.3)
    sampler.adapt(torch.tensor([drawn]), ratios)
    for found, wanted in zip(n_grams(sampler, 0), expected, strict=True):
        assert found == pytest.approx(wanted, rel=1e-12)


def test_a_proposal_that_is_the_model_stays():
    sampler = adaptive(adaptation_rate=0.5)
    follow(sampler, every_class(sampler).log(), steps=1)
    # The weights of the orders move with what happened to be drawn; the n-grams do not.
    torch.testing.assert_close(
        sampler._probabilities, adaptive()._probabilities, rtol=1e-12, atol=0
    )


def test_mass_stays_and_draws_follow_what_was_learned():
    sampler = adaptive(adaptation_rate=0.5)
    truth = torch.randn(len(CONTEXTS), V, generator=torch.Generator().manual_seed(0))
    follow(sampler, 2 * truth.double(), steps=50)
    probability = every_class(sampler)
    ones = torch.ones(len(CONTEXTS), dtype=torch.float64)
    torch.testing.assert_close(probability.sum(-1), ones, rtol=0, atol=1e-12)
    draws = sampler.sample(
        50_000, torch.arange(len(CONTEXTS)), generator=torch.Generator().manual_seed(0)
    )
    for row in range(len(CONTEXTS)):
        check_distribution(torch.bincount(draws.ids[row], minlength=V), probability[row])


@pytest.mark.parametrize("context", [None, [0, 1]])
def test_contract_in_one_context(context):
    sampler = adaptive()
    sampler.set_context(None if context is None else torch.tensor([context]))
    follow(sampler, torch.randn(1, V).double(), steps=20)
    assert check_sampler(sampler, draws=100_000) > 1e-6


def test_it_comes_nearer_to_the_model_than_weights_alone():
    """The model has seen what no count of the corpus says."""
    generator = torch.Generator().manual_seed(3)
    truth = (1.5 * torch.randn(len(CONTEXTS), V, generator=generator).double()).log_softmax(-1)
    fixed = NGramSampler.from_corpus(CORPUS, V, order=3)
    fixed.set_context(CONTEXTS)
    sampler = adaptive()
    for each in (fixed, sampler):
        follow(each, truth, steps=400)
    assert divergence(truth, sampler) < 0.7 * divergence(truth, fixed)


def test_weights_are_learned_by_the_count_of_the_context():
    """A model that trusts frequent contexts only: one weight for all cannot say that."""
    contexts = CORPUS[:600].unfold(0, 2, 1)
    model = AdaptiveNGramSampler.from_corpus(CORPUS, V, order=3, adaptation_rate=0.0)
    model.stops[:, :5], model.stops[:, 5:] = 0.1, 0.9
    sampler = AdaptiveNGramSampler.from_corpus(CORPUS, V, order=3, adaptation_rate=0.0)
    for each in (model, sampler):
        each.set_context(contexts)
    truth = every_class(model).log()
    follow(sampler, truth, steps=60, rate=0.3)
    seen = torch.bincount(sampler._bins()[sampler._sizes[:, 2] > 0, 2], minlength=16) > 30
    assert seen.sum() >= 2
    found, wanted = sampler.stops[2, seen], model.stops[2, seen]
    torch.testing.assert_close(found, wanted, rtol=0, atol=0.12)


def test_what_was_learned_is_part_of_the_state():
    sampler, fresh = adaptive(), adaptive()
    follow(sampler, torch.zeros(len(CONTEXTS), V).double(), steps=5)
    assert sorted(sampler.state_dict()) == ["_probabilities", "_sums", "stops"]
    assert not torch.equal(every_class(sampler), every_class(fresh))
    fresh.load_state_dict(sampler.state_dict())
    for each in (sampler, fresh):
        follow(each, torch.zeros(len(CONTEXTS), V).double(), steps=3, seed=7)
    assert torch.equal(every_class(sampler), every_class(fresh))


def test_a_rate_of_0_leaves_the_n_grams():
    sampler = adaptive(adaptation_rate=0.0)
    before = sampler._probabilities.clone()
    follow(sampler, torch.randn(len(CONTEXTS), V).double(), steps=5)
    assert torch.equal(sampler._probabilities, before)
    assert not (sampler.stops == 0.5).all()


def test_an_importance_head_teaches_it():
    sampler = adaptive()
    head = ImportanceHead(TableScorer(V, 4), sampler, num_samples=16)
    before = sampler._probabilities.clone()
    head(torch.randn(len(CONTEXTS), 4), torch.arange(len(CONTEXTS)), context=CONTEXTS)
    assert not torch.equal(sampler._probabilities, before)


def test_only_a_head_that_teaches_it_takes_it():
    with pytest.raises(ValueError, match="importance"):
        NNLM.create([3, 2, 1], sampler="adaptive-n-gram", head="sampled")


@pytest.mark.parametrize("rate", [-0.1, 1.0, math.nan])
def test_a_wrong_rate_is_refused(rate):
    with pytest.raises(ValueError, match="adaptation_rate"):
        adaptive(adaptation_rate=rate)
