"""Routing and pooling by kernels, against torch's own operations in float64."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn

from widemax.devices import plain_torch
from widemax.encoders.attention import SelfAttention, attend_rows, attention_pool
from widemax.encoders.contexts import numbered, numbered_halves, packed, vectors_at
from widemax.encoders.gate import gated
from widemax.encoders.pooled_attention import pool_attended
from widemax.encoders.recurrence import _States, _states, read_rows
from widemax.encoders.routing import route
from widemax.kernels.registers import LANES

ITEMS, DIMENSION = 9, 5
PLACES = torch.tensor([[3, 3, 8, 0, 1], [4, -1, -1, -1, -1], [-1] * 5, [5, 6, 7, 8, -1]])


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def derivatives(function, inputs):
    """The result, its gradient, and the gradient of the gradient's squares."""
    inputs = [each.clone().requires_grad_() for each in inputs]
    result = function(*inputs)
    ways = torch.linspace(-1, 1, result.numel(), dtype=result.dtype).view_as(result)
    once = torch.autograd.grad((result.square() * ways).sum(), inputs, retain_graph=True)
    slopes = torch.autograd.grad((result.square() * ways).sum(), inputs, create_graph=True)
    twice = torch.autograd.grad(sum(each.square().sum() for each in slopes), inputs)
    return [result.detach(), *once, *twice]


def assert_same_in_both_precisions(function, *inputs):
    found = derivatives(function, inputs)
    expected = derivatives(function, [each.double() for each in inputs])
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-4)
    assert all(float(each.abs().sum()) > 0 for each in expected)


@pytest.mark.parametrize("iterations", [1, 2, 5])
@pytest.mark.parametrize("interests", [1, 3, 6])
def test_routing(iterations, interests):
    counts = torch.tensor([interests, 1, 1, min(2, interests)])
    used = torch.arange(interests) < counts[:, None]
    mapped, routing = torch.randn(ITEMS, DIMENSION), torch.randn(3, interests)

    def sums(vectors):
        kind = vectors.dtype
        return route(vectors, mapped.to(kind), PLACES, used, routing.to(kind), iterations)

    assert_same_in_both_precisions(sums, torch.randn(ITEMS, DIMENSION))


def test_pooling():
    def pooled(vectors, query):
        return attend_rows(vectors, PLACES, query)

    assert_same_in_both_precisions(pooled, torch.randn(ITEMS, DIMENSION), torch.randn(4, DIMENSION))


def test_pooling_is_the_attention_over_the_vectors_at_the_places():
    vectors, query = torch.randn(ITEMS, DIMENSION), torch.randn(4, DIMENSION)
    expected = attention_pool(vectors_at(vectors, PLACES), query, PLACES >= 0)
    torch.testing.assert_close(attend_rows(vectors, PLACES, query), expected)
    one = attend_rows(vectors, PLACES, query[:1])
    torch.testing.assert_close(one, attend_rows(vectors, PLACES, query[:1].expand(4, -1)))


class Pooled(torch.nn.Module):
    """Attention over rows of 6, 1, 0 and 4 places, and the weighted mean of what it returns."""

    lengths = torch.tensor([6, 1, 0, 4])

    def __init__(self, heads, dropout=0.0, dimension=6):
        super().__init__()
        self.attention = SelfAttention(dimension, heads, dropout=dropout)

    def forward(self, vectors, query):
        return pool_attended(self.attention, vectors, self.lengths, query)

    def by_torch(self, vectors, query):
        known = torch.arange(vectors.shape[1]) < self.lengths[:, None]
        return attention_pool(self.attention(vectors, known), query, known)


@pytest.mark.parametrize("heads", [1, 2])
def test_pooled_attention(heads):
    model = Pooled(heads)
    names, weights = zip(*model.named_parameters(), strict=True)

    def pooled(vectors, query, *weights):
        given = dict(zip(names, weights, strict=True))
        return torch.func.functional_call(model, given, (vectors, query))

    inputs = (torch.randn(4, 6, 6), torch.randn(4, 6), *(each.detach() for each in weights))
    assert_same_in_both_precisions(pooled, *inputs)


@pytest.mark.parametrize("heads", [1, 2])
def test_pooled_attention_is_the_mean_of_what_attention_returns(heads):
    model, vectors, query = Pooled(heads), torch.randn(4, 6, 6), torch.randn(4, 6)
    places = [vectors.requires_grad_(), query.requires_grad_(), *model.parameters()]
    found, expected = model(vectors, query), model.by_torch(vectors, query)
    torch.testing.assert_close(found, expected)
    for one, other in zip(
        torch.autograd.grad(found.square().sum(), places),
        torch.autograd.grad(expected.square().sum(), places),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 8, 21])  # less than a tile, one, and several
