"""Skip-gram and CBOW as a whole: steps that resume to the bit, refusals, and known answers."""

import math
from itertools import pairwise

import pytest
import torch

from tests.models.test_word2vec import KINDS, MODELS, V, build, zipf_sentences
from widemax.data import Sequences
from widemax.encoders import BagEncoder
from widemax.heads import FullHead, HierarchicalHead, SampledHead, Tree
from widemax.kernels.models.word2vec import train_words
from widemax.models import CBOW, NextItem, SkipGram, Word2VecSteps, keep_probability, train_word2vec
from widemax.objectives import nce, negative_sampling, sampled_softmax
from widemax.optim import RowAdagrad
from widemax.sampling import (
    InBatchSampler,
    LearnedUnigramSampler,
    LogUniformSampler,
    UniformSampler,
    UnigramSampler,
)
from widemax.scoring import TableScorer
from widemax.training import NonFiniteError
from widemax.training.gradients.steps import GradientSteps

TOPICS, WORDS_A_TOPIC = 10, 8


def trained(model, sequences, *, steps=300, threads=1, seed=0, rate=0.05):
    taken = Word2VecSteps(model, sequences, window=3, threads=threads, seed=seed)
    for step in range(steps):
        taken.take(step, rate)
    taken.publish()
    return model.state_dict()


def seeded(model_class, tree, sequences, **options):
    torch.manual_seed(0)
    return build(model_class, tree, sequences, dimension=5, **options)


def assert_equal(first, second):
    assert first.keys() == second.keys()
    for name in first:
        assert torch.equal(first[name], second[name]), name


@pytest.mark.parametrize(("model_class", "tree"), KINDS)
def test_the_same_seed_gives_the_same_bits(model_class, tree):
    sequences = zipf_sentences()
    first, second, other = (
        trained(seeded(model_class, tree, sequences), sequences, seed=seed) for seed in (4, 4, 5)
    )
    assert_equal(first, second)
    assert not torch.equal(first["encoder.weight"], other["encoder.weight"])


@pytest.mark.parametrize(("model_class", "tree"), KINDS)
def test_training_resumes_to_the_bit(model_class, tree):
    sequences = zipf_sentences(num_words=30_000)
    whole = trained(seeded(model_class, tree, sequences), sequences, steps=250)
    # Step 130 is in the middle of the second epoch.
    part = trained(seeded(model_class, tree, sequences), sequences, steps=130)
    model = build(model_class, tree, sequences, dimension=5)
    model.load_state_dict(part)
    steps = Word2VecSteps(model, sequences, window=3, threads=1, seed=0)
    steps.load_state({})
    assert steps.state() == {}
    assert 100 <= steps.per_epoch < 130
    for step in range(130, 250):
        steps.take(step, 0.05)
    steps.publish()
    assert_equal(model.state_dict(), whole)
    for table in steps._tables:
        # Rows are whole cache lines of 64 bytes.
        assert table.shape[1] == 16
        assert table.ctypes.data % 64 == 0
        assert (table[:, 5:] == 0).all()


@pytest.mark.parametrize("num_words", [1, 7, 99, 400, 12_345])
def test_an_epoch_visits_every_word_once(num_words, monkeypatch):
    sequences = zipf_sentences(num_words=num_words)
    model = seeded(SkipGram, False, sequences, subsample=0)
    steps = Word2VecSteps(model, sequences, threads=1)
    ranges, kept = [], []

    def watched(corpus, start, stop, *others, **options):
        ranges.append((start, stop))
        kept.append(train_words(corpus, start, stop, *others, **options))
        return kept[-1]

    monkeypatch.setattr("widemax.models.embeddings.kernel_steps.train_words", watched)
    orders = []
    for epoch in range(2):
        ranges.clear()
        kept.clear()
        for step in range(steps.per_epoch):
            steps.take(epoch * steps.per_epoch + step, 0.01)
        orders.append(list(ranges))
        assert sum(kept) == num_words
        places = sorted(place for start, stop in ranges for place in range(start, stop))
        assert places == list(range(num_words))
    assert num_words < 10_000 or orders[0] != orders[1]


@pytest.mark.parametrize("num_words", [200_000, 400_000, 800_000, 3_000_000, 17_000_000])
def test_a_step_has_work_for_several_threads(num_words):
    """Whatever the number of threads, or a run could not be resumed with another."""
    sequences = Sequences(torch.zeros(num_words, dtype=torch.int64), torch.tensor([0, num_words]))
    model = SkipGram.create(torch.tensor([1, 1]), dimension=1)
    steps = [Word2VecSteps(model, sequences, threads=threads) for threads in (1, 2)]
    assert steps[0].per_epoch == steps[1].per_epoch <= 110
    jobs = num_words / steps[0]._job_words / steps[0].per_epoch
    assert jobs > 1.9 if num_words < 800_000 else jobs > 7


