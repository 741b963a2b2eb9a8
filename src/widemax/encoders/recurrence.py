"""The states of an LSTM over rows of vectors that a batch names more than once."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad

from widemax.encoders.contexts import vectors_at
from widemax.encoders.products import product, product_over_rows
from widemax.gradients import Gradients, is_asked_for_a_graph, kernels_take, plain_gradients
from widemax.validation import ABSENT

_WASTE = 0.9
"""Rows are sorted by their lengths where fewer of the places than this are read."""


def read_rows(lstm: nn.LSTM, vectors: Tensor, places: Tensor) -> Tensor:
    """Return the states of an LSTM after each vector [U, D] at places [B, L], [B, L, H].

    Places are -1 behind the last of each row; states there are to be ignored. What a vector is
    mapped to is computed once, however many places name it. The plain reference is ``nn.LSTM``.

    >>> lstm, vectors = nn.LSTM(2, 3, batch_first=True), torch.randn(5, 2)
    >>> states = read_rows(lstm, vectors, torch.tensor([[4, 4, 0], [1, -1, -1]]))
    >>> torch.allclose(states[0], lstm(vectors[[4, 4, 0]])[0], atol=1e-6)
    True
    """
    weights = list(lstm.parameters())
    takes = kernels_take(vectors, *weights) and not torch.is_autocast_enabled("cpu")
    if not takes:
        # On CPUs without an LSTM in half precision torch fails under autocast: there the
        # recurrence stays as wide as it is.
        with torch.autocast("cpu", enabled=False):
            states: Tensor = lstm(vectors_at(vectors, places).to(weights[0].dtype))[0]
        return states
    lengths = (places >= 0).sum(1)
    order = None
    if int(lengths.sum()) < _WASTE * places.numel():
        # The longest first: a step then is over the first rows only.
        order = lengths.argsort(descending=True, stable=True)
        places, lengths = places[order], lengths[order]
    for layer in range(lstm.num_layers):
        if layer:
            vectors, places = states.flatten(0, 1), apart(places)
        states = _States.apply(  # type: ignore[no-untyped-call]
            vectors, places, lengths, *weights[4 * layer : 4 * layer + 4]
        )
    if order is None:
        return states
    return torch.empty_like(states).index_copy(0, order, states)


def apart(places: Tensor) -> Tensor:
    """Return places [B, L] of vectors [B·L], one for each place, -1 where it is.

    >>> apart(torch.tensor([[4, 4], [1, -1]])).tolist()
    [[0, 1], [2, -1]]
    """
    numbers = torch.arange(places.numel(), device=places.device).view(places.shape)
    return torch.where(places >= 0, numbers, ABSENT)


def _kernels(name: str = "recurrence") -> Any:
    """Return the kernels of a step, which load Numba: a reader who trains nothing does not."""
    return import_module(f"widemax.kernels.encoders.{name}")


def _states(
    vectors: Tensor,
    places: Tensor,
    lengths: Tensor,
    by_input: Tensor,
    by_state: Tensor,
    bias: Tensor,
    other_bias: Tensor,
) -> Tensor:
    """The states by torch's own operations, for derivatives of any order."""
    inputs = linear(vectors_at(vectors, places), by_input, bias + other_bias)
    state = cell = inputs.new_zeros(len(places), by_state.shape[1])
    states = []
    for step in range(places.shape[1]):
        i, f, g, o = (inputs[:, step] + linear(state, by_state)).chunk(4, dim=1)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        known = (places[:, step] >= 0)[:, None]
        state = torch.where(known, o.sigmoid() * cell.tanh(), 0.0)
        states.append(state)
    return torch.stack(states, 1)


class _States(torch.autograd.Function):
    """By kernels that take some rows through all steps while they are in the cache."""

    @staticmethod
    def forward(
        ctx: Any,
        vectors: Tensor,
        places: Tensor,
        lengths: Tensor,
        by_input: Tensor,
        by_state: Tensor,
        bias: Tensor,
        other_bias: Tensor,
    ) -> Tensor:
        kernels = _kernels()
        wide = _widened(kernels.WIDTH, by_input, by_state, bias + other_bias)
        projected = product(vectors, wide.by_input.T)
        arrays = (each.numpy() for each in (projected, wide.bias, places, lengths, wide.by_state))
        states, gates, cells = map(torch.from_numpy, kernels.read_forward(*arrays))
        inputs = (vectors, places, lengths, by_input, by_state, bias, other_bias)
        ctx.save_for_backward(*inputs, states, gates, cells)
        return states.view(*places.shape, -1)[:, :, : by_state.shape[1]]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Gradients:
        *inputs, states, gates, cells = ctx.saved_tensors
        if is_asked_for_a_graph():
            return plain_gradients(_states, inputs, ctx.needs_input_grad, (grad,))
        vectors, places, lengths, by_input, by_state, bias, _ = inputs
        kernels, size = _kernels(), by_state.shape[1]
        wide = _widened(kernels.WIDTH, by_input, by_state, bias)
        more = states.shape[1] - size
        grad = (pad(grad, (0, more)) if more else grad).contiguous().flatten(0, 1)
        given = (grad, states, gates, cells, places, lengths, wide.by_state)
        back = _kernels("recurrence_gradients").read_back
        found = back(*(each.numpy() for each in given), len(vectors))
        by_projected, by_weight = map(torch.from_numpy, found)
        by_projected = _narrowed(by_projected.T, size).T
        by_bias = by_projected.sum(0)
        return (
            product(by_projected, by_input) if ctx.needs_input_grad[0] else None,
            None,
            None,
            product_over_rows(by_projected, vectors),
            _narrowed(by_weight, size)[:, :size],
            by_bias,
            by_bias.clone(),
        )


class _Weights(NamedTuple):
    """The weights of a layer, with units that stay 0 up to a whole number of tiles."""

    by_input: Tensor
    by_state: Tensor
    bias: Tensor


def _widened(width: int, by_input: Tensor, by_state: Tensor, bias: Tensor) -> _Weights:
    size = by_state.shape[1]
    more = -size % width
    if not more:
        return _Weights(by_input, by_state.contiguous(), bias)
    by_gate = pad(by_state.view(4, size, size), (0, more, 0, more))
    return _Weights(
        pad(by_input.view(4, size, -1), (0, 0, 0, more)).flatten(0, 1),
        by_gate.flatten(0, 1),
        pad(bias.view(4, size), (0, more)).flatten(),
    )


def _narrowed(gates: Tensor, size: int) -> Tensor:
    """Return rows of gates [4·H', ...] without those of the units that were added, [4·H, ...]."""
    if len(gates) == 4 * size:
        return gates
    return gates.reshape(4, -1, gates.shape[1])[:, :size].flatten(0, 1)