@pytest.mark.parametrize("queries", [1, None])  # one for all rows, or one for each
@pytest.mark.parametrize(("dimension", "heads"), [(64, 2), (40, 5)])
def test_pooled_attention_of_many_rows(rows, queries, dimension, heads):
    model = Pooled(heads, dimension=dimension)
    model.lengths = torch.arange(rows) % 11
    vectors = torch.rand(rows, 10, dimension) - 0.5
    vectors[torch.arange(10) >= model.lengths[:, None]] = 3.0  # to be ignored
    query = torch.rand(queries or rows, dimension) - 0.5
    found = [vectors.requires_grad_(), query.requires_grad_(), *model.parameters()]
    exact = [each.detach().double().requires_grad_() for each in found]
    pooled = model(vectors, query)
    own = torch.autograd.grad(pooled.square().sum(), found)
    names = [name for name, _ in model.named_parameters()]
    known = torch.arange(10) < model.lengths[:, None]
    attended = torch.func.functional_call(
        model.attention,
        {
            name.removeprefix("attention."): each
            for name, each in zip(names, exact[2:], strict=True)
        },
        (exact[0], known),
    )
    expected = attention_pool(attended, exact[1], known)
    torch.testing.assert_close(pooled.double(), expected, rtol=1e-5, atol=1e-5)
    for one, other in zip(own, torch.autograd.grad(expected.square().sum(), exact), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-4)


def test_sessions_do_not_see_each_other():
    model, query = Pooled(2), torch.randn(1, 6)
    vectors = torch.randn(4, 6, 6)
    expected = model(vectors, query)
    vectors[3, 0] = torch.nan
    found = model(vectors, query)
    assert torch.equal(found[:3], expected[:3])
    assert bool(found[3].isnan().all())


def test_pooled_attention_drops_units_while_training():
    model, vectors, query = Pooled(2, dropout=0.5), torch.randn(4, 6, 6), torch.randn(4, 6)
    assert not torch.equal(model(vectors, query), model(vectors, query))
    model.eval()
    torch.testing.assert_close(model(vectors, query), model.by_torch(vectors, query))


@pytest.mark.parametrize("more", [0, 1_000])  # numbered by a list of all classes, or sorted
def test_contexts_are_numbered_by_what_they_name(more):
    context = torch.tensor([[7, -1, 2], [-1, 7, 9]])
    context[context > 0] += more
    named, places = numbered(context)
    assert named.tolist() == [2 + more, 7 + more, 9 + more]
    assert torch.equal(torch.where(places >= 0, named[places], -1), context)
    nothing, none = numbered(torch.full((2, 3), -1))
    assert len(nothing) == 0
    assert bool((none == -1).all())


def halves_of(context, last):
    """The last classes of each row, and those before them, by Python's own lists."""
    rows = [[each for each in row if each >= 0] for row in context.tolist()]
    cuts = [max(0, len(row) - last) for row in rows]
    return [row[:cut] for row, cut in zip(rows, cuts, strict=True)], [
        row[cut:] for row, cut in zip(rows, cuts, strict=True)
    ]


@pytest.mark.parametrize("last", [0, 1, 3, 6, 9])
@pytest.mark.parametrize("way", [nullcontext, plain_torch])
@pytest.mark.parametrize("more", [0, 2**40])
def test_halves_name_the_last_classes_and_those_before_them(last, way, more):
    context = torch.tensor([[7, -1, 2, 9, 7, -1], [-1, -1, -1, -1, 9, -1], [-1] * 6])
    context[context >= 0] += more
    with way():
        classes, num_recent, *both = numbered_halves(context, last)
    assert len(classes.unique()) == len(classes)
    assert bool((both[1] < num_recent).all())
    for places, expected in zip(both, halves_of(context, last), strict=True):
        found = [[classes[each].item() for each in row if each >= 0] for row in places.tolist()]
        assert found == expected
        assert torch.equal(packed(places), places)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("size", [6, 16, 64])  # less than a tile, and whole ones