def test_words_are_kept_in_the_kernel_as_the_model_says():
    sequences = zipf_sentences(num_words=50_000)
    counts = torch.bincount(sequences.values, minlength=V)
    model = seeded(SkipGram, False, sequences, subsample=0.01)
    steps = Word2VecSteps(model, sequences, threads=1)
    kept = []
    run = steps._run
    steps._run = lambda *args: kept.append(run(*args))
    for step in range(steps.per_epoch):
        steps.take(step, 0.01)
    keep = keep_probability(counts, 0.01)
    expected = (counts * keep).sum().item()
    deviation = (counts * keep * (1 - keep)).sum().sqrt().item()
    assert deviation > 50
    assert abs(sum(kept) - expected) < 5 * deviation


def torch_steps(model, sequences, window, *, batch_size=64, seed=3):
    windows = model.windows(sequences, max_history=1, window=window)
    optimizer = RowAdagrad(model.parameters(), lr=0.01)
    return GradientSteps(model, optimizer, windows, batch_size=batch_size, seed=seed)


def pairs_of(sequences, kept, reach):
    """All pairs of kept words up to ``reach`` kept words apart, as the kernel's rule has them."""
    words, kept = sequences.values.tolist(), kept.tolist()
    sentences = [
        [words[place] for place in range(start, stop) if kept[place]]
        for start, stop in pairwise(sequences.offsets.tolist())
    ]
    return sorted(
        (word, sentence[other])
        for sentence in sentences
        for place, word in enumerate(sentence)
        for other in range(max(0, place - reach), min(len(sentence), place + reach + 1))
        if other != place
    )


def test_the_torch_path_keeps_words_as_the_model_says():
    sequences = zipf_sentences(num_words=20_000)
    model = seeded(CBOW, False, sequences, subsample=0.01)
    steps = torch_steps(model, sequences, window=4)
    counts, keep = torch.bincount(sequences.values, minlength=V), model.keep.double()
    found = torch.bincount(sequences.values[steps.examples.kept], minlength=V)
    deviation = (counts * keep * (1 - keep)).sqrt() + 1
    assert ((found - counts * keep).abs() < 5 * deviation).all()
    assert found.sum() < 0.7 * counts.sum()


@pytest.mark.parametrize("epoch", [0, 2])
def test_pairs_of_the_torch_path_are_those_of_the_words_that_are_left(epoch, monkeypatch):
    """The window spans the words left after subsampling, as in the kernel and its reference."""
    sequences = zipf_sentences(num_words=3_000)
    model = seeded(SkipGram, False, sequences, subsample=0.01)
    # With a reach of 1 nothing but the words that are left decides which pairs there are.
    steps = torch_steps(model, sequences, window=1)
    seen = []

    def watched(hidden, targets, *, generator):
        neighbours = torch.cdist(hidden, model.encoder.weight).argmin(1)
        seen.extend(zip(targets.tolist(), neighbours.tolist(), strict=True))
        return hidden.sum(-1)

    monkeypatch.setattr(model.head, "forward", watched)
    for step in range(epoch * steps.per_epoch, (epoch + 1) * steps.per_epoch):
        steps.take(step, 0.0)
    assert sorted(seen) == pairs_of(sequences, steps.examples.kept, 1)
    assert steps.examples.kept.double().mean() < 0.7


def test_windows_of_the_torch_path_close_the_gaps_of_words_left_out():
    sequences = zipf_sentences(num_words=2_000)
    model = seeded(SkipGram, False, sequences, subsample=0.01)
    examples = torch_steps(model, sequences, window=3).examples
    batch = examples.batch(torch.arange(len(examples)))
    word, place = (batch.context >= 0).nonzero(as_tuple=True)
    found = zip(batch.targets[word].tolist(), batch.context[word, place].tolist(), strict=True)
    assert sorted(found) == pairs_of(sequences, examples.kept, 3)


def test_each_epoch_of_the_torch_path_leaves_out_other_words():
    sequences = zipf_sentences(num_words=2_000)
    model = seeded(SkipGram, False, sequences, subsample=0.01)
    steps, again = (torch_steps(model, sequences, window=2, batch_size=500) for _ in range(2))
    kept = []
    for step in range(2 * steps.per_epoch):
        steps.take(step, 0.0)
        kept.append(steps.examples.kept)
    assert torch.equal(kept[0], kept[steps.per_epoch - 1])
    assert not torch.equal(kept[0], kept[-1])
    again.take(steps.per_epoch, 0.0)
    assert torch.equal(again.examples.kept, kept[-1])


