"""Both halves of a user and the gate between them as one step of autograd."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from widemax.encoders.attention import SelfAttention, _attend_rows
from widemax.encoders.contexts import Halves
from widemax.encoders.gate import _gated
from widemax.encoders.pooled_attention import _pooled
from widemax.encoders.products import product, product_over_rows
from widemax.encoders.recurrence import _states
from widemax.gradients import Gradients, is_asked_for_a_graph, kernels_take, plain_gradients


def halves_fit(
    vectors: Tensor, numbered: Halves, query: Tensor, lstm: nn.LSTM, attention: SelfAttention
) -> bool:
    """Return whether ``fused_halves`` takes these vectors [U, D] of items and these layers.

    It has no dropout, and all its rows are whole tiles.
    """
    heads, size = attention.num_heads, vectors.shape[1]
    dropped = attention.training and attention.dropout.p > 0
    if dropped or lstm.num_layers > 1 or lstm.input_size != size:
        return False
    if not numbered.recent.numel() or torch.is_autocast_enabled("cpu"):
        return False
    if not kernels_take(vectors, query, *lstm.parameters(), *attention.parameters()):
        return False
    return not size % _kernels("tiles").WIDTH and not size // heads % _kernels("registers").LANES


def fused_halves(
    vectors: Tensor,
    numbered: Halves,
    query: Tensor,
    lstm: nn.LSTM,
    attention: SelfAttention,
    summary: nn.Linear,
    gate: nn.Linear,
) -> Tensor:
    """Return ``gated`` of what ``pool_attended`` and ``attend_rows`` make of both halves, [B, D].

    The session is what ``read_rows`` makes of the recent items, the vectors [U, D] are those of
    all classes. Same numbers as by these functions one after another, with fewer steps between.

    >>> from widemax.encoders.contexts import numbered_halves
    >>> vectors, maps = torch.zeros(2, 32), (torch.nn.Linear(32, 32), torch.nn.Linear(96, 32))
    >>> lstm, attention = torch.nn.LSTM(32, 32, batch_first=True), SelfAttention(32)
    >>> halves = numbered_halves(torch.tensor([[1, 0, 1]]), 2)
    >>> fused_halves(vectors, halves, torch.zeros(1, 32), lstm, attention, *maps).shape
    torch.Size([1, 32])
    """
    places = (numbered.num_recent, numbered.before, numbered.recent)
    heads = attention.num_heads
    attending = (attention.inputs.weight, attention.output.weight)
    maps = (summary.weight, summary.bias, gate.weight, gate.bias)
    given = (
        vectors.contiguous(),
        *places,
        heads,
        query.contiguous(),
        *lstm.parameters(),
        *attending,
        *maps,
    )
    hidden: Tensor = _Halves.apply(*given)  # type: ignore[no-untyped-call]
    return hidden


@cache
def _kernels(name: str) -> Any:
    """Return a module of kernels, which load Numba: a reader who trains nothing does not."""
    return import_module(f"widemax.kernels.{name}")


def _fuse_plainly(
    vectors: Tensor,
    num_recent: int,
    before: Tensor,
    recent: Tensor,
    heads: int,
    query: Tensor,
    by_input: Tensor,
    by_state: Tensor,
    bias: Tensor,
    other_bias: Tensor,
    attention: Tensor,
    output: Tensor,
    summary: Tensor,
    summary_bias: Tensor,
    gate: Tensor,
    gate_bias: Tensor,
) -> Tensor:
    """The same by torch's own operations, for derivatives of any order."""
    lengths, size = (recent >= 0).sum(1), vectors.shape[1]
    states = _states(vectors, recent, lengths, by_input, by_state, bias, other_bias)
    short = _pooled(states, lengths, query, attention, output, heads)
    asked = linear(query, gate[:, :size], gate_bias)
    pooled = _attend_rows(vectors, before, query)
    return _gated(short, pooled, asked, summary, summary_bias, gate[:, size:])


class _Halves(torch.autograd.Function):
    """The recurrence by kernels that share its rows among threads, all else by one each way."""

    @staticmethod
    def forward(
        ctx: Any,
        vectors: Tensor,
        num_recent: int,
        before: Tensor,
        recent: Tensor,
        heads: int,
        query: Tensor,
        by_input: Tensor,
        by_state: Tensor,
        bias: Tensor,
        other_bias: Tensor,
        *maps: Tensor,
    ) -> Tensor:
        kernels, reading = _kernels("encoders.halves"), _kernels("encoders.recurrence")
        places, lengths, order = kernels.longest_first(recent.numpy())
        projected = product(vectors[:num_recent], by_input.T).numpy()
        read = (
            projected,
            (bias + other_bias).numpy(),
            places,
            lengths,
            by_state.contiguous().numpy(),
        )
        states, gates, cells = reading.read_forward(*read)
        known, asking, fused = vectors.numpy(), query.numpy(), _arrays(maps)
        sessions = (states, lengths, order, heads)
        hidden, *kept = kernels.fuse_halves(known, before.numpy(), asking, *sessions, *fused)
        ctx.save_for_backward(
            vectors, before, recent, query, by_input, by_state, bias, other_bias, *maps
        )
        ctx.numbers, ctx.kept = (num_recent, heads), kept
        ctx.read = (states, gates, cells, places, lengths, order)
        return torch.from_numpy(hidden)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Gradients:
        vectors, before, recent, query, *weights = ctx.saved_tensors
        num_recent, heads = ctx.numbers
        if is_asked_for_a_graph():
            inputs = (vectors, num_recent, before, recent, heads, query, *weights)
            return plain_gradients(_fuse_plainly, inputs, ctx.needs_input_grad, (grad,))
        by_input, by_state, _, _, *maps = weights
        *read, lengths, order = ctx.read
        attention, output, summary, _, gate, _ = _arrays(maps)
        known, asking = vectors.numpy(), query.numpy()
        found = _kernels("encoders.halves_gradients").spread_halves(
            *(grad.contiguous().numpy(), known, before.numpy(), asking, lengths, order, heads),
            *(attention, output, summary, gate, *ctx.kept),
        )
        by_states, by_vectors, by_query, *by_maps = found
        by_projected, by_weight = _kernels("encoders.recurrence_gradients").read_back(
            by_states, *read, lengths, by_state.contiguous().numpy(), num_recent
        )
        by_inputs = torch.from_numpy(by_projected)
        by_vectors = torch.from_numpy(by_vectors)
        by_vectors[:num_recent] += product(by_inputs, by_input)
        by_bias = by_inputs.sum(0)
        return (
            *(by_vectors, None, None, None, None, torch.from_numpy(by_query)),
            product_over_rows(by_inputs, vectors[:num_recent]),
            *(torch.from_numpy(by_weight), by_bias, by_bias.clone()),
            *map(torch.from_numpy, by_maps),
        )


def _arrays(tensors: Iterable[Tensor]) -> list[Any]:
    return [each.contiguous().numpy() for each in tensors]
