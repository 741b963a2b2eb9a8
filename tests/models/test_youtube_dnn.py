"""YouTubeDNN against its formula in plain loops, and on logs whose structure is known."""

import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tests.models.feature_tables import features_of
from widemax.data import Sequences, WindowBatch
from widemax.data.splitting.holdout import Holdout
from widemax.encoders.contexts import mean_rows
from widemax.encoders.users import Tower
from widemax.encoders.youtube_dnn import YouTubeDNNEncoder
from widemax.heads import SampledHead
from widemax.models.retrieval.youtube_dnn import YouTubeDNN
from widemax.optim import RowAdam
from widemax.sampling import UniformSampler
from widemax.scoring import TableScorer
from widemax.training.gradients.steps import GradientSteps

NUM_CLASSES = 12
CONTEXT = torch.tensor(
    [[-1, -1, 3, 5, 3], [-1, -1, -1, -1, -1], [0, 11, 2, 7, 4], [-1, 6, -1, 1, -1]]
)
USERS = torch.tensor([1, -1, 0, 2])
AGES = torch.tensor([0.0, 3.0, 30.0, 1.5])


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


def linear(layer, x):
    """Plain loops: what a linear layer makes of a list of numbers."""
    weight = layer.weight.tolist()
    bias = [0.0] * len(weight) if layer.bias is None else layer.bias.tolist()
    return [
        b + sum(w * v for w, v in zip(row, x, strict=True))
        for row, b in zip(weight, bias, strict=True)
    ]


def expected_vector(encoder, context, user, age):
    table = encoder.items.weight.tolist()
    items = [item for item in context if item >= 0]
    mean = [sum(table[i][d] for i in items) / max(1, len(items)) for d in range(encoder.dimension)]
    extras = []
    if encoder.user_features is not None:
        extras += encoder.user_features.table[user].tolist()
    if encoder.oldest_age is not None:
        share = age / encoder.oldest_age
        extras += [share, share**2, math.sqrt(share)]
    tower = encoder.tower
    if not len(tower.layers):
        if not extras:
            return mean
        return [m + e for m, e in zip(mean, linear(tower.beside, extras), strict=True)]
    x = mean + extras
    for place, layer in enumerate(tower.layers):
        x = linear(layer, [max(0.0, v) for v in x] if place else x)
    return x


@pytest.mark.parametrize("layers", [(), (6,), (6, 5)])
@pytest.mark.parametrize("features", [False, True])
@pytest.mark.parametrize("oldest", [None, 40.0])
def test_user_vectors_are_the_formula_in_plain_loops(layers, features, oldest):
    known = Known() if features else None
    encoder = YouTubeDNNEncoder(NUM_CLASSES, 4, layers, user_features=known, oldest_age=oldest)
    encoder = encoder.double()
    for parameter in encoder.parameters():
        nn.init.normal_(parameter)
    expected = [
        expected_vector(encoder, context, user, age)
        for context, user, age in zip(CONTEXT.tolist(), USERS.tolist(), AGES.tolist(), strict=True)
    ]
    found = encoder(CONTEXT, USERS, AGES)
    exact = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(found, exact, rtol=0, atol=1e-10)


@given(
    st.lists(st.lists(st.integers(-1, NUM_CLASSES - 1), max_size=6), max_size=5),
    st.integers(0, 4),
)
@settings(max_examples=50, deadline=None)
def test_padding_anywhere_changes_nothing(rows, more):
    encoder = YouTubeDNNEncoder(NUM_CLASSES, 4, (5,)).double()
    width = max((len(row) for row in rows), default=0)
    packed = [[item for item in row if item >= 0] for row in rows]
    wide = [[-1] * (width - len(row) + more) + row for row in rows]
    tight = [[-1] * (width - len(row)) + row for row in packed]
    shape, tight_shape = (len(rows), width + more), (len(rows), width)
    found = encoder(torch.tensor(wide, dtype=torch.int64).view(shape))
    expected = encoder(torch.tensor(tight, dtype=torch.int64).view(tight_shape))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_serving_asks_for_an_unknown_user_at_age_0():
    model = YouTubeDNN.create(
        torch.ones(NUM_CLASSES),
        dimension=4,
        num_layers=1,
        hidden_size=6,
        user_features=features_of(torch.arange(3)[:, None]),
        example_age="on",
        days=40.0,
    )
    now = WindowBatch(
        context=CONTEXT,
        targets=torch.zeros(4, dtype=torch.int64),
        users=torch.full((4,), -1),
        ages=torch.zeros(4),
    )
    served = model.encode(CONTEXT)
    torch.testing.assert_close(served, model.hidden(now))
    old = WindowBatch(context=CONTEXT, targets=now.targets, users=now.users, ages=AGES)
    unlike = (model.hidden(old) - served).abs().sum(1)
    assert unlike[0] == 0
    assert (unlike[1:] > 0).all()