def test_the_reach_of_the_torch_path_is_uniform_up_to_the_window():
    model = SkipGram(BagEncoder(V, 4), sampled())
    context = torch.ones(40_000, 8, dtype=torch.int64)
    narrowed = model.narrowed(context, torch.Generator().manual_seed(0))
    shares = (narrowed >= 0).double().mean(0)
    expected = torch.tensor([0.25, 0.5, 0.75, 1.0, 1.0, 0.75, 0.5, 0.25], dtype=torch.float64)
    torch.testing.assert_close(shares, expected, rtol=0, atol=0.015)


def sampled(dimension=4, *, sampler=None, objective=negative_sampling, num_samples=5, **options):
    scorer = TableScorer(V, dimension, **{"bias": False, **options})
    sampler = UniformSampler(V) if sampler is None else sampler
    return SampledHead(scorer, sampler, objective=objective, num_samples=num_samples)


REFUSED = [
    (lambda: sampled(bias=True), "without biases"),
    (lambda: sampled(similarity="cosine"), "plain table"),
    (lambda: sampled(temperature=0.5), "plain table"),
    (lambda: sampled(objective=sampled_softmax), "neither negative sampling nor a tree"),
    (lambda: sampled(objective=nce), "neither negative sampling nor a tree"),
    (lambda: sampled(num_samples=None), "how many classes"),
    (lambda: sampled(sampler=LearnedUnigramSampler(V)), "fixed frequencies"),
    (lambda: sampled(sampler=InBatchSampler(V, UniformSampler(V))), "fixed frequencies"),
    (lambda: FullHead(TableScorer(V, 4, bias=False)), "neither negative sampling nor a tree"),
    (lambda: HierarchicalHead(4, Tree.huffman([1] * V), bias=True), "biases"),
    (lambda: sampled().bfloat16(), "bfloat16"),
]


@pytest.mark.parametrize(("head", "reason"), REFUSED, ids=range(len(REFUSED)))
def test_what_the_kernel_cannot_train_is_refused(head, reason):
    model = SkipGram(BagEncoder(V, 4), head())
    with pytest.raises(ValueError, match=f"the kernel cannot train this model: .*{reason}"):
        Word2VecSteps(model, zipf_sentences(), threads=1)


def test_other_models_are_refused():
    model = NextItem(BagEncoder(V, 4), sampled())
    with pytest.raises(ValueError, match="NextItem is neither skip-gram nor CBOW"):
        Word2VecSteps(model, zipf_sentences(), threads=1)


@pytest.mark.parametrize(
    "sampler", [UniformSampler(V), LogUniformSampler(V), UnigramSampler(V, [1] * V)]
)
def test_fixed_frequencies_are_taken(sampler):
    model = SkipGram(BagEncoder(V, 4), sampled(sampler=sampler))
    assert trained(model, zipf_sentences(), steps=2)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"window": 0}, "window"),
        ({"threads": -1}, "threads"),
        ({"seed": -1}, "seed"),
        ({"epochs": 0}, "epochs"),
        ({"learning_rate": math.nan}, "learning_rate"),
        ({"learning_rate": 0.0}, "learning_rate"),
    ],
)
def test_options_out_of_their_limits_are_refused(options, words):
    sequences = zipf_sentences()
    with pytest.raises(ValueError, match=words):
        train_word2vec(seeded(SkipGram, False, sequences), sequences, **options)


def test_sequences_that_cannot_be_trained_on_are_refused():
    model = seeded(SkipGram, False, zipf_sentences())
    with pytest.raises(ValueError, match="no examples"):
        Word2VecSteps(model, Sequences.from_lists([[], []]))
    with pytest.raises(ValueError, match="classes below 30, got 30"):
        Word2VecSteps(model, Sequences.from_lists([[0, 30]]))


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize(("table", "name"), [("inputs", "input"), ("outputs", "output")])
def test_what_is_no_number_is_not_published(table, name, value):
    sequences = zipf_sentences()
    model = seeded(SkipGram, False, sequences)
    steps = Word2VecSteps(model, sequences, threads=1)
    for step in range(3):
        steps.take(step, 0.05)
    getattr(steps._tables, table)[7, 2] = value
    with pytest.raises(NonFiniteError, match=f"the {name} vectors") as caught:
        steps.publish()
    assert caught.value.step == 2
    assert model.head.scorer.weight.isfinite().all()
    assert model.encoder.weight[7].isfinite().all()


