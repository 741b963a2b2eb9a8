"""The Kneser–Ney proposal: its stated distribution, its draws, and what it refuses."""

import math

import pytest
import torch

from tests.ngrams.test_arpa import katz
from tests.ngrams.test_ngrams import fit, random_sentences
from widemax.contracts.distribution import check_distribution
from widemax.contracts.sampler import check_sampler
from widemax.heads import ImportanceHead, SampledHead
from widemax.objectives import importance_sampling, nce
from widemax.sampling import MixtureSampler, UniformSampler
from widemax.sampling.conditional.kneser_ney import KneserNeySampler
from widemax.scoring import TableScorer

V = 9
CONTEXTS = torch.tensor([[0, 1], [1, 0], [8, 0], [8, 8], [-1, 0], [-1, -1], [0, 3]])
MODEL = fit("modified_kneser_ney", random_sentences(0, V, 150), V, 3)


@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.parametrize("kind", ["kneser_ney", "modified_kneser_ney"])
def test_log_prob_is_that_of_the_model(kind, order):
    model = fit(kind, random_sentences(0, V, 150), V, order)
    contexts = torch.cat([torch.full((7, 2), 0), CONTEXTS], dim=1)[:, 5 - order :]
    sampler = KneserNeySampler(model)
    sampler.set_context(contexts)
    found = sampler.log_prob(torch.arange(V).expand(7, V))
    torch.testing.assert_close(found, model.log_probs(contexts), rtol=0, atol=1e-12)
    sampler.set_context(None)
    unigram = model.log_probs(torch.empty(1, 0, dtype=torch.int64))[0]
    torch.testing.assert_close(sampler.log_prob(torch.arange(V)), unigram)


@pytest.mark.parametrize("context", [None, *CONTEXTS.tolist()])
def test_contract_in_one_context(context):
    sampler = KneserNeySampler(MODEL)
    sampler.set_context(None if context is None else torch.tensor([context]))
    assert check_sampler(sampler, draws=200_000) > 1e-6


def test_draws_follow_log_prob_in_every_row_of_a_batch():
    sampler = KneserNeySampler(MODEL)
    sampler.set_context(CONTEXTS)
    targets = torch.arange(7)
    candidates = sampler.sample(100_000, targets, generator=torch.Generator().manual_seed(0))
    probability = sampler.log_prob(torch.arange(V).expand(7, V)).exp()
    for row in range(7):
        counts = torch.bincount(candidates.ids[row], minlength=V)
        check_distribution(counts, probability[row])
    log_size = math.log(100_000)
    torch.testing.assert_close(
        candidates.log_expected_count, sampler.log_prob(candidates.ids) + log_size
    )
    torch.testing.assert_close(
        candidates.target_log_expected_count, probability[range(7), range(7)].log() + log_size
    )


def test_importance_head_hands_over_the_context():
    head = ImportanceHead(TableScorer(V, 4), KneserNeySampler(MODEL), num_samples=8)
    hidden, targets = torch.randn(7, 4), torch.tensor([0, 1, -100, 3, 4, 5, 6])
    losses = head(hidden, targets, context=CONTEXTS, generator=torch.Generator().manual_seed(0))
    assert losses.isfinite().all()
    assert losses[2] == 0


def test_importance_sampling_with_the_models_own_law_needs_one_draw():
    """Where F = log p(y | context), every ratio exp(F)/q is 1 and log Z = 0 is found exactly."""
    sampler = KneserNeySampler(MODEL)
    sampler.set_context(CONTEXTS)
    every = torch.arange(V).expand(7, V)
    scores, targets = sampler.log_prob(every), torch.arange(7)
    drawn = sampler.sample(1, targets, generator=torch.Generator().manual_seed(0))
    losses = importance_sampling(
        scores.gather(1, targets[:, None])[:, 0],
        scores.gather(1, drawn.ids),
        log_expected_count=drawn.log_expected_count,
    )
    torch.testing.assert_close(losses, -scores[range(7), range(7)], rtol=0, atol=1e-12)


