"""The joint norm of sparse and dense gradients against torch's on the dense ones."""

import math

import pytest
import torch
from torch import nn

from tests.optim.test_optim import make_parameter, random_gradient, sparse
from widemax.optim import clip_grad_norm_
from widemax.optim import clipping as module

SHAPES = [(17, 5), (17,), (4, 3), ()]


def make_both(dtype):
    """Return parameters with sparse and dense gradients, and the same with dense ones only."""
    mixed = [make_parameter(shape, dtype) for shape in SHAPES]
    dense = [make_parameter(shape, dtype) for shape in SHAPES]
    for parameter, other in zip(mixed, dense, strict=True):
        shape = parameter.shape
        if shape and shape[0] == 17:
            parameter.grad = sparse(*random_gradient(1, shape, dtype), shape)
            other.grad = parameter.grad.to_dense()
        else:
            parameter.grad = torch.full(shape, 0.3, dtype=dtype)
            other.grad = parameter.grad.clone()
    return mixed, dense


@pytest.mark.parametrize("max_norm", [0.5, 1e3, math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("plain", [False, True], ids=["kernel", "plain"])
def test_as_torch_on_dense_gradients(plain, dtype, max_norm, monkeypatch):
    mixed, dense = make_both(dtype)
    if plain:
        monkeypatch.setattr(module, "fits_kernel", lambda tensor: False)
    else:
        monkeypatch.setattr(module, "sum_rows", None)
    norm = clip_grad_norm_(iter(mixed), max_norm)
    expected = nn.utils.clip_grad_norm_(dense, max_norm)
    tolerance = 2e-2 if dtype == torch.bfloat16 else 1e-6
    torch.testing.assert_close(norm, expected.to(norm.dtype), rtol=tolerance, atol=0)
    for parameter, other in zip(mixed, dense, strict=True):
        torch.testing.assert_close(
            parameter.grad.to_dense(), other.grad, rtol=tolerance, atol=tolerance
        )
    if max_norm == 0.5:
        assert clip_grad_norm_(mixed, math.inf).item() == pytest.approx(0.5, rel=tolerance)


def test_duplicates_that_cancel_have_no_norm():
    parameter = make_parameter((5, 2), torch.float32)
    values = torch.tensor([[3.0, 4.0], [-3.0, -4.0], [3.0, 4.0]])
    parameter.grad = sparse(torch.tensor([1, 1, 4]), values, (5, 2))
    assert clip_grad_norm_(parameter, 100.0).item() == 5.0
    assert torch.equal(parameter.grad._values(), values)


def test_a_parameter_given_twice_counts_once():
    parameter = make_parameter((5, 2), torch.float32)
    parameter.grad = torch.ones(5, 2)
    assert clip_grad_norm_([parameter, parameter], 1.0).item() == pytest.approx(10**0.5)
    assert parameter.grad.norm().item() == pytest.approx(1.0, rel=1e-5)


def test_no_gradients_and_empty_ones():
    parameter, empty = make_parameter((5, 2), torch.float32), make_parameter((5, 2), torch.float32)
    assert clip_grad_norm_([parameter], 1.0).item() == 0.0
    empty.grad = sparse(torch.empty(0, dtype=torch.int64), torch.empty(0, 2), (5, 2))
    assert clip_grad_norm_([parameter, empty], 1.0).item() == 0.0


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_norm_that_is_no_number_scales_nothing(bad):
    parameter, other = make_parameter((5, 2), torch.float32), make_parameter((3,), torch.float32)
    parameter.grad = sparse(torch.tensor([2]), torch.tensor([[bad, 1.0]]), (5, 2))
    other.grad = torch.full((3,), 100.0)
    assert not clip_grad_norm_([parameter, other], 1.0).isfinite()
    assert other.grad.tolist() == [100.0] * 3
    with pytest.raises(ValueError, match=f"norm of the gradients must be finite, got {bad}"):
        clip_grad_norm_([parameter, other], 1.0, error_if_nonfinite=True)


@pytest.mark.parametrize("max_norm", [0, -1, math.nan])
def test_the_limit_must_be_above_0(max_norm):
    with pytest.raises(ValueError, match="max_norm must be a finite number above 0"):
        clip_grad_norm_([make_parameter((5, 2), torch.float32)], max_norm)
