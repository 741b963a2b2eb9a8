"""The kernel of skip-gram and CBOW: equal to its reference, its draws, and its edges."""

import numpy as np
import pytest
import torch
from scipy.stats import binom, chisquare

from widemax.data import Sequences
from widemax.kernels.models.word2vec import Corpus, Opponents, Tables, train_words
from widemax.kernels.models.word2vec_reference import train_words_reference
from widemax.models import CBOW, SkipGram, Word2VecSteps

V = 30
ALWAYS = 2**32 - 1
MODELS = [SkipGram, CBOW]
KINDS = [
    pytest.param(model, tree, id=f"{model.__name__}-{'tree' if tree else 'negatives'}")
    for model in MODELS
    for tree in (False, True)
]


def zipf_sentences(seed=0, num_classes=V, num_words=400):
    """Return sentences of 0 to 39 words in which class y comes in proportion to 1/(y + 1)."""
    random = np.random.default_rng(seed)
    probability = 1 / np.arange(1, num_classes + 1)
    words = random.choice(num_classes, num_words, p=probability / probability.sum())
    lists = []
    while sum(map(len, lists)) < num_words:
        done = sum(map(len, lists))
        lists.append(words[done : done + random.integers(40)].tolist())
    return Sequences.from_lists(lists)


def parts_of(model, sequences):
    """Return corpus and opponents of a model as the kernel takes them, and its negatives."""
    steps = Word2VecSteps(model, sequences, threads=1)
    return steps._corpus, steps._opponents, getattr(model.head, "num_samples", 0)


def build(model_class, tree, sequences, *, dimension, negatives=5, subsample=0.02, num_classes=V):
    counts = torch.bincount(sequences.values, minlength=num_classes).clamp(min=1)
    head = {"head": "hierarchical"} if tree else {"num_samples": negatives}
    return model_class.create(counts, dimension=dimension, subsample=subsample, **head)