@pytest.mark.parametrize("short", [False, True])  # rows in their order, or the longest first
def test_states_and_gradients_are_those_of_torchs_lstm(layers, size, short):
    lstm = nn.LSTM(DIMENSION, size, layers, batch_first=True)
    vectors = torch.randn(ITEMS, DIMENSION, requires_grad=True)
    places = PLACES if short else torch.tensor([[3, 3, 8], [1, -1, -1], *[[4, 0, 3]] * 30])
    inputs, known = [vectors, *lstm.parameters()], (places >= 0)[..., None]
    found = torch.where(known, read_rows(lstm, vectors, places), 0.0)
    expected = torch.where(known, lstm(vectors_at(vectors, places))[0], 0.0)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    ways = torch.randn_like(found)
    for one, other in zip(
        torch.autograd.grad((found * ways).sum(), inputs),
        torch.autograd.grad((expected * ways).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("threads", [1, 2])
def test_many_rows_through_the_steps_on_one_core_or_two(threads):
    lstm = nn.LSTM(DIMENSION, 32, batch_first=True)
    vectors = torch.randn(ITEMS, DIMENSION, requires_grad=True)
    generator = torch.Generator().manual_seed(0)
    places = torch.randint(ITEMS, (101, 4), generator=generator)
    places[3:40, 2:], places[50] = -1, -1
    inputs, known = [vectors, *lstm.parameters()], (places >= 0)[..., None]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = torch.where(known, read_rows(lstm, vectors, places), 0.0)
        gradients = torch.autograd.grad(found.square().sum(), inputs)
    finally:
        torch.set_num_threads(before)
    expected = torch.where(known, lstm(vectors_at(vectors, places))[0], 0.0)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    for one, other in zip(
        gradients, torch.autograd.grad(expected.square().sum(), inputs), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def states_of(vectors, *weights):
    """The states by kernels, or by the plain operations that stand for them, in float64."""
    way = _states if vectors.dtype == torch.float64 else _States.apply
    return way(vectors, PLACES, (PLACES >= 0).sum(1), *weights)


def test_derivatives_of_the_recurrence():
    lstm = nn.LSTM(DIMENSION, 16)
    weights = [each.detach() for each in lstm.parameters()]
    assert_same_in_both_precisions(states_of, torch.randn(ITEMS, DIMENSION), *weights)


def test_the_plain_recurrence_has_its_gradient():
    lstm = nn.LSTM(2, 3).double()
    vectors = torch.randn(ITEMS, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(states_of, (vectors, *lstm.parameters()))


def test_nan_reaches_the_states():
    lstm, vectors = nn.LSTM(1, 16, batch_first=True), torch.tensor([[1.0], [torch.nan]])
    states = read_rows(lstm, vectors, torch.tensor([[0, 1, 0]]))
    assert not bool(states[0, 0].isnan().any())
    assert bool(states[0, 1:].isnan().all())


def test_rows_of_nothing_have_no_states():
    lstm, nothing = nn.LSTM(DIMENSION, 16), torch.full((3, 2), -1)
    states = read_rows(lstm, torch.randn(ITEMS, DIMENSION, requires_grad=True), nothing)
    assert states.shape == (3, 2, 16)
    states.sum().backward()
    assert float(lstm.weight_ih_l0.grad.abs().sum()) == 0


@pytest.mark.parametrize("queries", [1, 11])  # one for all rows, or one for each
@pytest.mark.parametrize(("size", "fields"), [(16, 2), (64, 1), (5, 3)])  # whole registers, or not
def test_gate(queries, size, fields):
    model = nn.ModuleList([nn.Linear(fields * size, size), nn.Linear(3 * size, size)])
    names, weights = zip(*model.named_parameters(), strict=True)

    def hidden(short, pooled, query, *weights):
        given = dict(zip(names, weights, strict=True))
        return torch.func.functional_call(Gate(*model), given, (short, pooled, query))

    shapes = [(11, size), (11, fields * size), (queries, size)]
    inputs = [*(torch.randn(shape) for shape in shapes), *(each.detach() for each in weights)]
    assert_same_in_both_precisions(hidden, *(each / 2 for each in inputs))


class Gate(nn.ModuleList):
    """A gate whose layers are named by their places."""

    def __init__(self, summary, gate):
        super().__init__([summary, gate])

    def forward(self, short, pooled, query):
        return gated(short, pooled, query, *self)


def test_gate_between_halves_is_the_mean_that_it_says():
    summary, gate = nn.Linear(16, 16), nn.Linear(48, 16)
    short, pooled, query = torch.randn(3, 16), torch.randn(3, 16), torch.randn(1, 16)
    long = torch.tanh(summary(pooled))
    share = torch.sigmoid(gate(torch.cat([query.expand(3, -1), short, long], dim=1)))
    expected = share * long + (1 - share) * short
    torch.testing.assert_close(gated(short, pooled, query, summary, gate), expected)


@pytest.mark.parametrize("size", [LANES, 4 * LANES, 4 * LANES + 3])
@pytest.mark.parametrize("items", [1, 6, 43])
def test_one_query_for_all_pools_as_one_of_each_user(size, items):
    places = torch.randint(0, items, (9, 19)).masked_fill(torch.rand(9, 19) < 0.4, -1)
    places[3], places[4, 1:] = -1, -1
    vectors, query = torch.randn(items, size) * 3, torch.randn(1, size)
    given = [vectors.requires_grad_(), query.requires_grad_()]
    exact = [each.detach().double().requires_grad_() for each in given]
    ways = torch.randn(9, size)
    found = attend_rows(given[0], places, given[1])
    (found * ways).sum().backward()
    expected = attention_pool(exact[0][places.clamp(min=0)], exact[1].expand(9, -1), places >= 0)
    (expected * ways).sum().backward()
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    for own, other in zip(given, exact, strict=True):
        torch.testing.assert_close(own.grad.double(), other.grad, rtol=1e-4, atol=1e-4)
