"""N-gram models against counting by hand, figures that are known, and whatever corpus there is."""

import math
import os
from collections import Counter, defaultdict
from itertools import product
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load, save

from widemax.contracts.distribution import check_distribution
from widemax.data import Sequences, Windows
from widemax.ngrams import NGramModel
from widemax.ngrams.fitting import kneser_ney_discounts, modified_kneser_ney_discounts
from widemax.vocabulary import Vocabulary

KINDS = ["maximum_likelihood", "kneser_ney", "modified_kneser_ney"]
FALLBACK = [0.0, 0.5, 1.0, 1.5]


def fit(kind, sentences, num_classes, order):
    fitted = getattr(NGramModel, kind)
    return fitted(Sequences.from_lists(sentences), num_classes, order=order)


def random_sentences(seed, num_classes, number, longest=12):
    """Skewed classes, so that n-grams are counted once, twice, … and often."""
    generator = torch.Generator().manual_seed(seed)
    weights = 1 / torch.arange(1, num_classes).double()
    words = torch.multinomial(weights, number * longest, replacement=True, generator=generator)
    lengths = torch.randint(longest, (number,), generator=generator).tolist()
    rows = words.view(number, longest).tolist()
    # The last class never occurs, and some sentences are empty.
    return [row[:length] for row, length in zip(rows, lengths, strict=True)]


class ByHand:
    """The model in dictionaries of tuples, one formula after the other; −1 is the begin marker."""

    def __init__(self, kind, sentences, num_classes, order):
        self.kind, self.num_classes, self.order = kind, num_classes, order
        texts = [[-1, *sentence] for sentence in sentences]
        grams = {
            n: Counter(tuple(text[i : i + n]) for text in texts for i in range(len(text) - n + 1))
            for n in range(1, order + 1)
        }
        del grams[1][(-1,)]
        if kind != "maximum_likelihood":
            for n in range(1, order):
                before = Counter(gram[1:] for gram in grams[n + 1])
                grams[n] = {
                    gram: count if gram[0] == -1 else before[gram]
                    for gram, count in grams[n].items()
                }
        self.discounts = {n: self.discount(Counter(grams[n].values())) for n in grams}
        self.after = defaultdict(dict)
        for counts in grams.values():
            for gram, count in counts.items():
                self.after[gram[:-1]][gram[-1]] = count

    def discount(self, number):
        if self.kind == "maximum_likelihood":
            return [0, 0, 0, 0]
        n1, n2, n3, n4 = (number[k] for k in (1, 2, 3, 4))
        if self.kind == "kneser_ney":
            return [0.0] + [n1 / (n1 + 2 * n2) if n1 and n2 else 0.5] * 3
        if not n1 or not n2 or not n3:
            return FALLBACK
        y = n1 / (n1 + 2 * n2)
        found = [0.0, 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3]
        return found if all(0 < found[k] < k for k in (1, 2, 3)) else FALLBACK

    def prob(self, context, y):
        lower = self.prob(context[1:], y) if context else 1 / self.num_classes
        counts = self.after[context]
        if not counts:
            return lower
        taken = {z: self.discounts[len(context) + 1][min(c, 3)] for z, c in counts.items()}
        total = sum(counts.values())
        own = counts.get(y, 0) - taken.get(y, 0)
        return own / total + sum(taken.values()) / total * lower


def every_context(num_classes, length):
    """All contexts of one length: begin, if it is there, comes first."""
    if not length:
        return [()]
    rest = list(product(range(num_classes), repeat=length - 1))
    return [(first, *ids) for first in (-1, *range(num_classes)) for ids in rest]


