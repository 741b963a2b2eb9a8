"""The weighted mean of what a self-attention layer returns, without the layer's whole output."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear, pad

from widemax.encoders.attention import SelfAttention, attention_pool, masked_softmax
from widemax.gradients import Gradients, is_asked_for_a_graph, kernels_take, plain_gradients


def pool_attended(
    attention: SelfAttention, vectors: Tensor, lengths: Tensor, query: Tensor
) -> Tensor:
    """Return ``attention_pool`` of what attention makes of vectors [B, L, D] by queries [B, D].

    One query [1, D] may be that of all rows.

    The first ``lengths`` [B] places of each row count. The mean of what is mixed and mapped is the
    mixed mean, mapped: values and outputs are computed once a row, not once a place.

    >>> attention, vectors, query = SelfAttention(4, 2), torch.randn(2, 3, 4), torch.randn(2, 4)
    >>> pooled = pool_attended(attention, vectors, torch.tensor([3, 1]), query)
    >>> alone = attention(vectors[1:, :1], torch.ones(1, 1, dtype=torch.bool))[0]
    >>> torch.allclose(pooled[1:], alone, atol=1e-6)
    True
    """
    dropped = attention.training and attention.dropout.p > 0
    if dropped or not kernels_take(vectors, query) or torch.is_autocast_enabled("cpu"):
        known = _known(vectors, lengths)
        return attention_pool(attention(vectors, known), query, known)
    dimension, heads = vectors.shape[2], attention.num_heads
    to_both, to_values = torch.split(attention.inputs.weight, [2 * dimension, dimension])
    of_values = to_values.view(heads, -1, dimension)
    of_output = attention.output.weight.view(dimension, heads, -1).transpose(0, 1)
    mapped = of_output @ of_values  # of each head: what it adds to the output, from its mean
    pooled, mixed = _Pooled.apply(  # type: ignore[no-untyped-call]
        vectors.contiguous(),
        to_both,  # queries and keys
        lengths,
        query,
        (query @ mapped).transpose(0, 1),
    )
    whole: Tensor = torch.addmm(pooled, mixed.flatten(1), mapped.transpose(1, 2).flatten(0, 1))
    return whole


def _kernels() -> Any:
    """Return the kernels of sessions, which load Numba: a reader who trains nothing does not."""
    return import_module("widemax.kernels.encoders.session")


def _known(vectors: Tensor, lengths: Tensor) -> Tensor:
    return torch.arange(vectors.shape[1], device=vectors.device) < lengths[:, None]


def _pooled(
    vectors: Tensor, weight: Tensor, lengths: Tensor, query: Tensor, by_value: Tensor
) -> tuple[Tensor, Tensor]:
    """The means by torch's own operations, for derivatives of any order."""
    known, heads = _known(vectors, lengths), by_value.shape[1]
    shape = (*vectors.shape[:2], 2, heads, vectors.shape[2] // heads)
    asked, keys = linear(vectors, weight).view(shape).permute(2, 0, 3, 1, 4)
    scores = asked @ keys.transpose(-1, -2) * shape[-1] ** -0.5
    seen = masked_softmax(scores, known[:, None, None])
    values = seen @ (vectors[:, None] @ by_value[..., None])
    scores = (vectors @ query[..., None] + values.sum(1))[..., 0]
    weights = masked_softmax(scores, known)[:, None]
    return (weights @ vectors)[:, 0], (weights[:, None] @ seen @ vectors[:, None])[:, :, 0]


class _Pooled(torch.autograd.Function):
    """Row by row in a kernel: a session is so short that torch's products are mostly overhead."""

    @staticmethod
    def forward(
        ctx: Any, vectors: Tensor, weight: Tensor, lengths: Tensor, query: Tensor, by_value: Tensor
    ) -> tuple[Tensor, Tensor]:
        inputs, dimension = (vectors, weight, lengths, query, by_value), vectors.shape[2]
        found = _kernels().pooled_sessions(*_widened(*inputs))
        pooled, mixed, *kept = map(torch.from_numpy, found)
        ctx.save_for_backward(*inputs, *kept)
        return pooled[:, :dimension], mixed[:, :, :dimension]

    @staticmethod
    def backward(ctx: Any, by_pooled: Tensor, by_mixed: Tensor) -> Gradients:
        *inputs, attention, weights, projected = ctx.saved_tensors
        grads = (by_pooled, by_mixed)
        if is_asked_for_a_graph():
            return plain_gradients(_pooled, inputs, ctx.needs_input_grad, grads)
        vectors, weight, _, query, by_value = inputs
        (rows, width, dimension), heads = vectors.shape, by_value.shape[1]
        wide = (_padded(each, 0, _missing(dimension)).contiguous().numpy() for each in grads)
        kept = (each.numpy() for each in (attention, weights, projected))
        found = _kernels().spread_sessions(*wide, *_widened(*inputs), *kept)
        by_states, by_weight, *by_queries = (torch.from_numpy(each) for each in found)
        by_head = by_weight.view(heads, 2, -1, by_weight.shape[1])[:, :, : dimension // heads]
        by_query, by_values = (
            each[..., :dimension].sum_to_size(like.shape)
            for each, like in zip(by_queries, (query, by_value), strict=True)
        )
        return (
            by_states.view(-1, width, by_states.shape[1])[:rows, :, :dimension],
            by_head.transpose(0, 1)[..., :dimension].reshape(weight.shape),
            None,
            by_query,
            by_values,
        )


def _missing(size: int) -> int:
    """Return how many units are to be added to have whole tiles."""
    return int(-size % _kernels().WIDTH)


def _widened(
    vectors: Tensor, weight: Tensor, lengths: Tensor, query: Tensor, by_value: Tensor
) -> list[Any]:
    """Return what the kernels take: rows and units that are 0 up to whole tiles and registers."""
    kernels, heads = _kernels(), by_value.shape[1]
    (rows, _, dimension), more = vectors.shape, _missing(vectors.shape[2])
    size = dimension // heads
    by_head = weight.view(2, heads, size, dimension).transpose(0, 1)
    tensors = (
        _padded(vectors, 0, more, 0, 0, 0, -rows % kernels.HEIGHT).flatten(0, 1),
        _padded(by_head, 0, more, 0, -size % kernels.LANES).flatten(0, 2),
        lengths,
        _padded(query, 0, more),
        _padded(by_value, 0, more),
    )
    return [*(each.contiguous().numpy() for each in tensors), size**-0.5]


def _padded(tensor: Tensor, *sides: int) -> Tensor:
    """Return torch's ``pad``, which copies even where nothing is added."""
    return pad(tensor, sides) if any(sides) else tensor
