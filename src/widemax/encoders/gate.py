"""A gate between two halves of what is known of a user."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from widemax.encoders.products import product, product_over_rows
from widemax.gradients import Gradients, is_asked_for_a_graph, kernels_take, plain_gradients


def gated(
    short: Tensor, pooled: Tensor, query: Tensor, summary: nn.Linear, gate: nn.Linear
) -> Tensor:
    """Return g ⊙ p + (1 − g) ⊙ s, p = tanh(``summary``(pooled)), g = sigmoid(``gate``(q, s, p)).

    s is ``short`` [B, D], ``pooled`` [B, F·D], q [B, D], or [1, D] for all rows.

    >>> summary, gate = torch.nn.Linear(2, 2), torch.nn.Linear(6, 2)
    >>> gated(torch.zeros(3, 2), torch.zeros(3, 2), torch.zeros(1, 2), summary, gate).shape
    torch.Size([3, 2])
    """
    size = short.shape[1]
    by_query, by_halves = torch.split(gate.weight, [size, 2 * size], dim=1)
    asked = linear(query, by_query, gate.bias)  # once, where one query is for all
    inputs = (short, pooled, asked, summary.weight, summary.bias, by_halves)
    if not kernels_take(*inputs) or torch.is_autocast_enabled("cpu") or size % _kernels().LANES:
        return _gated(*inputs)
    hidden: Tensor = _Gated.apply(*inputs)  # type: ignore[no-untyped-call]
    return hidden


def _kernels() -> Any:
    """Return the kernels of the gate, which load Numba: a reader who trains nothing does not."""
    return import_module("widemax.kernels.encoders.gate")


def _gated(
    short: Tensor, pooled: Tensor, asked: Tensor, weight: Tensor, bias: Tensor, by_halves: Tensor
) -> Tensor:
    """The gate by torch's own operations, for derivatives of any order."""
    long = torch.tanh(linear(pooled, weight, bias))
    gate = torch.sigmoid(asked + linear(torch.cat([short, long], dim=1), by_halves))
    return torch.lerp(short, long, gate)


class _Gated(torch.autograd.Function):
    """By products in tiles, and all that is between two of them at once."""

    @staticmethod
    def forward(
        ctx: Any,
        short: Tensor,
        pooled: Tensor,
        asked: Tensor,
        weight: Tensor,
        bias: Tensor,
        by_halves: Tensor,
    ) -> Tensor:
        kernels, asked = _kernels(), asked.contiguous()
        halves, hidden = short.new_empty(len(short), 2 * short.shape[1]), torch.empty_like(short)
        mapped = product(pooled, weight.T)
        kernels.bend_half(*_arrays(short, mapped, bias[None], halves))
        gates = product(halves, by_halves.T)
        kernels.mix_halves(*_arrays(halves, asked, gates, hidden))
        ctx.save_for_backward(short, pooled, asked, weight, bias, by_halves, halves, gates)
        return hidden

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Gradients:
        *inputs, halves, gates = ctx.saved_tensors
        if is_asked_for_a_graph():
            return plain_gradients(_gated, inputs, ctx.needs_input_grad, (grad,))
        kernels, (_, pooled, asked, weight, _, by_halves) = _kernels(), inputs
        by_gates, by_short, by_mapped = (torch.empty_like(gates) for _ in range(3))
        kernels.unbend_gates(*_arrays(grad, halves, gates, by_gates))
        given = (grad, halves, gates, product(by_gates, by_halves), by_short, by_mapped)
        kernels.unbend_halves(*_arrays(*given))
        return (
            by_short,
            product(by_mapped, weight),
            by_gates.sum_to_size(asked.shape),
            product_over_rows(by_mapped, pooled),
            by_mapped.sum(0),
            product_over_rows(by_gates, halves),
        )


def _arrays(*tensors: Tensor) -> list[Any]:
    return [each.detach().contiguous().numpy() for each in tensors]