def assert_equals_counting(kind, sentences, num_classes, order, length):
    model = fit(kind, sentences, num_classes, order)
    by_hand = ByHand(kind, sentences, num_classes, order)
    rows = every_context(num_classes, length)
    contexts = torch.tensor(rows, dtype=torch.int64).view(len(rows), length)
    found = model.log_probs(contexts).exp()
    expected = [[by_hand.prob(row, y) for y in range(num_classes)] for row in rows]
    torch.testing.assert_close(
        found, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-13
    )
    torch.testing.assert_close(
        found.sum(1), torch.ones(len(rows), dtype=torch.float64), rtol=0, atol=1e-12
    )
    ids = torch.arange(num_classes).expand(len(rows), num_classes)
    torch.testing.assert_close(model.log_prob(contexts, ids), found.log(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
def test_probabilities_equal_counting_by_hand(kind, order):
    sentences = random_sentences(order, 5, 60)
    for length in range(order):
        assert_equals_counting(kind, sentences, 5, order, length)


@pytest.mark.parametrize("kind", KINDS)
@given(
    sentences=st.lists(st.lists(st.integers(0, 3), max_size=8), min_size=1, max_size=12),
    order=st.integers(1, 4),
)
@settings(max_examples=60, deadline=None)
def test_any_corpus_gives_distributions_and_no_nan(kind, sentences, order):
    if any(sentences):
        assert_equals_counting(kind, sentences, 4, order, order - 1)
        model = fit(kind, sentences, 4, order)
        assert not any(value.isnan().any() for value in model.tensors().values())


def test_a_value_worked_out_on_paper():
    """p(0 | 1) = (1 − 0.5)/4 + 2/4 · ((2 − 1)/7 + 3.5/7 · 1/3): n_1 = 0, so D = 0.5, 1, 1.5."""
    model = fit("modified_kneser_ney", [[1, 2, 0], [1, 1, 2, 0], [2, 1, 0]], 3, 2)
    expected = 0.5 / 4 + 2 / 4 * (1 / 7 + 3.5 / 7 / 3)
    found = model.log_prob(torch.tensor([[1]]), torch.tensor([0]))
    assert found.exp().item() == pytest.approx(expected, rel=1e-14)


def test_discounts_are_those_of_the_formula_and_fall_back_where_it_has_none():
    number = torch.tensor([100, 40, 20, 12]).numpy()
    y = 100 / 180
    assert kneser_ney_discounts(number) == pytest.approx((y, y, y))
    assert modified_kneser_ney_discounts(number) == pytest.approx(
        (1 - 2 * y * 0.4, 2 - 3 * y * 0.5, 3 - 4 * y * 0.6)
    )
    for few in ([0, 3, 1, 1], [3, 0, 1, 1], [0, 0, 0, 0]):
        assert kneser_ney_discounts(torch.tensor(few).numpy()) == (0.5, 0.5, 0.5)
    for few in ([0, 3, 1, 1], [3, 0, 1, 1], [3, 1, 0, 1], [5, 3, 2, 0], [10, 1, 9, 1]):
        assert modified_kneser_ney_discounts(torch.tensor(few).numpy()) == (0.5, 1.0, 1.5)


@pytest.mark.parametrize("kind", KINDS)
def test_sentences_are_scored_word_by_word(kind):
    train, other = random_sentences(0, 8, 80), random_sentences(1, 8, 30)
    model = fit(kind, train, 8, 4)
    sequences = Sequences.from_lists(other)
    windows = Windows(sequences, before=3)
    batch = windows.batch(torch.arange(len(windows)))
    expected = model.log_prob(batch.context, batch.targets)
    torch.testing.assert_close(model.token_log_prob(sequences), expected, rtol=0, atol=1e-12)
    sums = [part.sum() for part in expected.split(sequences.lengths.tolist())]
    torch.testing.assert_close(model.sequence_log_prob(sequences), torch.stack(sums))
    assert model.perplexity(sequences) == pytest.approx(math.exp(-expected.mean().item()))


def test_maximum_likelihood_knows_only_what_it_has_seen():
    model = fit("maximum_likelihood", [[0, 1], [0, 2], [0, 1, 1]], 4, 2)
    found = model.log_probs(torch.tensor([[0], [-1], [1], [3]])).exp()
    expected = [[0, 2 / 3, 1 / 3, 0], [1, 0, 0, 0], [0, 1, 0, 0], [3 / 7, 3 / 7, 1 / 7, 0]]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))
    assert model.perplexity(Sequences.from_lists([[0, 3]])) == math.inf
    assert model.perplexity(Sequences.from_lists([[0, 1]])) == pytest.approx(math.sqrt(1.5))


