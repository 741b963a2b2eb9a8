"""The way of an accelerator, on the CPU: torch's own operations, and no value that is read."""

from contextlib import nullcontext

import pytest
import torch

from tests.heads.declared_heads import DIMENSION, MAKERS, NAMES, drawn, make_batch, make_head
from tests.host_reads import HostRead, no_host_reads
from widemax import check_head, validation
from widemax.devices import plain_torch
from widemax.heads import SampledHead
from widemax.heads.exact import linear
from widemax.objectives import corrected_log_q, importance_sampling, nce, negative_sampling
from widemax.optim import RowAdagrad, RowAdam, RowSGD, RowwiseAdagrad, clip_grad_norm_

WAITING = ("adaptive", "infrequent")
"""Heads that ask the device which rows to compute: all rows would cost more than to wait."""

FURTHER = {
    objective.__name__: lambda objective=objective: drawn(
        SampledHead, objective=objective, sparse=True
    )
    for objective in (nce, negative_sampling, corrected_log_q, importance_sampling)
} | {"per example": lambda: drawn(SampledHead, per_example=True)}
CASES = [*NAMES, *FURTHER]


def make(name):
    return make_head(name, makers=MAKERS | FURTHER)


def step(head, hidden, targets, optimizer=None):
    head.zero_grad()
    torch.manual_seed(4)
    hidden = hidden.detach().clone().requires_grad_()
    losses = head(hidden, targets, weights=torch.linspace(0.5, 1, len(hidden)))
    losses.sum().backward()
    clip_grad_norm_(head.parameters(), 0.5)
    if optimizer is not None:
        optimizer.step()
    grads = [None if each.grad is None else each.grad.to_dense() for each in head.parameters()]
    return losses.detach(), hidden.grad, grads, [each.detach() for each in head.parameters()]


@pytest.mark.parametrize("kind", [RowAdam, RowwiseAdagrad, RowAdagrad, RowSGD])
@pytest.mark.parametrize("name", [name for name in CASES if name not in WAITING])
def test_a_step_reads_nothing_on_the_host(name, kind):
    head = make(name)
    optimizer = kind(head.parameters(), lr=0.1)
    with plain_torch():
        step(head, *make_batch(), optimizer)
        # The number of steps, where it is one for all rows, is kept on the CPU.
        counts = [each["step"] for each in optimizer.state.values() if "step" in each]
        with no_host_reads([each for each in counts if each.dim() == 0]):
            step(head, *make_batch(), optimizer)


@pytest.mark.parametrize("name", WAITING)
def test_heads_that_are_said_to_wait_do(name):
    with plain_torch(), no_host_reads(), pytest.raises(HostRead, match="nonzero"):
        step(make(name), *make_batch())


@pytest.mark.parametrize("name", CASES)
def test_losses_gradients_and_steps_are_those_of_the_kernels(name):
    found = []
    for way in (plain_torch(), nullcontext()):
        head = make(name)
        with way:
            found.append(step(head, *make_batch(), RowAdam(head.parameters(), lr=0.1)))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_the_contract_holds_without_kernels(name):
    with plain_torch():
        check_head(make(name), dimension=DIMENSION)


@pytest.mark.parametrize("name", [name for name in CASES if name not in WAITING])
def test_every_tensor_of_a_step_is_made_where_the_hidden_states_are(name, monkeypatch):
    """On "meta", which holds no values: torch refuses two devices, and whoever asks for a value."""
    monkeypatch.setattr(validation, "check_dense", lambda argument, value: value)
    monkeypatch.setattr(linear, "without_autocast", lambda tensor: nullcontext())
    hidden, targets = (each.to("meta") for each in make_batch())
    losses = make(name).to("meta")(hidden.requires_grad_(), targets)
    losses.sum().backward()
    assert losses.is_meta
    assert hidden.grad.shape == hidden.shape


@pytest.mark.parametrize("name", NAMES)
def test_second_derivatives_are_those_of_the_kernels(name):
    found = []
    for way in (plain_torch(), nullcontext()):
        head = make(name).double()
        hidden, targets = make_batch(torch.float64)
        with way:
            torch.manual_seed(4)
            losses = head(hidden.requires_grad_(), targets).square().sum()
            (slope,) = torch.autograd.grad(losses, hidden, create_graph=True)
            found.append(torch.autograd.grad(slope.square().sum(), hidden)[0])
    torch.testing.assert_close(*found)


def test_a_wrong_target_is_still_refused():
    hidden, targets = make_batch()
    with plain_torch(), pytest.raises(ValueError, match="targets must lie between 0 and 39"):
        make("full")(hidden, targets + 1)


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.sum().item(),
        lambda x: bool(x.any()),
        lambda x: x.tolist(),
        lambda x: x.numpy(),
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
        lambda x: x.unique(),
        lambda x: torch.equal(x, x),
    ],
)
def test_the_watch_sees_what_reads(read):
    with no_host_reads(), pytest.raises(HostRead):
        read(torch.arange(3))
