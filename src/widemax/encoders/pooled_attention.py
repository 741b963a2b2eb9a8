"""The weighted mean of what a self-attention layer returns, without the layer's whole output."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from widemax.encoders.attention import SelfAttention, attention_pool, masked_softmax
from widemax.gradients import Gradients, is_asked_for_a_graph, kernels_take, plain_gradients


def pool_attended(
    attention: SelfAttention, vectors: Tensor, lengths: Tensor, query: Tensor
) -> Tensor:
    """Return ``attention_pool`` of what attention makes of vectors [B, L, D] by queries [B, D].

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
    weight = attention.inputs.weight
    of_values = weight[2 * dimension :].view(heads, -1, dimension)
    by_output = (query @ attention.output.weight).view(len(query), heads, -1)
    pooled, mixed = _Pooled.apply(  # type: ignore[no-untyped-call]
        vectors.contiguous(),
        linear(vectors, weight[: 2 * dimension]),  # queries and keys
        lengths,
        query.contiguous(),
        torch.einsum("bhk,hkd->bhd", by_output, of_values).contiguous(),
    )
    joined = torch.einsum("bhd,hkd->bhk", mixed, of_values).flatten(1)
    whole: Tensor = pooled + attention.output(joined)
    return whole


def _kernels() -> Any:
    """Return the kernels of sessions, which load Numba: a reader who trains nothing does not."""
    return import_module("widemax.kernels.encoders.session")


def _known(vectors: Tensor, lengths: Tensor) -> Tensor:
    return torch.arange(vectors.shape[1], device=vectors.device) < lengths[:, None]


def _pooled(
    vectors: Tensor, projected: Tensor, lengths: Tensor, query: Tensor, by_value: Tensor
) -> tuple[Tensor, Tensor]:
    """The means by torch's own operations, for derivatives of any order."""
    known, heads = _known(vectors, lengths), by_value.shape[1]
    shape = (*vectors.shape[:2], 2, heads, vectors.shape[2] // heads)
    asked, keys = projected.view(shape).permute(2, 0, 3, 1, 4)
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
        ctx: Any,
        vectors: Tensor,
        projected: Tensor,
        lengths: Tensor,
        query: Tensor,
        by_value: Tensor,
    ) -> tuple[Tensor, Tensor]:
        inputs = (vectors, projected, lengths, query, by_value)
        found = _kernels().pooled_sessions(*(each.numpy() for each in inputs))
        pooled, mixed, attention, weights = map(torch.from_numpy, found)
        ctx.save_for_backward(*inputs, attention, weights)
        return pooled, mixed

    @staticmethod
    def backward(ctx: Any, by_pooled: Tensor, by_mixed: Tensor) -> Gradients:
        saved = ctx.saved_tensors
        grads = (by_pooled, by_mixed)
        if is_asked_for_a_graph():
            return plain_gradients(_pooled, saved[:5], ctx.needs_input_grad, grads)
        arrays = (each.contiguous().numpy() for each in (*grads, *saved))
        vectors, projected, query, by_value = map(
            torch.from_numpy, _kernels().spread_sessions(*arrays)
        )
        return vectors, projected, None, query, by_value
