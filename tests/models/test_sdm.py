"""SDM against its formula in plain loops, and on logs in which order decides the next item."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tests.models.feature_tables import features_of
from widemax.data import Sequences, WindowBatch
from widemax.encoders.attention import SelfAttention, attention_pool, masked_softmax
from widemax.encoders.contexts import packed
from widemax.encoders.sdm import SDMEncoder
from widemax.models.retrieval.sdm import SDM
from widemax.models.retrieval.youtube_dnn import YouTubeDNN
from widemax.optim import RowAdam
from widemax.training.gradients.steps import GradientSteps

NUM_CLASSES = 12
CODES = torch.stack([torch.arange(12) % 3, torch.arange(12) // 5], dim=1)
CODES[7, 1] = -1
CONTEXT = torch.tensor(
    [
        [-1, -1, -1, -1, -1, 3],
        [-1, -1, -1, -1, -1, -1],
        [-1, 0, -1, 11, 2, 2],
        [7, 6, 5, 7, 3, 2],
    ]
)
USERS = torch.tensor([1, -1, 0, 2])


class Known(nn.Module):
    """Three numbers for each of three users, others for one who is not known."""

    output_dimension = 3

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(4, 3))

    def forward(self, users):
        return self.table[users]


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


# Plain loops over lists of numbers


def dot(x, y):
    return sum(a * b for a, b in zip(x, y, strict=True))


def plus(x, y):
    return [a + b for a, b in zip(x, y, strict=True)]


def times(matrix, x):
    return [dot(row, x) for row in matrix.tolist()]


def softmax(scores):
    top = max(scores)
    shares = [math.exp(score - top) for score in scores]
    return [share / sum(shares) for share in shares]


def mix(weights, vectors, size):
    return [sum(w * x[d] for w, x in zip(weights, vectors, strict=True)) for d in range(size)]


def pool(vectors, query):
    if not vectors:
        return [0.0] * len(query)
    return mix(softmax([dot(x, query) for x in vectors]), vectors, len(query))


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def lstm_states(lstm, inputs):
    size = lstm.hidden_size
    state, cell, states = [0.0] * size, [0.0] * size, []
    for x in inputs:
        bias = plus(lstm.bias_ih_l0.tolist(), lstm.bias_hh_l0.tolist())
        gates = plus(plus(times(lstm.weight_ih_l0, x), times(lstm.weight_hh_l0, state)), bias)
        enter, forget, new, out = (gates[k * size : (k + 1) * size] for k in range(4))
        cell = [
            sigmoid(f) * c + sigmoid(i) * math.tanh(g)
            for f, c, i, g in zip(forget, cell, enter, new, strict=True)
        ]
        state = [sigmoid(o) * math.tanh(c) for o, c in zip(out, cell, strict=True)]
        states.append(state)
    return states


def self_attended(attention, vectors):
    size = len(vectors[0])
    width = size // attention.num_heads
    projected = [times(attention.inputs.weight, x) for x in vectors]
    result = []
    for place, x in enumerate(vectors):
        joined = []
        for start in range(0, size, width):
            own = slice(start, start + width)
            queries, keys, values = (
                [each[part * size : (part + 1) * size][own] for each in projected]
                for part in range(3)
            )
            scores = [dot(queries[place], key) / math.sqrt(width) for key in keys]
            joined += mix(softmax(scores), values, width)
        result.append(plus(x, times(attention.output.weight, joined)))
    return result


def field_vectors(encoder, items, field):
    if field == 0:
        return [encoder.items.weight[item].tolist() for item in items]
    codes = [int(encoder.codes[item, field - 1]) for item in items]
    table = encoder.sides[field - 1].weight
    return [table[code].tolist() if code >= 0 else None for code in codes]


def expected_vector(encoder, items, user):
    size, fields = encoder.dimension, 1 + len(encoder.sides)
    query = encoder.query.tolist()
    if encoder.user_features is not None:
        features = encoder.user_features.table[user].tolist()
        query = plus(query, times(encoder.profile.weight, features))
    earlier, last = items[: -encoder.short], items[-encoder.short :]
    short = [0.0] * size
    if last:
        inputs = [[] for _ in last]
        for field in range(fields):
            for row, x in zip(inputs, field_vectors(encoder, last, field), strict=True):
                row += x or [0.0] * size
        states = self_attended(encoder.attention, lstm_states(encoder.lstm, inputs))
        short = pool(states, query)
    sets = []
    for field in range(fields):
        sets += pool([x for x in field_vectors(encoder, earlier, field) if x], query)
    summary = plus(times(encoder.summary.weight, sets), encoder.summary.bias.tolist())
    long = [math.tanh(x) for x in summary]
    gates = plus(times(encoder.gate.weight, query + short + long), encoder.gate.bias.tolist())
    return [
        sigmoid(g) * p + (1 - sigmoid(g)) * s for g, p, s in zip(gates, long, short, strict=True)
    ]


@pytest.mark.parametrize("short", [1, 3, 9])
@pytest.mark.parametrize("codes", [None, CODES], ids=["items", "sides"])
@pytest.mark.parametrize("features", [False, True])
def test_user_vectors_are_the_formula_in_plain_loops(short, codes, features):
    encoder = SDMEncoder(
        NUM_CLASSES,
        4,
        short=short,
        item_codes=codes,
        user_features=Known() if features else None,
    ).double()
    for parameter in encoder.parameters():
        nn.init.normal_(parameter)
    found = encoder(CONTEXT, USERS)
    expected = [
        expected_vector(encoder, [item for item in row if item >= 0], user)
        for row, user in zip(CONTEXT.tolist(), USERS.tolist(), strict=True)
    ]
    expected = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


@given(
    st.lists(st.lists(st.integers(-1, NUM_CLASSES - 1), max_size=9), max_size=4), st.integers(0, 4)
)
@settings(max_examples=50, deadline=None)
def test_padding_anywhere_changes_nothing(rows, more):
    encoder = SDMEncoder(NUM_CLASSES, 4, short=3, item_codes=CODES).double()
    width = max((len(row) for row in rows), default=0)
    wide = [[-1] * (width - len(row) + more) + row for row in rows]
    known = [[item for item in row if item >= 0] for row in rows]
    tight = [[-1] * (width - len(row)) + row for row in known]
    found = encoder(torch.tensor(wide, dtype=torch.int64).view(len(rows), width + more))
    expected = encoder(torch.tensor(tight, dtype=torch.int64).view(len(rows), width))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@given(st.lists(st.lists(st.integers(-1, 9), min_size=5, max_size=5), max_size=6))
@settings(max_examples=50, deadline=None)
def test_packed_rows_keep_all_classes_in_their_order(rows):
    found = packed(torch.tensor(rows, dtype=torch.int64).view(len(rows), 5)).tolist()
    kept = [[item for item in row if item >= 0] for row in rows]
    longest = max((len(row) for row in kept), default=0)
    assert found == [row + [-1] * (longest - len(row)) for row in kept]


def test_rows_of_nothing_have_no_weights_and_no_gradient():
    scores = torch.randn(2, 3, requires_grad=True)
    known = torch.tensor([[True, True, False], [False, False, False]])
    weights = masked_softmax(scores, known)
    torch.testing.assert_close(weights.sum(1), torch.tensor([1.0, 0.0]))
    (weights * torch.randn(2, 3)).sum().backward()
    assert scores.grad[1].tolist() == [0.0] * 3
    assert scores.grad[0, 2] == 0
    vectors = torch.randn(2, 3, 4)
    assert attention_pool(vectors, torch.randn(2, 4), known)[1].tolist() == [0.0] * 4


def test_order_counts_in_the_last_items_and_not_before_them():
    encoder = SDMEncoder(NUM_CLASSES, 4, short=3).double()
    one, swapped_early, swapped_late = encoder(
        torch.tensor([[5, 7, 1, 2, 3], [7, 5, 1, 2, 3], [5, 7, 2, 1, 3]])
    )
    torch.testing.assert_close(one, swapped_early, rtol=0, atol=1e-12)
    assert float((one - swapped_late).detach().abs().max()) > 1e-4


def test_gradients_flow_everywhere_and_name_the_rows_read_only():
    model = SDM.create(
        torch.ones(NUM_CLASSES),
        dimension=4,
        short=2,
        item_features=features_of(CODES),
        user_features=features_of(torch.arange(3)[:, None]),
        tied=False,
    )
    batch = WindowBatch(context=CONTEXT, targets=torch.tensor([1, 2, 3, 4]), users=USERS)
    model(batch, generator=torch.Generator().manual_seed(0)).sum().backward()
    for name, parameter in model.named_parameters():
        assert bool(parameter.grad.to_dense().isfinite().all()), name
        assert float(parameter.grad.to_dense().abs().sum()) > 0, name
    touched = model.encoder.items.weight.grad.coalesce().indices()[0]
    assert torch.equal(touched, CONTEXT[CONTEXT >= 0].unique())


@pytest.mark.parametrize("max_history", [2, 10, 50])
def test_both_halves_learn_with_the_usual_settings(max_history):
    model = SDM.create(torch.ones(NUM_CLASSES), dimension=4, max_history=max_history)
    log = Sequences(torch.arange(60) % NUM_CLASSES, torch.tensor([0, 60]))
    windows = model.windows(log, max_history=max_history, window=1)
    model(windows.batch(torch.tensor([len(windows) - 1]))).sum().backward()
    halves = (model.encoder.lstm.weight_ih_l0, model.encoder.summary.weight)
    assert all(float(each.grad.abs().sum()) > 0 for each in halves)


def test_the_session_is_a_fifth_of_the_history_or_what_is_given():
    lengths = {
        (short, most): SDM.create(torch.ones(9), short=short, max_history=most).encoder.short
        for short, most in [(0, 1), (0, 4), (0, 10), (0, 50), (9, 10)]
    }
    assert lengths == {(0, 1): 1, (0, 4): 1, (0, 10): 2, (0, 50): 10, (9, 10): 9}
    with pytest.raises(ValueError, match="short must be below max_history = 10, got 10: nothing"):
        SDM.create(torch.ones(9), short=10, max_history=10)


def test_states_go_round():
    models = [
        SDM.create(
            torch.ones(NUM_CLASSES), dimension=4, item_features=features_of(CODES), lstm_layers=2
        )
        for _ in range(2)
    ]
    one, other = models
    assert one.encoder.lstm.num_layers == 2
    assert not torch.equal(one.encode(CONTEXT), other.encode(CONTEXT))
    other.load_state_dict(one.state_dict())
    assert torch.equal(one.encode(CONTEXT), other.encode(CONTEXT))
    assert other.head.scorer.weight is other.encoder.items.weight


@pytest.mark.parametrize("rows", [0, 1, 2])
@pytest.mark.parametrize("places", [0, 1, 5])
def test_empty_batches_and_empty_histories_are_defined(rows, places):
    table = features_of(torch.tensor([[0], [1], [-1]]))
    model = SDM.create(torch.ones(3), dimension=4, num_samples=1, dropout=0.5, item_features=table)
    batch = WindowBatch(
        context=torch.full((rows, places), -1), targets=torch.zeros(rows, dtype=torch.int64)
    )
    losses = model(batch, generator=torch.Generator().manual_seed(0))
    assert losses.shape == (rows,)
    assert bool(losses.isfinite().all())
    losses.sum().backward()
    for parameter in model.parameters():
        assert parameter.grad is None or bool(parameter.grad.to_dense().isfinite().all())
    assert model.topk(batch, 2).ids.shape == (rows, 2)


def test_dropout_falls_while_training_only():
    model = SDM.create(torch.ones(NUM_CLASSES), dimension=4, dropout=0.5)
    assert not torch.equal(model.encode(CONTEXT), model.encode(CONTEXT))
    model.eval()
    assert torch.equal(model.encode(CONTEXT), model.encode(CONTEXT))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_classes": 0}, "num_classes must be between 1"),
        ({"short": 0}, "short must be between 1"),
        ({"num_heads": 3}, "num_heads must divide dimension 4, got 3"),
        ({"num_heads": 0}, "num_heads must be between 1"),
        ({"num_layers": 0}, "num_layers must be between 1"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1"),
        ({"item_codes": torch.zeros(9, 1)}, r"item_codes must have shape \[10, S\]"),
        ({"item_codes": torch.zeros(10, 1)}, "item_codes must hold whole numbers"),
        ({"item_codes": torch.full((10, 1), -1)}, "item_codes must lie between 0"),
        ({"item_codes": torch.full((10, 1), -2)}, "item_codes must lie between 0"),
        ({"item_codes": torch.full((10, 1), 2**40)}, "item_codes must lie between 0"),
    ],
)
def test_wrong_sizes_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        SDMEncoder(**{"num_classes": 10, "dimension": 4, **options})


def test_self_attention_ignores_what_is_not_known():
    attention = SelfAttention(4, 2)
    vectors = torch.randn(1, 3, 4)
    known = torch.tensor([[True, True, False]])
    changed = vectors.clone()
    changed[0, 2] = 99.0
    torch.testing.assert_close(attention(vectors, known)[:, :2], attention(changed, known)[:, :2])


# Logs in which the last item decides the next


def walks(num_users=250, num_classes=30, length=12):
    """Each item is followed by one of two: which two, depends on the item and nothing else."""
    generator = torch.Generator().manual_seed(0)
    nexts = torch.stack([torch.randperm(num_classes, generator=generator) for _ in range(2)], dim=1)
    items = torch.randint(num_classes, (num_users, 1), generator=generator)
    for _ in range(length - 1):
        way = torch.randint(2, (num_users, 1), generator=generator)
        items = torch.cat([items, nexts[items[:, -1:]].gather(2, way[..., None])[..., 0]], dim=1)
    return Sequences(items.flatten(), torch.arange(num_users + 1) * length), num_classes


def found_next(kind, **options):
    torch.manual_seed(0)
    log, num_classes = walks()
    train, held = log.split(0.2)
    model = kind.create(
        torch.ones(num_classes), dimension=16, num_samples=num_classes // 2, **options
    )
    examples = model.windows(train, max_history=12, window=1)
    steps = GradientSteps(model, RowAdam(model.parameters()), examples, batch_size=128)
    total = 8 * steps.per_epoch
    for step in range(total):
        steps.take(step, 0.02 * max(0.02, 1 - step / total))
    model.eval()
    asked = model.windows(held, max_history=12, window=1)
    batch = asked.batch(torch.arange(len(asked)))
    with torch.no_grad():
        found = model.topk(batch, 2).ids
    return float((found == batch.targets[:, None]).any(1).float().mean())


def test_where_the_last_item_tells_the_next_order_is_worth_much():
    in_order = found_next(SDM, short=4)
    without = found_next(YouTubeDNN, num_layers=1, hidden_size=32, tied=False)
    # Two of thirty can follow: nobody can do better than 1.
    assert in_order > 0.8
    assert in_order > without + 0.3
