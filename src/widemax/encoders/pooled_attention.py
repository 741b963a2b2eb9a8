"""The weighted mean of what a self-attention layer returns, without the layer's whole output."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear, pad

from widemax.encoders.attention import SelfAttention, attention_pool, masked_softmax
from widemax.encoders.products import product, product_over_rows
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
    weights = (attention.inputs.weight, attention.output.weight)
    pooled: Tensor = _Pooled.apply(  # type: ignore[no-untyped-call]
        vectors.contiguous(), lengths, query, *weights, attention.num_heads
    )
    return pooled


def _kernels() -> Any:
    """Return the kernels of sessions, which load Numba: a reader who trains nothing does not."""
    return import_module("widemax.kernels.encoders.session")


def _known(vectors: Tensor, lengths: Tensor) -> Tensor:
    return torch.arange(vectors.shape[1], device=vectors.device) < lengths[:, None]


def _pooled(
    vectors: Tensor, lengths: Tensor, query: Tensor, weight: Tensor, output: Tensor, heads: int
) -> Tensor:
    """The mean by torch's own operations, for derivatives of any order."""
    known = _known(vectors, lengths)
    shape = (*vectors.shape[:2], 3, heads, vectors.shape[2] // heads)
    asked, keys, values = linear(vectors, weight).view(shape).permute(2, 0, 3, 1, 4)
    scores = asked @ keys.transpose(-1, -2) * shape[-1] ** -0.5
    mixed = masked_softmax(scores, known[:, None, None]) @ values
    attended = vectors + linear(mixed.transpose(1, 2).reshape(vectors.shape), output)
    return attention_pool(attended, query, known)


class _Pooled(torch.autograd.Function):
    """Row by row in a kernel: a session is so short that torch's products are mostly overhead."""

    @staticmethod
    def forward(
        ctx: Any,
        vectors: Tensor,
        lengths: Tensor,
        query: Tensor,
        weight: Tensor,
        output: Tensor,
        heads: int,
    ) -> Tensor:
        dimension = vectors.shape[2]
        of_values, of_output = _by_head(weight, output, heads)
        mapped = of_output @ of_values  # of each head: what it adds to the output, from its mean
        by_value = (query @ mapped).transpose(0, 1)
        found = _kernels().pooled_sessions(
            *_widened(vectors, weight[: 2 * dimension], lengths, query, by_value)
        )
        pooled, mixed, *kept = map(torch.from_numpy, found)
        mixed = mixed[:, :, :dimension].flatten(1)
        ctx.save_for_backward(vectors, lengths, query, weight, output, mapped, mixed, *kept)
        ctx.heads = heads
        return product(mixed, mapped.transpose(1, 2).flatten(0, 1)).add_(pooled[:, :dimension])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Gradients:
        *inputs, mapped, mixed, attention, weights, projected = ctx.saved_tensors
        if is_asked_for_a_graph():
            inputs.append(ctx.heads)
            return plain_gradients(_pooled, inputs, ctx.needs_input_grad, (grad,))
        vectors, lengths, query, weight, output = inputs
        (rows, width, dimension), heads = vectors.shape, ctx.heads
        grad = grad.contiguous()
        by_mixed = product(grad, mapped.transpose(0, 1).flatten(1)).view(rows, heads, dimension)
        by_mapped = product_over_rows(mixed, grad).view(heads, dimension, -1).transpose(1, 2)
        more = _missing(dimension)
        wide = (_padded(each, 0, more).contiguous().numpy() for each in (grad, by_mixed))
        by_value = (query @ mapped).transpose(0, 1)
        given = _widened(vectors, weight[: 2 * dimension], lengths, query, by_value)
        kept = (each.numpy() for each in (attention, weights, projected))
        found = _kernels().spread_sessions(*wide, *given, *kept)
        by_states, by_both, *by_queries = (torch.from_numpy(each) for each in found)
        by_query, by_value = (
            each[..., :dimension].sum_to_size(like.shape)
            for each, like in zip(by_queries, (query, by_value), strict=True)
        )
        by_value = by_value.transpose(0, 1)
        by_mapped = by_mapped + query.T @ by_value
        by_query = by_query + (by_value @ mapped.transpose(1, 2)).sum(0)
        of_values, of_output = _by_head(weight, output, heads)
        by_values = of_output.transpose(1, 2) @ by_mapped
        by_output = by_mapped @ of_values.transpose(1, 2)
        by_head = by_both.view(heads, 2, -1, by_both.shape[1])[:, :, : dimension // heads]
        by_both = by_head.transpose(0, 1)[..., :dimension].reshape(-1, dimension)
        return (
            by_states.view(-1, width, by_states.shape[1])[:rows, :, :dimension],
            None,
            by_query,
            torch.cat([by_both, by_values.flatten(0, 1)]),
            by_output.transpose(0, 1).flatten(1),
            None,
        )


def _by_head(weight: Tensor, output: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """Return what makes the values of each head, [heads, d, D], and what takes them, [heads, D, d].

    ``weight`` [3·D, D] makes queries, keys and values of all heads, ``output`` is [D, D].
    """
    dimension = len(output)
    of_values = weight[2 * dimension :].view(heads, -1, dimension)
    return of_values, output.view(dimension, heads, -1).transpose(0, 1)


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
