"""The n-gram proposal against counting by hand, and its EM against the model it follows."""

import math
from collections import Counter

import pytest
import torch

from widemax.contracts.distribution import check_distribution
from widemax.contracts.sampler import check_sampler
from widemax.heads import SampledHead
from widemax.objectives import importance_sampling, nce
from widemax.sampling import MixtureSampler, UniformSampler
from widemax.sampling.conditional.ngram import NGramSampler
from widemax.scoring import TableScorer

V = 12


def markov_corpus(length=3000, num_classes=V, seed=0):
    """A text of second order, in which some classes never occur."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(num_classes, num_classes, num_classes, generator=generator)
    logits[..., -2:] = -math.inf
    probability = logits.softmax(-1)
    text = [0, 1]
    for _ in range(length - 2):
        text.append(int(torch.multinomial(probability[text[-2], text[-1]], 1, generator=generator)))
    return torch.tensor(text)


CORPUS = markov_corpus()
CONTEXTS = torch.tensor([[0, 1], [3, 4], [11, 4], [11, 11], [-1, 5], [-1, -1], [5, -1]])


def by_hand(texts, context, weights):
    """p(y | context) by counting slices of lists."""
    terms, used = [], []
    for n in range(1, len(weights)):
        before = tuple(context[len(context) - n + 1 :]) if n > 1 else ()
        counts = Counter(
            text[i + n - 1]
            for text in texts
            for i in range(len(text) - n + 1)
            if tuple(text[i : i + n - 1]) == before
        )
        if counts and -1 not in before:
            terms.append([counts[y] / counts.total() for y in range(V)])
            used.append(weights[n])
    terms.append([1 / V] * V)
    used.append(weights[0])
    return [sum(w * t[y] for w, t in zip(used, terms, strict=True)) / sum(used) for y in range(V)]


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_probabilities_equal_counting_by_hand_and_sum_to_one(order):
    weights = [0.1, 0.2, 0.3, 0.15, 0.25][: order + 1]
    sampler = NGramSampler.from_corpus(CORPUS, V, order=order, weights=weights)
    contexts = torch.cat([torch.full((7, 2), -1), CONTEXTS], dim=1)[:, 4 - order + 1 :]
    sampler.set_context(contexts)
    log_prob = sampler.log_prob(torch.arange(V).expand(len(contexts), V))
    expected = [by_hand([CORPUS.tolist()], row, weights) for row in contexts.tolist()]
    torch.testing.assert_close(log_prob.exp(), torch.tensor(expected, dtype=torch.float64))
    torch.testing.assert_close(log_prob.exp().sum(-1), torch.ones(7, dtype=torch.float64))
    assert log_prob.isfinite().all(), "the uniform floor gives every class a probability"


def test_no_ngram_crosses_the_end_of_a_text():
    corpus = torch.tensor([0, 1, 2, -1, 3, 1, 2, -1, -1, 4])
    texts = [[0, 1, 2], [3, 1, 2], [4]]
    weights = [0.1, 0.2, 0.3, 0.4]
    sampler = NGramSampler.from_corpus(corpus, V, order=3, weights=weights)
    contexts = torch.tensor([[0, 1], [1, 2], [2, 3], [2, -1], [-1, 1], [4, 0]])
    sampler.set_context(contexts)
    found = sampler.log_prob(torch.arange(V).expand(6, V)).exp()
    expected = [by_hand(texts, row, weights) for row in contexts.tolist()]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


def test_an_unseen_context_backs_off_to_the_shorter_one():
    sampler = NGramSampler.from_corpus(CORPUS, V, order=3, weights=[0.0, 0.0, 0.5, 0.5])
    sampler.set_context(torch.tensor([[11, 4], [-1, 4]]))
    unseen, shorter = sampler.log_prob(torch.arange(V).expand(2, V))
    torch.testing.assert_close(unseen, shorter)


def test_an_absent_id_is_not_the_last_class_of_another_context():
    """Packed into a key, −1 after class 1 is class 2 after class 0, which was seen."""
    sampler = NGramSampler.from_corpus(torch.tensor([0, 2, 1]), 3, order=3)
    sampler.set_context(torch.tensor([[1, -1], [-1, -1]]))
    gap, nothing = sampler.log_prob(torch.arange(3).expand(2, 3))
    torch.testing.assert_close(gap, nothing)


@pytest.mark.parametrize("context", [None, *CONTEXTS[:4].tolist()])
def test_contract_in_one_context(context):
    sampler = NGramSampler.from_corpus(CORPUS, V, order=3)
    sampler.set_context(None if context is None else torch.tensor([context]))
    assert check_sampler(sampler, draws=200_000) > 1e-6


def test_draws_follow_log_prob_in_every_row_of_a_batch():
    sampler = NGramSampler.from_corpus(CORPUS, V, order=3)
    sampler.set_context(CONTEXTS)
    targets = torch.arange(7)
    candidates = sampler.sample(50_000, targets, generator=torch.Generator().manual_seed(0))
    probability = sampler.log_prob(torch.arange(V).expand(7, V)).exp()
    for row in range(7):
        counts = torch.bincount(candidates.ids[row], minlength=V)
        check_distribution(counts, probability[row])
    log_size = math.log(50_000)
    torch.testing.assert_close(
        candidates.log_expected_count, sampler.log_prob(candidates.ids) + log_size
    )
    torch.testing.assert_close(
        candidates.target_log_expected_count, probability[range(7), range(7)].log() + log_size
    )


def test_draws_of_a_frequent_and_a_rare_class_in_a_large_vocabulary():
    """A key is a place times V: it must not overflow, nor round, with V near 2^40."""
    large = 2**40
    corpus = torch.tensor([large - 1, 0, large - 1, 0, large - 1, 5])
    sampler = NGramSampler.from_corpus(corpus, large, order=3)
    sampler.set_context(torch.tensor([[0, large - 1]]))
    probability = sampler.log_prob(torch.tensor([0, 5, large - 1, 7])).exp()
    expected = torch.tensor([1 / 3 + 2 / 3 + 1 / 2, 1 / 6 + 1 / 3 + 1 / 2, 1 / 2, 0]) / 4
    torch.testing.assert_close(probability.float(), expected.float(), atol=1e-9, rtol=1e-6)
    ids = sampler.draw((1000,), generator=torch.Generator().manual_seed(0))
    assert 250 < int((ids == 0).sum()) < 500
    assert bool(((ids >= 0) & (ids < large)).all())


def divergence(truth, sampler):
    """KL(P ‖ Q), mean over the contexts."""
    log_q = sampler.log_prob(torch.arange(V).expand(truth.shape))
    return (truth.exp() * (truth - log_q)).sum(-1).mean().item()


def test_adapt_finds_the_weights_of_the_model_it_follows():
    """The model is an interpolated n-gram itself: EM must find the weights that made it."""
    wanted = [0.1, 0.1, 0.2, 0.6]
    model = NGramSampler.from_corpus(CORPUS, V, order=3, weights=wanted)
    sampler = NGramSampler.from_corpus(CORPUS, V, order=3)
    contexts = torch.cat([CORPUS[:400].unfold(0, 2, 1), CONTEXTS])
    model.set_context(contexts)
    sampler.set_context(contexts)
    truth = model.log_prob(torch.arange(V).expand(len(contexts), V))
    before = divergence(truth, sampler)
    generator = torch.Generator().manual_seed(0)
    for _ in range(150):
        ids = sampler.draw((len(contexts), 20), generator=generator)
        sampler.adapt(ids, model.log_prob(ids) - sampler.log_prob(ids), rate=0.2)
    assert before > 0.05
    assert divergence(truth, sampler) < 0.02 * before
    assert sampler.weights.tolist() == pytest.approx(wanted, abs=0.04)


def test_adapt_on_the_whole_of_p_never_makes_it_worse():
    """Every class once, weighted by P: then each EM step must lower KL(P ‖ Q)."""
    generator = torch.Generator().manual_seed(1)
    truth = torch.randn(7, V, generator=generator, dtype=torch.float64).mul(2).log_softmax(-1)
    sampler = NGramSampler.from_corpus(CORPUS, V, order=3, least_uniform=1e-6)
    sampler.set_context(CONTEXTS)
    ids = torch.arange(V).expand(7, V)
    last = divergence(truth, sampler)
    for _ in range(20):
        sampler.adapt(ids, truth, rate=1.0)
        now = divergence(truth, sampler)
        assert now <= last + 1e-12
        last = now
    assert sampler.weights.sum().item() == pytest.approx(1)


def test_the_floor_of_the_uniform_component_holds():
    sampler = NGramSampler.from_corpus(CORPUS, V, order=2, least_uniform=0.05)
    ids = torch.zeros(1, 4, dtype=torch.int64)
    for _ in range(100):
        sampler.adapt(ids, torch.zeros(1, 4), rate=1.0)
    assert sampler.weights[0].item() >= 0.05 - 1e-12
    only_uniform = NGramSampler.from_corpus(CORPUS, V, order=1, weights=[1.0, 0.0])
    assert only_uniform.weights.tolist() == [1.0, 0.0]
    assert only_uniform.log_prob(torch.arange(V)).tolist() == pytest.approx([-math.log(V)] * V)


def test_adapted_weights_are_part_of_the_state():
    sampler = NGramSampler.from_corpus(CORPUS, V, order=3)
    sampler.adapt(torch.zeros(1, 4, dtype=torch.int64), torch.zeros(1, 4))
    assert list(sampler.state_dict()) == ["weights"]
    fresh = NGramSampler.from_corpus(CORPUS, V, order=3)
    fresh.load_state_dict(sampler.state_dict())
    assert torch.equal(fresh.weights, sampler.weights)
    sampler.half()
    assert sampler.weights.dtype == torch.float64


def test_in_heads_and_mixtures():
    sampler = NGramSampler.from_corpus(CORPUS, V, order=3)
    sampler.set_context(CONTEXTS)
    hidden, targets = torch.randn(7, 4), torch.arange(7)
    for objective in (importance_sampling, nce):
        head = SampledHead(TableScorer(V, 4), sampler, objective=objective, num_samples=10)
        assert head(hidden, targets).isfinite().all()
    mixture = MixtureSampler([sampler, UniformSampler(V, per_example=True)], [0.5, 0.5])
    candidates = mixture.sample(10, targets)
    assert candidates.ids.shape == (7, 10)
    assert mixture.log_prob(torch.arange(V).expand(7, V)).exp().sum(-1).tolist() == pytest.approx(
        [1.0] * 7
    )


def test_the_context_must_belong_to_the_batch():
    sampler = NGramSampler.from_corpus(CORPUS, V, order=3)
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


@pytest.mark.parametrize(
    ("ids", "num_classes", "options", "named"),
    [
        (torch.tensor([0, V]), V, {}, "ids must lie"),
        (torch.tensor([0, -2]), V, {}, "ids must lie"),
        (torch.tensor([0.5, 1.0]), V, {}, "ids must hold whole numbers"),
        (torch.zeros(2, 2).long(), V, {}, "ids must be 1-D"),
        (torch.empty(0).long(), V, {}, "ids must be 1-D"),
        (torch.tensor([-1, -1]), V, {}, "ids must be 1-D"),
        (torch.tensor([0]), 0, {}, "num_classes"),
        (torch.tensor([0]), 2**62, {}, "num_classes"),
        (torch.tensor([0]), V, {"order": 0}, "order"),
        (torch.tensor([0]), V, {"order": 17}, "order"),
        (torch.tensor([0]), V, {"order": 2.5}, "order"),
        (torch.tensor([0]), V, {"weights": [1.0]}, "weights must hold order"),
        (torch.tensor([0]), V, {"weights": [1, 0, -1, 0]}, "weights"),
        (torch.tensor([0]), V, {"weights": [0, 0, 0, 0]}, "weights"),
        (torch.tensor([0]), V, {"weights": [1, 0, math.nan, 0]}, "weights"),
        ([0, 1], V, {}, "ids must be a tensor"),
        (torch.tensor([0]), V, {"least_uniform": 0.0}, "least_uniform"),
        (torch.tensor([0]), V, {"least_uniform": 1.0}, "least_uniform"),
    ],
)
def test_invalid_arguments(ids, num_classes, options, named):
    with pytest.raises(ValueError, match=named):
        NGramSampler.from_corpus(ids, num_classes, **options)


def test_invalid_adaptation():
    sampler = NGramSampler.from_corpus(CORPUS, V, order=3)
    ids, zeros = torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2, 3)
    for rate in (0.0, -1.0, 1.1, math.nan):
        with pytest.raises(ValueError, match="rate"):
            sampler.adapt(ids, zeros, rate=rate)
    with pytest.raises(ValueError, match="one shape"):
        sampler.adapt(ids, zeros[:1])
    before = sampler.weights.clone()
    sampler.adapt(ids, torch.full((2, 3), math.nan))
    assert torch.equal(sampler.weights, before), "NaN in the model must not reach the proposal"


def test_a_corpus_of_one_id_and_of_one_class():
    one = NGramSampler.from_corpus(torch.tensor([3]), V, order=3, weights=[0.5, 0.5, 0, 0])
    assert one.log_prob(torch.tensor([3])).exp().item() == pytest.approx(0.5 + 0.5 / V)
    single = NGramSampler.from_corpus(torch.zeros(5, dtype=torch.int64), 1, order=2)
    single.set_context(torch.tensor([[0]]))
    assert single.log_prob(torch.tensor([0])).item() == pytest.approx(0.0)
    assert check_sampler(single, draws=1000) == 1.0


# Kernels


def kernel_case(order=3):
    sampler = NGramSampler.from_corpus(CORPUS, V, order=order, weights=[0.1, 0.2, 0.3, 0.4])
    sampler.set_context(CONTEXTS)
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(V, (len(CONTEXTS), 40), generator=generator)
    return sampler, ids, torch.rand(ids.shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("num_classes", [V, 10**9])
def test_kernels_give_what_torch_gives(num_classes):
    """With few classes unigrams are looked up, with many they are sought."""
    sampler = NGramSampler.from_corpus(CORPUS, num_classes, order=3, weights=[0.1, 0.2, 0.3, 0.4])
    _, ids, weights = kernel_case()
    sampler.set_context(CONTEXTS)
    parts = sampler._weighted(ids)
    torch.testing.assert_close(sampler.log_prob(ids).exp(), parts.sum(-1), rtol=1e-12, atol=0)
    expected = (weights[..., None] * parts / parts.sum(-1, keepdim=True)).sum(1)
    found = sampler._responsibilities(ids, weights)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
