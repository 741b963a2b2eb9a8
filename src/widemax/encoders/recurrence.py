"""The states of an LSTM over rows of vectors that a batch names more than once."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from widemax.encoders.contexts import vectors_at
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
    if not takes or lstm.hidden_size % _kernels().LANES:
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


def _kernels() -> Any:
    """Return the kernels of a step, which load Numba: a reader who trains nothing does not."""
    return import_module("widemax.kernels.encoders.recurrence")


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
    """Step by step: products by the library, all else by a kernel while it is in the cache."""

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
        (rows, length), size = places.shape, by_state.shape[1]
        projected = torch.addmm(bias + other_bias, vectors, by_input.T)
        gates = vectors.new_empty(rows, length, 4 * size)
        cells = vectors.new_zeros(rows, length + 1, size)
        states = vectors.new_zeros(rows, length, size)
        counts, kernels = _active(lengths, length), _kernels()
        arrays = [each.numpy() for each in (gates, projected, places, cells, states)]
        for step, count in enumerate(counts):
            own = gates[:count, step]
            if step:
                torch.mm(states[:count, step - 1], by_state.T, out=own)
            else:
                own.zero_()
            kernels.step_forward(*arrays, step, count)
        inputs = (vectors, places, lengths, by_input, by_state, bias, other_bias)
        ctx.save_for_backward(*inputs, gates, cells, states)
        ctx.counts = counts
        return states

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Gradients:
        *inputs, gates, cells, states = ctx.saved_tensors
        if is_asked_for_a_graph():
            return plain_gradients(_states, inputs, ctx.needs_input_grad, (grad,))
        vectors, places, _, by_input, by_state, *_ = inputs
        rows, size, kernels = len(places), by_state.shape[1], _kernels()
        by_projected = vectors.new_zeros(len(vectors), 4 * size)
        by_gates = vectors.new_empty(rows, 4 * size)
        by_later, by_cells = vectors.new_zeros(2, rows, size).unbind()
        by_weight = torch.zeros_like(by_state)
        given = (grad.contiguous(), by_later, by_cells, gates, cells, places)
        arrays = [each.numpy() for each in given]
        written = (by_gates.numpy(), by_projected.numpy())
        for step in reversed(range(len(ctx.counts))):
            count = ctx.counts[step]
            own = by_gates[:count]
            kernels.step_back(*arrays, step, count, *written)
            if step:
                torch.mm(own, by_state, out=by_later[:count])
                by_weight.addmm_(own.T, states[:count, step - 1])
        by_bias = by_projected.sum(0)
        return (
            by_projected @ by_input if ctx.needs_input_grad[0] else None,
            None,
            None,
            by_projected.T @ vectors,
            by_weight,
            by_bias,
            by_bias.clone(),
        )


def _active(lengths: Tensor, length: int) -> list[int]:
    """Return up to which row each step has to go, as long as there is one to go to."""
    last = [0] * length
    for row, own in enumerate(lengths.tolist()):
        if own and last[own - 1] < row + 1:
            last[own - 1] = row + 1
    for step in reversed(range(length - 1)):
        last[step] = max(last[step], last[step + 1])
    return [count for count in last if count]
