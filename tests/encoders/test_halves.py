"""Both halves of a user in one step, against torch's own operations in float64."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from widemax.devices import plain_torch
from widemax.encoders import halves
from widemax.encoders.sdm import SDMEncoder

ITEMS, DIMENSION = 40, 64


class Features(nn.Module):
    """Three numbers for each user."""

    output_dimension = 3

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(200, 3))

    def forward(self, users):
        return self.table[users]


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


@pytest.fixture(params=[1, 2])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


def context_of(rows):
    """Contexts of all lengths: some with nothing before the session, some of nothing at all."""
    context = torch.randint(0, ITEMS, (rows, 12))
    lengths = torch.randint(0, 13, (rows,))
    lengths[-1] = 9
    return context.masked_fill(torch.arange(12) < 12 - lengths[:, None], -1)


def derivatives(encoder, context, users, *, twice):
    """The result, the gradients of all parameters, and those of the gradients' squares."""
    parameters = list(encoder.parameters())
    hidden = encoder(context, users)
    ways = torch.linspace(-1, 1, hidden.numel(), dtype=hidden.dtype).view_as(hidden)
    total = (hidden.square() * ways).sum()
    found = torch.autograd.grad(total, parameters, retain_graph=True)
    if twice:
        slopes = torch.autograd.grad(total, parameters, create_graph=True)
        found += torch.autograd.grad(sum(each.square().sum() for each in slopes), parameters)
    return [hidden.detach(), *found]


@pytest.mark.parametrize("rows", [1, 7, 64, 130])
@pytest.mark.parametrize("features", [False, True])
@pytest.mark.parametrize("heads", [1, 2])
def test_results_and_derivatives_are_those_of_torch(rows, features, heads, threads, monkeypatch):
    fused = []
    step = halves.fused_halves
    monkeypatch.setattr(
        "widemax.encoders.sdm.fused_halves", lambda *given: fused.append(1) or step(*given)
    )
    known = Features() if features else None
    encoder = SDMEncoder(
        ITEMS, DIMENSION, short=5, num_heads=heads, user_features=known, sparse=False
    )
    context, users = context_of(rows), torch.randint(0, 199, (rows,)) if features else None
    twice = rows == 7
    found = derivatives(encoder, context, users, twice=twice)
    assert fused
    with plain_torch():
        expected = derivatives(deepcopy(encoder).double(), context, users, twice=twice)
    for own, other in zip(found, expected, strict=True):
        size = max(float(other.abs().max()), 1e-3)
        torch.testing.assert_close(own.double() / size, other / size, rtol=0, atol=2e-5)


def test_what_has_no_whole_tiles_or_drops_goes_one_step_after_another():
    context = context_of(5)
    for dimension, dropout, layers in ((40, 0.0, 1), (64, 0.5, 1), (64, 0.0, 2)):
        encoder = SDMEncoder(ITEMS, dimension, short=5, dropout=dropout, num_layers=layers)
        given = (encoder.items, torch.zeros_like(context), encoder.query[None])
        assert not halves.halves_fit(*given, encoder.lstm, encoder.attention)
        assert encoder(context).shape == (5, dimension)
