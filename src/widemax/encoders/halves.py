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
from widemax.encoders.recurrence import _states
from widemax.gradients import Gradients, is_asked_for_a_graph, kernels_take, plain_gradients
from widemax.scoring.rows import gather_rows, rows_gradient


def halves_fit(
    items: nn.Embedding, recent: Tensor, query: Tensor, lstm: nn.LSTM, attention: SelfAttention
) -> bool:
    """Return whether ``fused_halves`` takes a table of items and these layers.

    It has no dropout, and all its rows are whole tiles.
    """
    heads, size = attention.num_heads, items.embedding_dim
    dropped = attention.training and attention.dropout.p > 0
    if dropped or lstm.num_layers > 1 or lstm.input_size != size:
        return False
    if not recent.numel() or torch.is_autocast_enabled("cpu"):
        return False
    if not kernels_take(items.weight, query, *_weights(lstm, attention)):
        return False
    return not size % _kernels("tiles").WIDTH and not size // heads % _kernels("registers").LANES


def fused_halves(
    items: nn.Embedding,
    numbered: Halves,
    query: Tensor,
    lstm: nn.LSTM,
    attention: SelfAttention,
    summary: nn.Linear,
    gate: nn.Linear,
) -> Tensor:
    """Return ``gated`` of what ``pool_attended`` and ``attend_rows`` make of both halves, [B, D].

    The session is what ``read_rows`` makes of the recent items, by the rows of a table. Same
    numbers as by these functions one after another, with fewer steps between.

    >>> from widemax.encoders.contexts import numbered_halves
    >>> items, maps = torch.nn.Embedding(2, 32), (torch.nn.Linear(32, 32), torch.nn.Linear(96, 32))
    >>> lstm, attention = torch.nn.LSTM(32, 32, batch_first=True), SelfAttention(32)
    >>> halves = numbered_halves(torch.tensor([[1, 0, 1]]), 2)
    >>> fused_halves(items, halves, torch.zeros(1, 32), lstm, attention, *maps).shape
    torch.Size([1, 32])
    """
    hidden: Tensor = _Halves.apply(  # type: ignore[no-untyped-call]
        items.weight,
        numbered.classes,
        items.sparse,
        numbered.num_recent,
        numbered.before,
        numbered.recent,
        attention.num_heads,
        query.contiguous(),
        *_weights(lstm, attention),
        *(summary.weight, summary.bias, gate.weight, gate.bias),
    )
    return hidden


def _weights(lstm: nn.LSTM, attention: SelfAttention) -> list[Tensor]:
    """Return those of both layers, by name: to walk over all parameters takes far longer."""
    return [*lstm.all_weights[0], attention.inputs.weight, attention.output.weight]


@cache
def _kernels(name: str) -> Any:
    """Return a module of kernels, which load Numba: a reader who trains nothing does not."""
    return import_module(f"widemax.kernels.{name}")


def _fuse_plainly(
    table: Tensor,
    classes: Tensor,
    sparse: bool,
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
    vectors = gather_rows(table, classes, sparse=sparse)
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
        table: Tensor,
        classes: Tensor,
        sparse: bool,
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
        asking, named = _arrays((query, before))
        vectors = kernels.rows_of(table.numpy(), classes.numpy())
        inputs, recurrent, *of_maps = _arrays((by_input, by_state, *maps))
        projected = _kernels("products").product(vectors[:num_recent], inputs.T)
        both = bias.numpy() + other_bias.numpy()
        states, gates, cells = reading.read_forward(projected, both, places, lengths, recurrent)
        sessions = (states, lengths, order, heads)
        hidden, *kept = kernels.fuse_halves(vectors, named, asking, *sessions, *of_maps)
        ctx.save_for_backward(
            *(table, classes, before, recent, query, by_input, by_state, bias, other_bias, *maps)
        )
        ctx.numbers, ctx.kept = (sparse, num_recent, heads), kept
        # As arrays, for a view of a tensor's memory costs as much as a short operation of torch.
        ctx.read = (states, gates, cells, places, lengths, order)
        ctx.given, ctx.weights = (vectors, named, asking), (inputs, recurrent, *of_maps)
        return torch.from_numpy(hidden)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Gradients:
        table, classes, before, recent, query, *weights = ctx.saved_tensors
        sparse, num_recent, heads = ctx.numbers
        if is_asked_for_a_graph():
            named = (table, classes, sparse, num_recent, before, recent, heads, query)
            inputs = (*named, *weights)
            return plain_gradients(_fuse_plainly, inputs, ctx.needs_input_grad, (grad,))
        *read, lengths, order = ctx.read
        by_input, by_state, attention, output, summary, _, gate, _ = ctx.weights
        found = _kernels("encoders.halves_gradients").spread_halves(
            *(grad.contiguous().numpy(), *ctx.given, lengths, order, heads),
            *(attention, output, summary, gate, *ctx.kept),
        )
        by_states, by_vectors, *others = found
        by_inputs, by_weight = _kernels("encoders.recurrence_gradients").read_back(
            by_states, *read, lengths, by_state, num_recent
        )
        products, named = _kernels("products"), ctx.given[0][:num_recent]
        products.add_product(by_inputs, by_input, by_vectors[:num_recent])
        of_inputs = products.product_over_rows(by_inputs, named)
        by_query, *by_maps = map(torch.from_numpy, others)
        values = torch.from_numpy(by_vectors)
        by_bias = torch.from_numpy(by_inputs).sum(0)
        return (
            rows_gradient(classes, values, table.shape, sparse=sparse),
            *(None, None, None, None, None, None, by_query),
            *(torch.from_numpy(of_inputs), torch.from_numpy(by_weight), by_bias, by_bias.clone()),
            *by_maps,
        )


def _arrays(tensors: Iterable[Tensor]) -> list[Any]:
    return [each.contiguous().numpy() for each in tensors]
