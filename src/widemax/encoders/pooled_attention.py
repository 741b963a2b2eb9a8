"""The weighted mean of what a self-attention layer returns, without the layer's whole output."""

from __future__ import annotations

from collections.abc import Iterable
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


def _kernels(name: str = "session") -> Any:
    """Return the kernels of sessions, which load Numba: a reader who trains nothing does not."""
    return import_module(f"widemax.kernels.encoders.{name}")


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
        maps = _head_maps(weight[2 * dimension :], output, heads)
        by_value = (query @ maps.T).view(len(query), heads, dimension)
        given = _widened(vectors, weight[: 2 * dimension], lengths, query, by_value)
        found = _kernels().pooled_sessions(*_arrays(given), (dimension // heads) ** -0.5)
        pooled, mixed, *kept = map(torch.from_numpy, found)
        mixed = mixed[:, :, :dimension].flatten(1)
        inputs = (vectors, lengths, query, weight, output)
        ctx.save_for_backward(*inputs, maps, mixed, *given, *kept)
        ctx.heads = heads
        return product(mixed, maps).add_(pooled[:, :dimension])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Gradients:
        inputs, (maps, mixed), made = (ctx.saved_tensors[i:j] for i, j in ((0, 5), (5, 7), (7, 15)))
        if is_asked_for_a_graph():
            own = (*inputs, ctx.heads)
            return plain_gradients(_pooled, own, ctx.needs_input_grad, (grad,))
        vectors, _, query, weight, output = inputs
        (rows, width, dimension), heads = vectors.shape, ctx.heads
        grad, more = grad.contiguous(), _missing(dimension)
        by_mixed = product(grad, maps.T).view(rows, heads, dimension)
        by_sums = (_padded(each, 0, more) for each in (grad, by_mixed))
        given, kept = _arrays(made[:5]), _arrays(made[5:])
        found = _kernels("session_gradients").spread_sessions(
            *_arrays(by_sums), *given, (dimension // heads) ** -0.5, *kept
        )
        by_states, by_both, by_query, by_value = map(torch.from_numpy, found)
        by_query, by_value = by_query[:, :dimension], by_value[..., :dimension].flatten(1)
        if len(query) == 1:
            by_query, by_value = by_query.sum(0, keepdim=True), by_value.sum(0, keepdim=True)
        by_maps = torch.addmm(product_over_rows(mixed, grad), by_value.T, query)
        by_values, by_output = _spread_maps(by_maps, weight[2 * dimension :], output, heads)
        by_head = by_both.view(heads, 2, -1, by_both.shape[1])[:, :, : dimension // heads]
        by_both = by_head.transpose(0, 1)[..., :dimension].reshape(-1, dimension)
        return (
            by_states.view(-1, width, by_states.shape[1])[:rows, :, :dimension],
            None,
            torch.addmm(by_query, by_value, maps),
            torch.cat([by_both, by_values]),
            by_output,
            None,
        )


def _head_maps(values: Tensor, output: Tensor, heads: int) -> Tensor:
    """Return what the mean of each head adds to the output, [heads·D, D], if multiplied by it.

    ``values`` and ``output`` are [D, D]: what makes the values of all heads, and what takes them.
    """
    of_values, of_output = (
        values.view(heads, -1, len(output)),
        output.T.view(heads, -1, len(output)),
    )
    return (of_values.transpose(1, 2) @ of_output).flatten(0, 1)


def _spread_maps(
    by_maps: Tensor, values: Tensor, output: Tensor, heads: int
) -> tuple[Tensor, Tensor]:
    """Return the gradients of ``values`` and ``output`` from that of the maps."""
    dimension = len(output)
    of_values, of_output = values.view(heads, -1, dimension), output.T.view(heads, -1, dimension)
    of_maps = by_maps.view(heads, dimension, dimension)
    by_values = (of_output @ of_maps.transpose(1, 2)).view(dimension, dimension)
    by_output = (of_values @ of_maps).view(dimension, dimension).T
    return by_values, by_output.contiguous()


def _missing(size: int) -> int:
    """Return how many units are to be added to have whole tiles."""
    return int(-size % _kernels().WIDTH)


def _widened(
    vectors: Tensor, weight: Tensor, lengths: Tensor, query: Tensor, by_value: Tensor
) -> list[Tensor]:
    """Return what the kernels take: rows and units that are 0 up to whole tiles and registers."""
    kernels, heads = _kernels(), by_value.shape[1]
    (rows, _, dimension), more = vectors.shape, _missing(vectors.shape[2])
    size = dimension // heads
    by_head = weight.view(2, heads, size, dimension).transpose(0, 1)
    return [
        _padded(vectors, 0, more, 0, 0, 0, -rows % kernels.HEIGHT).flatten(0, 1),
        _padded(by_head, 0, more, 0, -size % kernels.LANES).flatten(0, 2),
        lengths,
        _padded(query, 0, more),
        _padded(by_value, 0, more),
    ]


def _arrays(tensors: Iterable[Tensor]) -> list[Any]:
    return [each.contiguous().numpy() for each in tensors]


def _padded(tensor: Tensor, *sides: int) -> Tensor:
    """Return torch's ``pad``, which copies even where nothing is added."""
    return pad(tensor, sides) if any(sides) else tensor