@given(st.lists(st.lists(st.integers(-1, 5), min_size=4, max_size=4), max_size=6), st.booleans())
@settings(max_examples=60, deadline=None)
def test_gradients_of_means_are_those_of_torch(rows, sparse):
    context = torch.tensor(rows, dtype=torch.int64).view(len(rows), 4)
    table = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    out = torch.randn(len(rows), 3, dtype=torch.float64)
    means = mean_rows(table, context, sparse=sparse)
    (means * out).sum().backward()
    found, table.grad = table.grad, None
    assert found.is_sparse == sparse
    with torch.no_grad():
        assert torch.equal(mean_rows(table, context, sparse=sparse), means)
    known = (context >= 0)[..., None]
    summed = (table[context.clamp(min=0)] * known).sum(1)
    (summed / known.sum(1).clamp(min=1) * out).sum().backward()
    torch.testing.assert_close(found.to_dense(), table.grad, rtol=0, atol=1e-12)
    if sparse:
        assert torch.equal(found._indices()[0], context[context >= 0].unique())


PLAIN = {"similarity": "dot", "temperature": 1.0, "bias": False}


@pytest.mark.parametrize("tied", [True, False])
def test_a_tied_table_is_learned_from_both_sides(tied):
    model = YouTubeDNN.create(
        torch.ones(NUM_CLASSES), dimension=4, tied=tied, num_samples=3, bias=False
    )
    batch = WindowBatch(context=torch.tensor([[2, 3]]), targets=torch.tensor([5]))
    model(batch, generator=torch.Generator().manual_seed(0)).sum().backward()
    touched = model.encoder.items.weight.grad.coalesce().indices()[0].tolist()
    assert {2, 3} <= set(touched)
    assert (5 in touched) == tied
    assert len(list(model.parameters())) == (1 if tied else 2)