def test_sums_that_overflow_are_no_fault():
    sequences = zipf_sentences()
    steps = Word2VecSteps(seeded(SkipGram, False, sequences), sequences, threads=1)
    steps._tables.inputs[:, :3] = 3e38
    steps.publish()


@pytest.mark.parametrize(("model_class", "tree"), KINDS)
@pytest.mark.parametrize("lists", [[[0]], [[0], [1], [2]], [[0, 1]], [[0] * 5], [[0, 1] * 3000]])
def test_small_and_odd_corpora(model_class, tree, lists):
    sequences = Sequences.from_lists(lists)
    num_classes = int(sequences.values.max()) + 1
    model = build(model_class, tree, sequences, dimension=3, num_classes=num_classes)
    before = model.encoder.weight.detach().clone()
    train_word2vec(model, sequences, threads=1, epochs=2)
    assert model.encoder.weight.isfinite().all()
    if len(lists[0]) < 2:
        assert torch.equal(model.encoder.weight, before)


def topic_sentences(seed=0, num_sentences=1000, length=10):
    """Return sentences of words of one topic each; word w belongs to topic w mod TOPICS."""
    generator = torch.Generator().manual_seed(seed)
    topics = torch.randint(TOPICS, (num_sentences, 1), generator=generator)
    words = torch.randint(WORDS_A_TOPIC, (num_sentences, length), generator=generator)
    offsets = torch.arange(0, num_sentences * length + 1, length)
    return Sequences((words * TOPICS + topics).flatten(), offsets)


def share_of_neighbours_in_topic(model):
    """Return how many words have a word of their own topic as the nearest one."""
    units = torch.nn.functional.normalize(model.key_vectors().detach())
    cosines = (units @ units.T).fill_diagonal_(-1)
    own = torch.arange(len(units)) % TOPICS
    return (own[cosines.argmax(1)] == own).double().mean().item()


def topic_model(model_class, tree, sequences):
    torch.manual_seed(0)
    num_classes = TOPICS * WORDS_A_TOPIC
    return build(model_class, tree, sequences, dimension=8, subsample=0, num_classes=num_classes)


@pytest.mark.parametrize(("model_class", "tree"), KINDS)
def test_words_of_a_topic_end_up_together(model_class, tree):
    sequences = topic_sentences()
    model = topic_model(model_class, tree, sequences)
    assert share_of_neighbours_in_topic(model) < 0.3
    train_word2vec(model, sequences, threads=1, epochs=10, learning_rate=0.05)
    assert share_of_neighbours_in_topic(model) >= 0.95


@pytest.mark.parametrize(("model_class", "tree"), KINDS)
def test_two_threads_learn_as_much_as_one(model_class, tree):
    sequences = topic_sentences(num_sentences=30_000)
    windows = model_class.windows(sequences, max_history=1, window=3)
    batch = windows.batch(torch.arange(0, len(windows), 100))
    losses = []
    for threads in (0, 1, 2):
        model = topic_model(model_class, tree, sequences)
        if threads:
            trained(model, sequences, threads=threads, steps=100)
        with torch.no_grad():
            loss = model(batch, generator=torch.Generator().manual_seed(0)).mean().item()
        losses.append(loss)
    untrained, one, two = losses
    assert one < 0.9 * untrained
    # The order of writing is chance, and with it a little of what is learned.
    assert abs(two - one) < 0.1 * untrained


@pytest.mark.parametrize("objective", [sampled_softmax, negative_sampling])
@pytest.mark.parametrize("model_class", MODELS)
def test_words_of_a_topic_end_up_together_by_gradients(model_class, objective):
    sequences = topic_sentences()
    num_classes = TOPICS * WORDS_A_TOPIC
    torch.manual_seed(0)
    scorer = TableScorer(num_classes, 16, bias=False, sparse=True)
    sampler = LogUniformSampler(num_classes, unique=True)
    head = SampledHead(scorer, sampler, objective=objective, num_samples=16)
    model = model_class(BagEncoder(num_classes, 16), head)
    assert share_of_neighbours_in_topic(model) < 0.3
    windows = model_class.windows(sequences, max_history=1, window=5)
    optimizer = RowAdagrad(model.parameters(), lr=0.1)
    steps = GradientSteps(model, optimizer, windows, batch_size=256)
    for step in range(4 * steps.per_epoch):
        steps.take(step, 0.1)
    assert share_of_neighbours_in_topic(model) >= 0.95