def test_what_lies_before_the_begin_or_beyond_the_order_does_not_matter():
    model = fit("kneser_ney", random_sentences(3, 6, 80), 6, 3)
    same = torch.tensor([[4, 3, -1, 2], [0, -1, -1, 2], [1, 0, -1, 2]])
    first, *others = model.log_probs(same)
    assert all(torch.equal(first, other) for other in others)
    assert torch.equal(first, model.log_probs(torch.tensor([[-1, 2]]))[0])
    assert not torch.equal(first, model.log_probs(torch.tensor([[2]]))[0])


def test_long_ngrams_of_many_classes_do_not_overflow():
    num_classes = 2**20
    generator = torch.Generator().manual_seed(0)
    text = torch.randint(num_classes - 50, num_classes, (3000,), generator=generator).tolist()
    sentences = [text[i : i + 30] for i in range(0, 3000, 30)] * 2
    model = fit("modified_kneser_ney", sentences, num_classes, 16)
    grams = [
        len({tuple(([-1, *s])[i : i + n]) for s in sentences for i in range(32 - n)})
        for n in range(2, 17)
    ]
    assert model.num_ngrams == [num_classes + 1, *grams]
    by_hand = ByHand("modified_kneser_ney", sentences, num_classes, 16)
    contexts = torch.tensor([sentences[0][3:18], [num_classes - 1] * 15])
    ids = torch.tensor([sentences[0][18], 7])
    expected = [
        by_hand.prob(tuple(c), y) for c, y in zip(contexts.tolist(), ids.tolist(), strict=True)
    ]
    assert model.log_prob(contexts, ids).exp().tolist() == pytest.approx(expected, rel=1e-12)


def test_an_order_beyond_the_longest_sentence_is_no_error():
    model = fit("modified_kneser_ney", [[0], [1]], 3, 6)
    assert model.order == 6
    assert len(model.num_ngrams) == 2
    probs = model.log_probs(torch.tensor([[-1] * 5, [2, 1, 0, 0, 1]])).exp()
    assert probs.sum(1).tolist() == pytest.approx([1, 1])
    assert NGramModel.from_tensors(model.tensors()).order == 6


def test_draws_follow_the_probabilities():
    sentences = random_sentences(5, 7, 100)
    for order in (1, 2, 4):
        model = fit("modified_kneser_ney", sentences, 7, order)
        generator = torch.Generator().manual_seed(order)
        for context in ([], [0], [6, 6, 1], [1, 0, 0]):
            after = None if not context else torch.tensor(context)
            drawn = model.generate(40_000, 1, context=after, generator=generator)
            row = torch.tensor([[-1] * 3 + context])
            counts = torch.bincount(drawn.values, minlength=7)
            check_distribution(counts, model.log_probs(row).exp()[0])


def test_sentences_are_drawn_as_wholes():
    """Pairs of words, so that the context must move along; and the same seed, the same words."""
    model = fit("kneser_ney", random_sentences(6, 4, 200), 4, 3)
    drawn, again = (
        model.generate(60_000, 3, generator=torch.Generator().manual_seed(1)) for _ in range(2)
    )
    assert torch.equal(drawn.values, again.values)
    words = drawn.values.view(-1, 3)
    triples = torch.tensor(list(product(range(4), repeat=3)))
    probs = model.sequence_log_prob(Sequences.from_lists(triples.tolist())).exp()
    codes = words[:, 0] * 16 + words[:, 1] * 4 + words[:, 2]
    check_distribution(torch.bincount(codes, minlength=64), probs)


def test_sentences_end_with_the_end_word():
    sentences = [[*(y + 1 for y in s), 0] for s in random_sentences(7, 5, 100)]
    model = fit("modified_kneser_ney", sentences, 6, 3)
    drawn = model.generate(300, 10, end=0, generator=torch.Generator().manual_seed(0))
    assert len(drawn) == 300
    lengths = drawn.lengths
    for i in range(300):
        sentence = drawn.sequence(i).tolist()
        assert 0 not in sentence[:-1]
        assert sentence[-1] == 0 or len(sentence) == 10
    assert len(set(lengths.tolist())) > 3