def test_in_heads_and_mixtures():
    sampler = KneserNeySampler(MODEL)
    sampler.set_context(CONTEXTS)
    hidden, targets = torch.randn(7, 4), torch.arange(7)
    for objective in (importance_sampling, nce):
        head = SampledHead(TableScorer(V, 4), sampler, objective=objective, num_samples=10)
        assert head(hidden, targets).isfinite().all()
    mixture = MixtureSampler([sampler, UniformSampler(V, per_example=True)], [0.5, 0.5])
    assert mixture.sample(10, targets).ids.shape == (7, 10)


def test_the_tables_are_no_state_and_keep_their_precision():
    sampler = KneserNeySampler(MODEL)
    assert list(sampler.state_dict()) == []
    before = sampler.log_prob(torch.arange(V))
    sampler.half()
    assert torch.equal(sampler.log_prob(torch.arange(V)), before)


def test_the_context_must_belong_to_the_batch():
    sampler = KneserNeySampler(MODEL)
    sampler.set_context(CONTEXTS)
    with pytest.raises(ValueError, match=r"context has 7 rows.*set_context"):
        sampler.sample(5, torch.tensor([1, 2]))
    for wrong in (torch.zeros(7, 1), torch.zeros(2), torch.zeros(7, 3)):
        with pytest.raises(ValueError, match=r"context must have shape \[B, 2\]"):
            sampler.set_context(wrong.long())
    for value in (V, -2, 2**62):
        with pytest.raises(ValueError, match="context must lie"):
            sampler.set_context(torch.tensor([[0, value]]))
    sampler.set_context(CONTEXTS[:0])
    assert sampler.sample(5, torch.empty(0, dtype=torch.int64)).ids.shape == (0, 5)
    sampler.set_context(None)
    assert sampler.sample(5, torch.tensor([1, 2])).ids.shape == (2, 5)


def test_an_ngram_whose_end_is_not_listed(tmp_path):
    """a b c is there, b c is not: what a b passes on to c is then p(c) itself."""
    a_third, bigram, trigram = (math.log10(p) for p in (1 / 3, 0.5 + 0.5 / 3, 0.6 + 0.4 / 3))
    text = (
        "\\data\\\nngram 1=3\nngram 2=1\nngram 3=1\n"
        f"\\1-grams:\n{a_third} a {math.log10(0.5)}\n{a_third} b\n{a_third} c\n"
        f"\\2-grams:\n{bigram} a b {math.log10(0.4)}\n"
        f"\\3-grams:\n{trigram} a b c\n\\end\\\n"
    )
    sampler = KneserNeySampler(katz(tmp_path, text)[0])
    sampler.set_context(torch.tensor([[0, 1]]))
    probs = sampler.log_prob(torch.arange(3)).exp()
    assert probs.tolist() == pytest.approx([0.4 / 3, 0.4 / 3, 0.6 + 0.4 / 3])
    assert check_sampler(sampler, draws=100_000) > 1e-6


def test_models_that_cannot_propose_are_refused(tmp_path):
    with pytest.raises(ValueError, match="every class a probability above 0"):
        KneserNeySampler(fit("maximum_likelihood", [[0, 1], [1, 1]], 3, 2))
    with pytest.raises(ValueError, match="every class a probability above 0"):
        KneserNeySampler(katz(tmp_path)[0])
    text = "\\data\\\nngram 1=2\nngram 2=1\n\\1-grams:\n-0.30103 a {}\n-0.30103 b\n\\2-grams:\n"
    text += "{} a b\n\\end\\\n"
    sound, less, more = ((-0.30103, -0.124939), (0.2, -0.6), (-0.30103, -0.2))
    KneserNeySampler(katz(tmp_path, text.format(*sound))[0])  # p(b | a) = 0.5 + 0.5 · 0.5
    with pytest.raises(ValueError, match=r"interpolated.*less likely"):
        KneserNeySampler(katz(tmp_path, text.format(*less))[0])
    with pytest.raises(ValueError, match=r"interpolated.*sum to 0\.8"):
        KneserNeySampler(katz(tmp_path, text.format(*more))[0])
    with pytest.raises(ValueError, match="must be an NGramModel, got str"):
        KneserNeySampler("kneser-ney")
