"""Every head trains under bfloat16 autocast, and its sums stay as wide as they are."""

import pytest
import torch

from tests.heads.declared_heads import NAMES, make_batch, make_head


def results(name, *, mixed, backward_within):
    head = make_head(name)
    hidden, targets = make_batch()
    hidden = hidden.requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
        losses = head(hidden, targets, generator=torch.Generator().manual_seed(0))
        if backward_within:
            losses.sum().backward()
    if not backward_within:
        losses.sum().backward()
    return losses.detach(), hidden.grad, [each.grad for each in head.parameters()]


@pytest.mark.parametrize("backward_within", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_fault_39_losses_and_gradients_are_those_of_float32_but_for_rounding(name, backward_within):
    losses, slope, grads = results(name, mixed=True, backward_within=backward_within)
    assert losses.dtype == slope.dtype == torch.float32
    expected = results(name, mixed=False, backward_within=backward_within)
    # bfloat16 keeps 8 bits: products of 6 terms come out within some 2%.
    torch.testing.assert_close((losses, slope), expected[:2], rtol=0.03, atol=0.06)
    for found, right in zip(grads, expected[2], strict=True):
        torch.testing.assert_close(found, right, rtol=0.05, atol=0.06)