def test_maximum_likelihood_draws_only_what_it_has_seen():
    model = fit("maximum_likelihood", [[0, 1, 2], [0, 2, 2]], 4, 3)
    drawn = model.generate(500, 3, generator=torch.Generator().manual_seed(0)).values.view(-1, 3)
    assert {tuple(row) for row in drawn.tolist()} == {(0, 1, 2), (0, 2, 2)}


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_survive_a_file(kind):
    model = fit(kind, random_sentences(2, 9, 50), 9, 4)
    restored = NGramModel.from_tensors(load(save(model.tensors())))
    assert repr(restored) == repr(model)
    test = Sequences.from_lists(random_sentences(8, 9, 20))
    assert torch.equal(restored.token_log_prob(test), model.token_log_prob(test))


def damaged(name, change):
    tensors = fit("kneser_ney", random_sentences(2, 9, 50), 9, 3).tensors()
    tensors[name] = change(tensors[name].clone())
    return tensors


def with_entry(place, value):
    def change(tensor):
        tensor[place] = value
        return tensor

    return change


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("shape", with_entry(0, 0), "num_classes must be between"),
        ("shape", with_entry(0, 2**50), "num_classes must be between"),
        ("shape", with_entry(0, 8), "keys must"),
        ("shape", with_entry(1, 17), "order must be between"),
        ("shape", with_entry(1, 2), "up to 2 ids, got 3"),
        ("shape", lambda t: t[:1], "two numbers"),
        ("keys", with_entry(0, 0), "start with the empty"),
        ("keys", with_entry(4, 77), "all classes"),
        ("keys", with_entry(20, 0), "keys must rise"),
        ("keys", with_entry(-1, 2**62), "contexts that come before"),
        ("keys", lambda t: with_entry(11, 19)(t)[:12], "begin marker"),
        ("keys", lambda t: t[:5], "keys"),
        ("keys", lambda t: t.int(), "torch.int64"),
        ("keys", lambda t: t.view(1, -1), "one dimension"),
        ("keys", lambda t: t.tolist(), "must be a tensor"),
        ("log_probs", with_entry(3, math.nan), "log_probs must be at most 0"),
        ("log_probs", with_entry(3, 0.1), "log_probs must be at most 0"),
        ("log_probs", with_entry(10, -1.0), "begin marker"),
        ("log_probs", lambda t: t[1:], "as many as keys"),
        ("log_probs", lambda t: t.float(), "torch.float64"),
        ("log_backoffs", with_entry(3, math.inf), "log_backoffs must be at most"),
        ("log_backoffs", with_entry(3, math.nan), "log_backoffs must be at most"),
    ],
)
def test_damaged_tensors_are_refused(name, change, message):
    tensors = damaged(name, change)
    if name == "keys" and isinstance(tensors["keys"], torch.Tensor) and len(tensors["keys"]) == 12:
        tensors |= {part: tensors[part][:12] for part in ("log_probs", "log_backoffs")}
    with pytest.raises(ValueError, match=message):
        NGramModel.from_tensors(tensors)


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_any_damage_is_refused_or_harmless(data):
    tensors = fit("kneser_ney", [[0, 1, 2, 1, 0], [1, 1], [2, 0, 1, 2]], 3, 3).tensors()
    name = data.draw(st.sampled_from(sorted(tensors)))
    place = data.draw(st.integers(0, len(tensors[name]) - 1))
    floating = tensors[name].is_floating_point()
    value = data.draw(st.floats() if floating else st.integers(-(2**63), 2**63 - 1))
    tensors[name] = with_entry(place, value)(tensors[name].clone())
    try:
        model = NGramModel.from_tensors(tensors)
    except ValueError:
        return
    contexts = torch.tensor(every_context(3, 2))
    assert not model.log_probs(contexts).isnan().any()
    assert not model.token_log_prob(Sequences.from_lists([[0, 1, 2, 2, 1]])).isnan().any()


def test_missing_or_foreign_tensors_are_refused():
    tensors = fit("kneser_ney", [[0, 1]], 2, 2).tensors()
    for wrong in ({}, tensors | {"more": tensors["keys"]}, {"keys": tensors["keys"]}):
        with pytest.raises(ValueError, match=r"tensors must be \['keys'"):
            NGramModel.from_tensors(wrong)


