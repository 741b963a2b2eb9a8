"""Dropout against its formula: how much is left out, what is left, and what the gradient sees."""

import pytest
import torch

from widemax.encoders.dropout import Dropout


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("p", [0.001, 0.2, 0.5, 0.9])
def test_each_unit_is_left_out_by_itself_with_the_probability_asked_for(p, dtype):
    shape = (1999, 101)  # the last number drawn decides fewer than four units
    dropped = Dropout(p)(torch.ones(shape, dtype=dtype))
    out = (dropped == 0).double()
    deviation = (p * (1 - p)) ** 0.5
    assert abs(out.mean().item() - p) < 5 * deviation / out.numel() ** 0.5
    torch.testing.assert_close(
        dropped[dropped != 0].unique(),
        torch.tensor([1 / (1 - p)]).to(dtype),
        rtol=2e-5 / (1 - p),
        atol=0,
    )
    for step in (1, 2, 3, 4):  # neighbours share a number: none may follow from another
        flat = out.flatten() - out.mean()
        assert abs((flat[step:] * flat[:-step]).mean().item()) < 5 * deviation**2 / 400


def test_the_gradient_passes_where_a_unit_was_left():
    x = torch.randn(30, 7, dtype=torch.float64, requires_grad=True)
    dropped = Dropout(0.4)(x)
    (gradient,) = torch.autograd.grad(dropped.sum(), x)
    torch.testing.assert_close(dropped, x * gradient)
    assert 0 < (gradient == 0).sum() < x.numel()


def test_same_state_same_mask():
    x, masks = torch.ones(100, 9), []
    for _ in range(2):
        torch.manual_seed(5)
        masks.append(Dropout(0.5)(x))
    assert torch.equal(*masks)
    assert not torch.equal(Dropout(0.5)(x), masks[0])


def test_nothing_is_left_out_without_a_probability_or_when_judging():
    x = torch.randn(5, 3)
    assert torch.equal(Dropout(0.0)(x), x)
    assert torch.equal(Dropout(0.5).eval()(x), x)
    assert not Dropout(1.0)(x).any()
    assert Dropout(0.5)(x[:0]).shape == (0, 3)
