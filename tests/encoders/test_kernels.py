"""Routing and pooling by kernels, against torch's own operations in float64."""

import pytest
import torch

from widemax.encoders.attention import attend_rows, attention_pool
from widemax.encoders.contexts import numbered, vectors_at
from widemax.encoders.routing import route

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
@pytest.mark.parametrize("interests", [1, 3])
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


def test_contexts_are_numbered_by_what_they_name():
    context = torch.tensor([[7, -1, 2], [-1, 7, 9]])
    named, places = numbered(context)
    assert named.tolist() == [2, 7, 9]
    assert torch.equal(torch.where(places >= 0, named[places], -1), context)
    nothing, none = numbered(torch.full((2, 3), -1))
    assert len(nothing) == 0
    assert bool((none == -1).all())