@pytest.mark.parametrize(
    ("sentences", "num_classes", "order", "message"),
    [
        ([[0, 3]], 3, 2, "sequences must lie between 0 and 2"),
        ([[0]], 0, 2, "num_classes"),
        ([[0]], 2**40, 2, "num_classes"),
        ([[0]], 3, 0, "order"),
        ([[0]], 3, 17, "order"),
        ([[0]], 3, 2.5, "order"),
        ([[]], 3, 2, "sequences must hold at least one value"),
        ([], 3, 2, "sequences must hold at least one value"),
    ],
)
def test_senseless_arguments_of_fitting(sentences, num_classes, order, message):
    for kind in KINDS:
        with pytest.raises(ValueError, match=message):
            fit(kind, sentences, num_classes, order)


def test_senseless_arguments_of_a_model():
    model = fit("kneser_ney", [[0, 1, 2]], 3, 3)
    pair = torch.zeros(2, 2, dtype=torch.int64)
    for contexts, ids, message in [
        (pair[0], pair[0], r"contexts must have shape \[B, H\]"),
        (pair + 3, pair[0], "contexts must lie"),
        (pair - 2, pair[0], "contexts must lie"),
        (pair.double(), pair[0], "contexts must hold whole numbers"),
        (pair, pair[0] + 3, "ids must lie"),
        (pair, pair[0] - 1, "ids must lie"),
        (pair, pair[:1], r"ids must have shape .*B = 2"),
        (pair, pair[None], "ids must have shape"),
        ([[0, 1]], pair[0], "contexts must be a tensor"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.log_prob(contexts, ids)
    with pytest.raises(ValueError, match="contexts must have at most"):
        model.log_probs(torch.zeros(2**27, 0, dtype=torch.int64))
    with pytest.raises(ValueError, match="sequences must lie"):
        model.perplexity(Sequences.from_lists([[3]]))
    with pytest.raises(ValueError, match="at least one value"):
        model.perplexity(Sequences.from_lists([[]]))
    for options, message in [
        ({"num_sequences": 0}, "num_sequences"),
        ({"max_length": 0}, "max_length"),
        ({"max_length": 2**40}, "max_length"),
        ({"end": 3}, "end"),
        ({"context": pair}, "context must have shape"),
        ({"context": pair[0] + 3}, "context must lie"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.generate(**{"num_sequences": 1, "max_length": 1} | options)


def test_no_rows_and_no_ids():
    model = fit("kneser_ney", [[0, 1, 2]], 3, 3)
    none = torch.empty(0, 2, dtype=torch.int64)
    assert model.log_probs(none).shape == (0, 3)
    assert model.log_prob(none, none).shape == (0, 2)
    assert model.sequence_log_prob(Sequences.from_lists([[], [0], []])).tolist()[::2] == [0, 0]
    assert model.log_prob(none.new_zeros(2, 1), none.new_zeros(2, 0)).shape == (2, 0)


PTB = Path(os.environ.get("WIDEMAX_DATA", Path(__file__).parents[3] / "shared" / "data")) / "ptb"


@pytest.fixture(scope="module")
def treebank():
    """Train and test of the Penn Treebank, each line with its <eos>, and the number of words."""
    if not PTB.is_dir():
        pytest.skip(f"the Penn Treebank is not in {PTB} (set WIDEMAX_DATA)")
    texts = [
        [[*line.split(), "<eos>"] for line in (PTB / f"ptb.{part}.txt").open()]
        for part in ("train", "test")
    ]
    vocabulary = Vocabulary.count([word for line in texts[0] for word in line])
    train, test = (
        Sequences(
            vocabulary.encode([word for line in lines for word in line]),
            torch.tensor([0, *map(len, lines)]).cumsum(0),
        )
        for lines in texts
    )
    return train, test, len(vocabulary)


@pytest.mark.parametrize(
    ("kind", "order", "perplexity"),
    [
        ("modified_kneser_ney", 3, 148.28),
        ("modified_kneser_ney", 5, 141.19),
        ("kneser_ney", 3, 150.60),
        ("kneser_ney", 5, 143.51),
    ],
)
def test_perplexity_of_the_penn_treebank(treebank, kind, order, perplexity):
    train, test, num_classes = treebank
    assert num_classes == 10_000
    model = getattr(NGramModel, kind)(train, num_classes, order=order)
    assert model.perplexity(test) == pytest.approx(perplexity, abs=0.02)