@pytest.mark.parametrize("tied", [True, False])
def test_sparse_and_dense_gradients_are_the_same(tied):
    generator = torch.Generator()
    gradients = []
    for sparse in (True, False):
        torch.manual_seed(1)
        encoder = YouTubeDNNEncoder(NUM_CLASSES, 4, (6,), sparse=sparse).double()
        scorer = TableScorer(NUM_CLASSES, 4, sparse=sparse)
        if tied:
            scorer = TableScorer.tied(encoder.items, sparse=sparse)
        head = SampledHead(scorer, UniformSampler(NUM_CLASSES, unique=True), num_samples=4)
        model = YouTubeDNN(encoder, head)
        batch = WindowBatch(context=CONTEXT, targets=torch.tensor([1, 2, 3, 4]))
        model.double()(batch, generator=generator.manual_seed(0)).sum().backward()
        assert encoder.items.weight.grad.is_sparse == sparse
        gradients.append([each.grad.to_dense() for each in model.parameters()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_states_go_round():
    make = {"dimension": 4, "num_layers": 1, "hidden_size": 6, "days": 9.0}
    model = YouTubeDNN.create(torch.ones(NUM_CLASSES), **make)
    torch.manual_seed(5)
    other = YouTubeDNN.create(torch.ones(NUM_CLASSES), **make)
    assert not torch.equal(model.encode(CONTEXT), other.encode(CONTEXT))
    other.load_state_dict(model.state_dict())
    assert torch.equal(model.encode(CONTEXT), other.encode(CONTEXT))
    assert other.head.scorer.weight is other.encoder.items.weight
    copied = copy.deepcopy(model)
    assert copied.head.scorer.weight is copied.encoder.items.weight


@pytest.mark.parametrize("rows", [0, 1, 2])
@pytest.mark.parametrize("places", [0, 1, 5])
@pytest.mark.parametrize("layers", [0, 1])
def test_empty_batches_and_empty_histories_are_defined(rows, places, layers):
    model = YouTubeDNN.create(
        torch.ones(3),
        dimension=4,
        num_layers=layers,
        **({"hidden_size": 6} if layers else {}),
        days=9.0,
        num_samples=1,
        dropout=0.5,
    )
    batch = WindowBatch(
        context=torch.full((rows, places), -1),
        targets=torch.zeros(rows, dtype=torch.int64),
        ages=torch.zeros(rows),
    )
    losses = model(batch, generator=torch.Generator().manual_seed(0))
    assert losses.shape == (rows,)
    assert bool(losses.isfinite().all())
    losses.sum().backward()
    assert all(
        bool(p.grad.to_dense().isfinite().all()) for p in model.parameters() if p.grad is not None
    )
    assert model.topk(batch, 2).ids.shape == (rows, 2)


def test_one_class_is_certain():
    model = YouTubeDNN.create(torch.ones(1), dimension=4)
    batch = WindowBatch(context=torch.tensor([[0]]), targets=torch.tensor([0]))
    assert model(batch, generator=torch.Generator().manual_seed(0)).tolist() == [0.0]


def test_dropout_falls_while_training_only():
    model = YouTubeDNN.create(
        torch.ones(NUM_CLASSES), dimension=4, num_layers=1, hidden_size=6, dropout=0.5
    )
    assert not torch.equal(model.encode(CONTEXT), model.encode(CONTEXT))
    model.eval()
    assert torch.equal(model.encode(CONTEXT), model.encode(CONTEXT))


def test_signals_keep_their_size_through_a_deep_tower():
    tower = Tower(64, 0, [256] * 6)
    sizes = tower(torch.randn(500, 64)).square().mean()
    assert 0.3 < sizes < 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_classes": 0}, "num_classes must be between 1"),
        ({"dimension": 0}, "dimension must be between 1"),
        ({"layers": [8, 0]}, r"layers\[1\] must be between 1"),
        ({"oldest_age": 0.0}, "oldest_age must be a finite number above 0"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1"),
        ({"user_features": nn.Linear(3, 3)}, "user_features must be a module with an output_dim"),
    ],
)
def test_wrong_sizes_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        YouTubeDNNEncoder(**{"num_classes": 10, "dimension": 4, **options})


@pytest.mark.parametrize(
    ("context", "users", "ages", "message"),
    [
        (torch.tensor([1, 2]), None, None, "context must have two dimensions"),
        (torch.tensor([[12]]), None, None, "context must lie between 0 and 11"),
        (torch.tensor([[1]]), torch.tensor([1, 2]), None, r"users must have shape \[1\]"),
        (torch.tensor([[1]]), None, torch.zeros(2), r"ages must have shape \[1\]"),
        (torch.tensor([[1]]), None, torch.tensor([-1.0]), "ages must be at least 0 days, got -1"),
        (torch.tensor([[1]]), None, torch.tensor([torch.nan]), "ages must be at least 0 days"),
    ],
)
def test_wrong_batches_are_refused(context, users, ages, message):
    encoder = YouTubeDNNEncoder(NUM_CLASSES, 4, user_features=Known(), oldest_age=9.0)
    with pytest.raises(ValueError, match=message):
        encoder(context, users, ages)


@pytest.mark.parametrize(("num_classes", "drawn"), [(1, 1), (9, 4), (1600, 800), (5000, 800)])
def test_negatives_are_800_or_half_of_the_classes_unless_given(num_classes, drawn):
    model = YouTubeDNN.create(torch.ones(num_classes), dimension=2)
    assert model.head.num_samples == drawn


def test_wrong_heads_are_refused():
    with pytest.raises(ValueError, match=r"sampler must be one of .* log-uniform, .* got"):
        YouTubeDNN.create(torch.ones(9), sampler="popular")
    with pytest.raises(ValueError, match="num_samples must be a whole number between 1"):
        YouTubeDNN.create(torch.ones(9), num_samples=0)
    with pytest.raises(ValueError, match=r"at most 4, half of the classes .* got 5"):
        YouTubeDNN.create(torch.ones(9), num_samples=5)
    with pytest.raises(ValueError, match="falling count"):
        YouTubeDNN.create(torch.tensor([1, 2, 3]), sampler="log-uniform")
    with pytest.raises(ValueError, match="example_age = 'on' needs times"):
        YouTubeDNN.create(torch.ones(9), example_age="on")
    with pytest.raises(ValueError, match="num_layers has no effect with paper_tower = True"):
        YouTubeDNN.create(torch.ones(9), num_layers=2, paper_tower=True)
    with pytest.raises(ValueError, match="hidden_size has no effect with num_layers = 0"):
        YouTubeDNN.create(torch.ones(9), hidden_size=2, paper_tower=True)


def test_ages_are_read_where_the_log_has_times():
    read = {
        (setting, days): YouTubeDNN.create(
            torch.ones(9), example_age=setting, days=days
        ).encoder.oldest_age
        for setting, days in [("auto", 0.0), ("auto", 9.0), ("on", 9.0), ("off", 9.0)]
    }
    expected = {("auto", 0.0): None, ("auto", 9.0): 9.0, ("on", 9.0): 9.0, ("off", 9.0): None}
    assert read == expected


def test_the_tower_of_the_paper_halves_from_layer_to_layer():
    model = YouTubeDNN.create(torch.ones(9), dimension=8, paper_tower=True)
    sizes = [(layer.in_features, layer.out_features) for layer in model.encoder.tower.layers]
    assert sizes == [(8, 1024), (1024, 512), (512, 256), (256, 8)]


# Logs whose structure is known


def fit(model, examples, *, epochs, batch_size=256, rate=0.01):
    steps = GradientSteps(model, RowAdam(model.parameters()), examples, batch_size=batch_size)
    total = epochs * steps.per_epoch
    for step in range(total):
        steps.take(step, rate * max(0.02, 1 - step / total))
    model.eval()


def recall(model, held, k, *, max_history=50):
    batch = held.batch(torch.arange(len(held)), max_history=max_history)
    with torch.no_grad():
        found = model.topk(batch, k).ids
    return float((found == held.targets.values[:, None]).any(1).float().mean())


@pytest.mark.parametrize("layers", [0, 1])
@pytest.mark.parametrize("sampler", ["uniform", "log-uniform"])
def test_groups_of_items_are_found_from_a_log_without_order(layers, sampler):
    generator = torch.Generator().manual_seed(0)
    groups = torch.randint(20, (600,), generator=generator)
    items = groups[:, None] + 20 * torch.randint(10, (600, 9), generator=generator)
    log = Sequences(items.flatten(), torch.arange(601) * 9)
    train, held = Holdout.of_last(log)
    model = YouTubeDNN.create(
        torch.ones(200),
        dimension=16,
        num_layers=layers,
        **({"hidden_size": 32} if layers else {}),
        num_samples=50,
        sampler=sampler,
        **PLAIN,
    )
    fit(model, model.windows_without_order(train, max_history=10), epochs=6)
    # Ten items are in a group: nobody can find more than all of them, chance finds 5 in 100.
    assert recall(model, held, 10) > 0.8


def test_a_user_without_history_is_told_by_his_features():
    groups = torch.randint(3, (300,), generator=torch.Generator().manual_seed(0))
    chosen = torch.randint(4, (300, 5), generator=torch.Generator().manual_seed(1))
    items = groups[:, None] + 3 * chosen
    log = Sequences(items.flatten(), torch.arange(301) * 5)
    users = features_of(groups[:, None])
    model = YouTubeDNN.create(torch.ones(12), dimension=8, user_features=users, num_samples=6)
    fit(model, model.windows(log, max_history=5, window=1), epochs=10)
    nothing = torch.full((300, 1), -1)
    batch = WindowBatch(context=nothing, targets=nothing[:, 0], users=torch.arange(300))
    assert float((model.topk(batch, 4).ids % 3 == groups[:, None]).float().mean()) > 0.95


def test_example_age_learns_what_is_new():
    """Item 0 was all the rage a month ago, item 1 is now; the history says nothing."""
    generator = torch.Generator().manual_seed(0)
    days = torch.rand(1000, generator=generator, dtype=torch.float64) * 30
    after = torch.where(days < 15, 0, 1)
    values = torch.stack([torch.full_like(after, 2), after], dim=1).flatten()
    log = Sequences(values, torch.arange(1001) * 2, times=(days * 86_400).repeat_interleave(2))
    first = {}
    for oldest in (None, 30.0):
        torch.manual_seed(0)
        model = YouTubeDNN.create(
            torch.ones(4),
            dimension=8,
            num_layers=1,
            hidden_size=16,
            tied=False,
            days=oldest or 0.0,
            num_samples=2,
            sampler="uniform",
            example_age="auto",
            **PLAIN,
        )
        fit(model, model.windows(log, max_history=3, window=1), epochs=4, batch_size=64)
        scores = model.head.scores(model.encode(torch.tensor([[2]])))[0].detach()
        first[oldest] = float(scores[1] - scores[0])
    assert first[30.0] > 3
    assert abs(first[None]) < 1