def random_tables(num_inputs, num_outputs, dimension, *, scale=0.5):
    """Return tables of chance with rows of whole registers, 0 beyond the dimension."""
    random = np.random.default_rng(0)
    tables = []
    for rows in (num_inputs, num_outputs):
        table = np.zeros((rows, -(-dimension // 16) * 16), np.float32)
        table[:, :dimension] = scale * random.standard_normal((rows, dimension))
        tables.append(table)
    return Tables(*tables)


def both(
    corpus, opponents, negatives, tables, window, bag, *, rate=0.05, passes=8, pieces=((0, None),)
):
    """Train copies of the tables by the kernel and by the reference; return both."""
    ours = Tables(*(table.copy() for table in tables))
    truth = Tables(*(table.astype(np.float64) for table in tables))
    for seed in range(passes):
        for start, stop in pieces:
            piece = (corpus, start, len(corpus.words) if stop is None else stop)
            options = {"negatives": negatives, "bag": bag}
            found, expected = (
                train(*piece, tables, opponents, window, rate, seed, **options)
                for train, tables in ((train_words, ours), (train_words_reference, truth))
            )
            assert found == expected
    return ours, truth


def assert_same(ours, truth, before, *, at_most=1e-5):
    for found, expected, start in zip(ours, truth, before, strict=True):
        assert np.abs(found - expected).max(initial=0) <= at_most
        # The comparison says something only if training went somewhere.
        assert not start.size or np.abs(expected - start).max() > 0.1


@pytest.mark.parametrize(
    ("dimension", "negatives", "window"),
    [(1, 5, 5), (7, 6, 3), (8, 1, 1), (100, 20, 8), (100, 5, 5), (8, 6, 2)],
)
@pytest.mark.parametrize("model_class", MODELS)
def test_negative_sampling_is_that_of_the_reference(model_class, dimension, negatives, window):
    sequences = zipf_sentences()
    model = build(model_class, False, sequences, dimension=dimension, negatives=negatives)
    tables = random_tables(V, V, dimension, scale=0.5 * dimension**-0.5)
    result = both(*parts_of(model, sequences), tables, window, model_class is CBOW)
    assert_same(*result, tables)


@pytest.mark.parametrize(("dimension", "window"), [(1, 5), (7, 3), (8, 1), (100, 8), (100, 5)])
@pytest.mark.parametrize("model_class", MODELS)
def test_the_tree_is_that_of_the_reference(model_class, dimension, window):
    sequences = zipf_sentences()
    model = build(model_class, True, sequences, dimension=dimension)
    tables = random_tables(V, V - 1, dimension, scale=0.5 * dimension**-0.5)
    result = both(*parts_of(model, sequences), tables, window, model_class is CBOW)
    assert_same(*result, tables)


@pytest.mark.parametrize(("model_class", "tree"), KINDS)
def test_a_piece_of_a_corpus_may_begin_and_end_in_mid_sentence(model_class, tree):
    sequences = zipf_sentences(seed=3)
    model = build(model_class, tree, sequences, dimension=8)
    tables = random_tables(V, V - tree, 8)
    pieces = ((37, 38), (0, 5), (5, 5), (399, 400), (123, 390))
    parts = parts_of(model, sequences)
    assert_same(*both(*parts, tables, 3, model_class is CBOW, pieces=pieces), tables)


@pytest.mark.parametrize(("model_class", "tree"), KINDS)
def test_scores_far_out_saturate(model_class, tree):
    """Vectors so long that scores reach hundreds: σ is 0 or 1, and nothing overflows.

    A small rate, for at a large one the scores between 0 and 1 multiply every rounding.
    """
    sequences = zipf_sentences(num_words=60)
    model = build(model_class, tree, sequences, dimension=8)
    tables = random_tables(V, V - tree, 8, scale=9.0)
    parts = parts_of(model, sequences)
    ours, truth = both(*parts, tables, 2, model_class is CBOW, passes=2, rate=0.01)
    assert_same(ours, truth, tables, at_most=1e-4)


@pytest.mark.parametrize(("model_class", "tree"), KINDS)
def test_one_very_long_sentence(model_class, tree):
    values = zipf_sentences(num_words=3000).values
    sequences = Sequences(values, torch.tensor([0, len(values)]))
    model = build(model_class, tree, sequences, dimension=4)
    tables = random_tables(V, V - tree, 4, scale=0.1)
    parts = parts_of(model, sequences)
    assert_same(*both(*parts, tables, 5, model_class is CBOW, passes=1), tables)


@pytest.mark.parametrize("num_classes", [1, 2])
@pytest.mark.parametrize(("model_class", "tree"), KINDS)
def test_one_or_two_classes(model_class, tree, num_classes):
    sequences = zipf_sentences(num_classes=num_classes, num_words=60)
    model = build(model_class, tree, sequences, dimension=3, subsample=0, num_classes=num_classes)
    tables = random_tables(num_classes, num_classes - tree, 3)
    ours, truth = both(*parts_of(model, sequences), tables, 2, model_class is CBOW, passes=2)
    for found, expected in zip(ours, truth, strict=True):
        assert np.abs(found - expected).max(initial=0) < 1e-5


@pytest.mark.parametrize(("model_class", "tree"), KINDS)
@pytest.mark.parametrize("lists", [[[3]], [[3], [4], [5], [3]], [[], [7], []]])
def test_words_alone_in_their_sentence_move_nothing(model_class, tree, lists):
    sequences = Sequences.from_lists(lists)
    model = build(model_class, tree, sequences, dimension=8, subsample=0)
    corpus, opponents, negatives = parts_of(model, sequences)
    tables = random_tables(V, V - tree, 8)
    before = [table.copy() for table in tables]
    num_words, bag = len(corpus.words), model_class is CBOW
    options = {"negatives": negatives, "bag": bag}
    kept = train_words(corpus, 0, num_words, tables, opponents, 5, 0.1, 0, **options)
    assert kept == num_words
    for found, expected in zip(tables, before, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("model_class", "tree"), KINDS)
def test_columns_that_only_fill_a_register_stay_zero(model_class, tree):
    sequences = zipf_sentences()
    corpus, opponents, negatives = parts_of(
        build(model_class, tree, sequences, dimension=5), sequences
    )
    tables = random_tables(V, V - tree, 5)
    bag = model_class is CBOW
    train_words(corpus, 0, 400, tables, opponents, 5, 0.1, 0, negatives=negatives, bag=bag)
    for table in tables:
        assert (table[:, :5] != 0).all()
        assert (table[:, 5:] == 0).all()


def no_opponents(num_classes):
    """Return a tree without a node: what is left of the kernel is which words it keeps."""
    table = np.empty((0, 2), np.int32)
    starts, path = np.zeros(num_classes + 1, np.int64), np.empty(0, np.int64)
    turns = np.zeros(num_classes, np.int64)
    return Opponents(starts, path, turns, table, table.view(np.float32))


@pytest.mark.parametrize("keep", [1.0, 0.73, 0.1, 0.001, 0.0])
def test_a_word_is_kept_with_its_probability(keep):
    num = 200_000
    words, offsets = np.zeros(num, np.int64), np.arange(0, num + 1, 1000)
    corpus = Corpus(words, offsets, np.array([round(keep * ALWAYS)], np.uint32))
    tables = Tables(np.zeros((1, 16), np.float32), np.zeros((0, 16), np.float32))
    nothing = {"negatives": 0, "bag": False}
    kept = train_words(corpus, 0, num, tables, no_opponents(1), 1, 0.1, 5, **nothing)
    low, high = binom.ppf([1e-6, 1 - 1e-6], num, keep)
    assert low <= kept <= high


def meetings_of(counts, window, num_words):
    """Return how often class 0, the only one of a text, met each class as a negative."""
    num_classes = len(counts)
    model = SkipGram.create(counts, dimension=1, num_samples=5, subsample=0)
    values = torch.zeros(num_words, dtype=torch.int64)
    sequences = Sequences(values, torch.tensor([0, num_words]))
    corpus, opponents, negatives = parts_of(model, sequences)
    tables = random_tables(num_classes, num_classes, 1, scale=0)
    tables.inputs[:, 0] = 1
    # σ(x·o) stays near ½: a row ends at −½·rate·(its meetings), to be counted back.
    rate = 2.0**-24
    options = {"negatives": negatives, "bag": False}
    train_words(corpus, 0, num_words, tables, opponents, window, rate, 0, **options)
    return tables.outputs[:, 0].astype(np.float64) / (-0.5 * rate)


def test_negatives_follow_the_counts_to_the_power_of_three_quarters():
    counts = torch.tensor([1, 2000, 1000, 500, 250, 100, 50, 10_000])
    num_words = 20_000
    # A window of 1 and a long sentence: each word has 2 neighbours, the first and last one.
    meetings = meetings_of(counts, 1, num_words)
    drawn = np.round(meetings[1:] / 2).astype(np.int64)
    share = counts.double().numpy()[1:] ** 0.75
    total = (counts.double() ** 0.75).sum().item()
    expected_total = 5 * num_words * share.sum() / total
    assert abs(drawn.sum() - expected_total) < 0.01 * expected_total
    assert chisquare(drawn, drawn.sum() * share / share.sum()).pvalue > 1e-4


def test_reach_is_uniform_up_to_the_window():
    """In a long sentence a word has 2·reach neighbours: their mean number is window + 1."""
    counts = torch.tensor([1, 10**9])
    num_words, window = 20_000, 5
    neighbours = meetings_of(counts, window, num_words)[1] / (5 * num_words)
    # The variance of 2·reach is (window² − 1)/3.
    error = ((window**2 - 1) / 3 / num_words) ** 0.5
    assert abs(neighbours - (window + 1)) < 5 * error + 0.02


@pytest.mark.parametrize(("model_class", "tree"), KINDS)
def test_a_thread_gives_its_own_rows_back(model_class, tree, monkeypatch):
    """Alone, a thread that is to give all back has worked on them as if they were in the table.

    As if there were two: with negatives, each gives back all that it has changed; with a tree half,
    so that the first rows are half as far from where they were.
    """
    monkeypatch.setattr("widemax.kernels.models.word2vec._ROWS_AN_OWN", 4)
    sequences = zipf_sentences()
    model = build(model_class, tree, sequences, dimension=8)
    parts, bag = parts_of(model, sequences), model_class is CBOW
    found = []
    for threads in (1, 2):
        tables = random_tables(V, V - tree, 8)
        start = tables.outputs.copy()
        options = {"negatives": parts[2], "bag": bag, "threads": threads}
        train_words(parts[0], 0, 400, tables, parts[1], 5, 0.05, 0, **options)
        found.append(tables)
    own = (V - tree) // 4
    share = 0.5 if tree else 1
    moved = share * (found[0].outputs[:own] - start[:own])
    np.testing.assert_allclose(found[1].outputs[:own], start[:own] + moved, atol=1e-5)
    np.testing.assert_allclose(found[1].outputs[own:], found[0].outputs[own:], atol=1e-5)
    np.testing.assert_allclose(found[1].inputs, found[0].inputs, atol=1e-5)
    assert np.abs(moved).max() > 0.1


def test_rows_that_are_not_whole_registers_are_refused():
    tables = Tables(np.zeros((1, 16), np.float32), np.zeros((0, 12), np.float32))
    corpus = Corpus(np.zeros(3, np.int64), np.array([0, 3]), np.array([ALWAYS], np.uint32))
    with pytest.raises(ValueError, match=r"^outputs must have rows of whole registers.* got 12$"):
        train_words(corpus, 0, 3, tables, no_opponents(1), 1, 0.1, 5, negatives=0, bag=False)


def test_another_seed_draws_otherwise():
    sequences = zipf_sentences()
    corpus, opponents, negatives = parts_of(
        build(SkipGram, False, sequences, dimension=8), sequences
    )
    results = []
    for seed in (1, 1, 2):
        tables = random_tables(V, V, 8)
        options = {"negatives": negatives, "bag": False}
        train_words(corpus, 0, 400, tables, opponents, 5, 0.1, seed, **options)
        results.append(tables.inputs)
    np.testing.assert_array_equal(results[0], results[1])
    assert not np.array_equal(results[0], results[2])
