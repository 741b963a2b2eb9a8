"""Language models against their formulas, and on languages whose perplexity is known."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from widemax.data import Sequences, Windows
from widemax.encoders import LSTMEncoder, NNLMEncoder
from widemax.evaluation import evaluate_perplexity
from widemax.heads import FullHead, SampledHead
from widemax.models import NNLM, LSTMLanguageModel, SegmentBatch, Segments
from widemax.models.language.reading import Reading
from widemax.models.segments import Streams
from widemax.optim import RowAdam
from widemax.sampling import UniformSampler
from widemax.scoring import TableScorer
from widemax.training.gradients.steps import GradientSteps

NUM_CLASSES = 12
TEXTS = [[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5], [], [8], [9, 7, 9], [2, 3, 8, 4]]
# After 1 1 1 comes 1, 0 or 2: only a model that looks further back can predict which.
LONG_CYCLE = [0, 1, 1, 1, 1, 2, 1, 1, 1, 1]


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def full_head(encoder):
    return FullHead(TableScorer(encoder.num_classes, encoder.output_dimension, bias=True))


def nnlm(num_classes=NUM_CLASSES, context_size=3, *, dimension=4, hidden=6, direct=False):
    encoder = NNLMEncoder(num_classes, context_size, dimension, hidden, direct=direct)
    return NNLM(encoder, full_head(encoder))


def lstm(num_classes=NUM_CLASSES, *, dimension=4, hidden=6, layers=1):
    encoder = LSTMEncoder(num_classes, dimension, hidden, layers)
    return LSTMLanguageModel(encoder, full_head(encoder))


def stream(values):
    return Sequences(values, torch.tensor([0, len(values)]))


def fit(model, examples, *, epochs, batch_size, rate=0.02):
    steps = GradientSteps(model, RowAdam(model.parameters()), examples, batch_size=batch_size)
    total = epochs * steps.per_epoch
    for step in range(total):
        steps.take(step, rate * max(0.02, 1 - step / total))


def measured(model, sequences, max_history):
    model.eval()
    windows = model.windows(sequences, max_history=max_history, window=1)
    return evaluate_perplexity(model.head, model.encode, windows).perplexity


# Formula


@pytest.mark.parametrize("direct", [False, True])
def test_losses_of_the_nnlm_are_the_formula_word_by_word(direct):
    model = nnlm(direct=direct).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    windows = model.windows(Sequences.from_lists(TEXTS), max_history=3, window=1)
    losses = model(windows.batch(torch.arange(len(windows))))
    encoder, scorer = model.encoder, model.head.scorer
    expected = []
    for text in TEXTS:
        padded = [-1, -1, -1, *text]
        for place, word in enumerate(text):
            context = padded[place : place + 3]
            x = torch.cat([encoder.start if each < 0 else encoder.weight[each] for each in context])
            hidden = torch.tanh(encoder.hidden.bias + encoder.hidden.weight @ x)
            if direct:
                hidden = torch.cat([hidden, x])
            scores = scorer.bias + scorer.weight @ hidden
            expected.append(scores.logsumexp(0) - scores[word])
    torch.testing.assert_close(losses, torch.stack(expected), rtol=0, atol=1e-11)


def test_the_setting_direct_adds_the_word_vectors_to_every_score():
    settings = {"max_history": 3, "dimension": 4, "hidden_size": 6, "head": "full", "dropout": 0.0}
    model = NNLM.create(range(NUM_CLASSES, 0, -1), direct=True, **settings).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    encoder, scorer = model.encoder, model.head.scorer
    tanh_part, word_part = scorer.weight.split([6, 3 * 4], dim=1)
    for context in ([5, 0, 7], [-1, -1, 2]):
        x = torch.cat([encoder.start if each < 0 else encoder.weight[each] for each in context])
        hidden = torch.tanh(encoder.hidden.bias + encoder.hidden.weight @ x)
        expected = scorer.bias + word_part @ x + tanh_part @ hidden
        found = model.head.scores(model.encode(torch.tensor([context])))[0]
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_direct_connections_behind_units_of_the_head_are_refused():
    with pytest.raises(ValueError, match="direct has no effect with head_units = 8"):
        NNLM.create([3, 2, 1], direct=True, head_units=8)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize(("length", "overlap"), [(4, 0), (4, 2), (1, 3), (50, 0)])
def test_losses_of_the_lstm_are_those_of_reading_each_segment_word_by_word(layers, length, overlap):
    model = lstm(layers=layers).double()
    for parameter in model.head.parameters():
        torch.nn.init.normal_(parameter)
    segments = model.segments(Sequences.from_lists(TEXTS), length=length, overlap=overlap)
    losses = model(segments.batch(torch.arange(len(segments))))
    expected = []
    for text in TEXTS:
        for place in range(len(text)):
            begin = place // length * length - overlap
            # The word before the first that is read as a target is read too.
            read = text[max(0, begin - 1) : place]
            state = torch.zeros(6, dtype=torch.float64)
            if read:
                vectors = model.encoder.weight[torch.tensor(read)]
                state = model.encoder.lstm(vectors[None])[0][0, -1]
            scores = model.head.scorer.bias + model.head.scorer.weight @ state
            expected.append(cross_entropy(scores, torch.tensor(text[place])))
    torch.testing.assert_close(losses, torch.stack(expected), rtol=0, atol=1e-11)


def test_one_segment_of_a_whole_text_has_the_losses_of_its_windows():
    model = lstm().double()
    text = Sequences.from_lists(TEXTS)
    segments = model.segments(text, length=20)
    windows = model.windows(text, max_history=20, window=1)
    torch.testing.assert_close(
        model(segments.batch(torch.arange(len(segments)))),
        model(windows.batch(torch.arange(len(windows)))),
        rtol=0,
        atol=1e-12,
    )


def test_a_word_tells_nothing_about_those_before_it():
    model = lstm().double()
    context = torch.tensor([[-1, 3, 1, 4, 1], [5, 9, 2, 6, -1]])
    changed = context.clone()
    changed[:, 3] = 7
    hidden, other = model.encode_segments(context), model.encode_segments(changed)
    torch.testing.assert_close(hidden[:, :3], other[:, :3], rtol=0, atol=0)
    assert ((hidden[:, 3] - other[:, 3]).abs() > 1e-3).any(-1).all()


def test_heads_that_draw_take_the_generator():
    encoder = LSTMEncoder(NUM_CLASSES, 4, 6)
    head = SampledHead(TableScorer(NUM_CLASSES, 6), UniformSampler(NUM_CLASSES), num_samples=3)
    model = LSTMLanguageModel(encoder, head)
    batch = model.segments(Sequences.from_lists(TEXTS), length=4).batch(torch.arange(4))
    losses = [model(batch, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    assert torch.equal(losses[0], losses[1])
    assert not torch.equal(losses[0], losses[2])


# Segments


@pytest.mark.parametrize(("length", "overlap"), [(1, 0), (3, 0), (3, 2), (4, 9), (100, 5)])
def test_segments_are_the_words_in_their_order_each_told_once(length, overlap):
    segments = Segments(Sequences.from_lists(TEXTS), length, overlap=overlap)
    batch = segments.batch(torch.arange(len(segments)))
    expected = []
    for text in TEXTS:
        for start in range(0, len(text), length):
            first, stop = max(0, start - overlap), min(start + length, len(text))
            places = range(first, stop)
            before = [text[place - 1] if place else -1 for place in places]
            wanted = [text[place] if place >= start else -1 for place in places]
            expected.append((before, wanted))
    width = max(len(before) for before, _ in expected)
    padded = [[each + [-1] * (width - len(each)) for each in row] for row in expected]
    assert batch.context.tolist() == [before for before, _ in padded]
    assert batch.targets.tolist() == [wanted for _, wanted in padded]
    assert batch.targets[batch.targets >= 0].tolist() == [word for text in TEXTS for word in text]


def test_segments_come_in_the_order_of_the_rows_and_no_wider_than_they_are():
    segments = Segments(Sequences.from_lists(TEXTS), 4)
    assert segments.batch(torch.tensor([4, 3])).targets.tolist() == [[9, 7, 9], [8, -1, -1]]
    assert segments.batch(torch.tensor([], dtype=torch.long)).targets.shape == (0, 0)
    assert len(Segments(Sequences.from_lists([[], []]), 4)) == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda texts: Segments(texts, 0), "length must be .* got 0"),
        (lambda texts: Segments(texts, 4, overlap=-1), "overlap must be .* got -1"),
        (lambda texts: Segments(texts, 4).batch(torch.tensor([7])), "between 0 and 5, got 7"),
        (lambda texts: Segments(texts, 4).batch(torch.tensor([0, -2])), "between 0 and 5, got -2"),
        (lambda texts: Segments(texts, 4).batch(torch.tensor(1)), "rows must have one dimension"),
        (lambda texts: Segments(texts, 4).batch(torch.tensor([0.5])), "rows must"),
        (lambda texts: lstm().encode_segments(torch.tensor([3, 1])), "two dimensions"),
        (lambda texts: lstm()(SegmentBatch(**gapped())), "padding"),
    ],
)
def test_what_cannot_be_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(Sequences.from_lists(TEXTS))


def gapped():
    return {"context": torch.tensor([[3, -1, 4]]), "targets": torch.tensor([[1, 4, 1]])}


# Languages with a known perplexity


def test_a_cycle_is_learnt_by_the_nnlm_to_perplexity_one():
    text = stream(torch.tensor([0, 0, 1, 2, 1] * 60))
    model = nnlm(3, context_size=2, dimension=8, hidden=16)
    fit(model, model.windows(text, max_history=2, window=1), epochs=20, batch_size=40)
    # The first two words are the only ones that cannot be known.
    assert 1 < measured(model, text, 2) < 1.03


def test_what_lies_beyond_its_context_the_nnlm_cannot_know():
    """In four of ten places it sees 1 1 1: 1 follows with ½, 0 and 2 with ¼, or 0.6 bits a word."""
    text = stream(torch.tensor(LONG_CYCLE * 60))
    model = nnlm(3, context_size=3, dimension=8, hidden=16)
    fit(model, model.windows(text, max_history=3, window=1), epochs=20, batch_size=40)
    assert measured(model, text, 3) == pytest.approx(2**0.6, rel=0.02)


def test_the_lstm_knows_what_lies_further_back():
    text = stream(torch.tensor(LONG_CYCLE * 60))
    model = lstm(3, dimension=8, hidden=16)
    fit(model, model.segments(text, length=20, overlap=10), epochs=60, batch_size=5)
    assert 1 < measured(model, text, 20) < 1.05


@pytest.mark.parametrize("make", [nnlm, lstm])
def test_a_markov_chain_is_learnt_to_its_entropy(make):
    """Perplexity exp(H), H = −Σ π_i Σ P_ij log P_ij, on a text that was not seen."""
    generator = torch.Generator().manual_seed(1)
    transitions = (2 * torch.randn(6, 6, generator=generator, dtype=torch.float64)).softmax(-1)
    stationary = torch.linalg.matrix_power(transitions, 200)[0]
    entropy = -(stationary[:, None] * transitions * transitions.log()).sum().item()
    words = [0]
    for _ in range(12_000):
        words.append(int(torch.multinomial(transitions[words[-1]], 1, generator=generator)))
    train, test = (stream(part) for part in torch.tensor(words).split([8000, 4001]))
    model = make(6, dimension=8, hidden=16)
    examples = (
        model.windows(train, max_history=3, window=1)
        if make is nnlm
        else model.segments(train, length=20)
    )
    fit(model, examples, epochs=4, batch_size=100 if make is nnlm else 5, rate=0.01)
    assert measured(model, test, 3 if make is nnlm else 8) == pytest.approx(
        math.exp(entropy), rel=0.03
    )


# Streams: the state is carried from batch to batch


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize(("length", "rows"), [(3, 2), (2, 1), (50, 3), (1, 5)])
def test_losses_of_streams_are_those_of_reading_each_stream_word_by_word(layers, length, rows):
    model = lstm(layers=layers).double()
    for parameter in model.head.parameters():
        torch.nn.init.normal_(parameter)
    text = Sequences.from_lists(TEXTS)
    values = text.values
    streams = Streams(text, length, rows)
    found = {}
    for step in range(len(streams)):
        batch = streams.batch(torch.tensor([step]))
        losses = model(batch).tolist()
        places = (batch.targets >= 0).nonzero().tolist()
        for (row, place), loss in zip(places, losses, strict=True):
            found[row, step * length + place] = loss
    size = -(-(len(values) - 1) // rows)
    assert len(found) == len(values) - 1
    for (row, place), loss in found.items():
        read = values[row * size : row * size + place + 1]
        state = model.encoder.lstm(model.encoder.weight[read][None])[0][0, -1]
        scores = model.head.scorer.bias + model.head.scorer.weight @ state
        target = values[row * size + place + 1]
        assert loss == pytest.approx(cross_entropy(scores, target).item(), abs=1e-11)


def test_gradients_do_not_reach_into_the_batch_before():
    model = lstm().double()
    streams = Streams(Sequences.from_lists([[0, 1, 2, 3, 4, 5, 6]]), length=3, rows=1)
    for step in range(2):
        model.zero_grad()
        model(streams.batch(torch.tensor([step]))).sum().backward()
    read = model.encoder.weight.grad.abs().sum(1) > 0
    assert read.nonzero().flatten().tolist() == [3, 4, 5]


def test_a_batch_that_follows_needs_the_state_of_the_one_before():
    streams = Streams(Sequences.from_lists([[0, 1, 2, 3, 4]]), length=2, rows=1)
    with pytest.raises(ValueError, match="needs the state which that one left"):
        lstm()(streams.batch(torch.tensor([1])))
    for rows in ([2], [1, 0], [], [0, 1], [-1]):
        with pytest.raises(ValueError, match="rows must be one number between 0 and 1"):
            streams.batch(torch.tensor(rows, dtype=torch.int64))


@pytest.mark.parametrize("positions", [None, [0, 3, 4, 11, 18]])
def test_a_text_read_once_has_the_states_of_reading_all_before_each_word(positions):
    model = lstm(layers=2).double().eval()
    text = Sequences.from_lists(TEXTS).joined()
    places = None if positions is None else torch.tensor(positions)
    windows = Windows(text, before=len(text.values), positions=places)
    reading = Reading(model.encoder, windows)
    batch = windows.batch(torch.arange(len(windows)))
    with torch.no_grad():
        wanted = model.encode(batch.context)
    for _ in range(2):  # it begins anew
        found = [reading.batch(rows) for rows in torch.arange(len(windows)).split(2)]
        states = torch.cat([each.context for each in found])
        torch.testing.assert_close(states, wanted, rtol=0, atol=1e-12)
        assert torch.equal(torch.cat([each.targets for each in found]), batch.targets)


def test_tied_vectors_are_one_table_whatever_the_number_of_units():
    counts = range(NUM_CLASSES, 0, -1)
    for units in (4, 6):
        settings = {"dimension": 4, "hidden_size": units, "head": "full"}
        model = LSTMLanguageModel.create(counts, **settings)
        assert model.head.scorer.weight is model.encoder.weight
        other = LSTMLanguageModel.create(counts, tied=False, **settings)
        assert other.head.scorer.weight.shape == (NUM_CLASSES, units)
    with pytest.raises(ValueError, match="tied has no effect with head_units = 8"):
        LSTMLanguageModel.create(counts, tied=True, head_units=8)


def test_layers_are_as_many_as_asked_for():
    model = LSTMLanguageModel.create([3, 2, 1], lstm_layers=3)
    assert model.encoder.lstm.num_layers == 3
