"""Attention over rows that are padded."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from widemax.encoders.contexts import vectors_at
from widemax.gradients import Gradients, is_asked_for_a_graph, kernels_take, plain_gradients
from widemax.validation import check_fraction, check_whole

_MOST_HEADS = 2**10


def masked_softmax(scores: Tensor, known: Tensor) -> Tensor:
    """Return the softmax over the known places of the last dimension; 0 at all others.

    >>> known = torch.tensor([[True, False], [False, False]])
    >>> masked_softmax(torch.tensor([[3.0, 9.0], [3.0, 9.0]]), known).tolist()
    [[1.0, 0.0], [0.0, 0.0]]
    """
    # The lowest value instead of -inf: a row of nothing has a softmax, and no gradient is NaN.
    least = torch.finfo(scores.dtype).min
    return scores.masked_fill(~known, least).softmax(-1).masked_fill(~known, 0.0)


def attention_pool(vectors: Tensor, query: Tensor, known: Tensor) -> Tensor:
    """Return the mean of vectors [B, L, D], weighted by how well each fits a query [B, D].

    It is Σ_l a_l·x_l with a = softmax over known l of x_l·q, [B, D]; 0 where nothing is known.

    >>> vectors = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> attention_pool(vectors, torch.tensor([[999.0, 0]]), torch.tensor([[True, True]])).tolist()
    [[1.0, 0.0]]
    """
    weights = masked_softmax((vectors @ query[..., None])[..., 0], known)
    return (weights[:, None] @ vectors)[:, 0]


def attend_rows(vectors: Tensor, places: Tensor, query: Tensor) -> Tensor:
    """Return ``attention_pool`` of vectors [U, D] at places [B, L], -1 where there is nothing.

    One query [1, D] may be that of all rows.

    >>> attend_rows(torch.eye(2), torch.tensor([[0, 1], [1, -1]]), torch.ones(2, 2)).tolist()
    [[0.5, 0.5], [0.0, 1.0]]
    """
    if not kernels_take(vectors, query) or torch.is_autocast_enabled("cpu"):
        return _attend_rows(vectors, places, query)
    inputs = (vectors.contiguous(), places.contiguous(), query.contiguous())
    pooled: Tensor = _AttendRows.apply(*inputs)  # type: ignore[no-untyped-call]
    return pooled


def _kernels() -> Any:
    """Return the kernels of pooling, which load Numba: a reader who trains nothing does not."""
    return import_module("widemax.kernels.encoders.pooling")


def _attend_rows(vectors: Tensor, places: Tensor, query: Tensor) -> Tensor:
    return attention_pool(vectors_at(vectors, places), query, places >= 0)


class _AttendRows(torch.autograd.Function):
    """By a kernel that adds rows up where they are: nothing of [B, L, D] is formed."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, places: Tensor, query: Tensor) -> Tensor:
        found = _kernels().attended_rows(*(each.numpy() for each in (vectors, places, query)))
        pooled, weights = map(torch.from_numpy, found)
        ctx.save_for_backward(vectors, places, query, pooled, weights)
        return pooled

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Gradients:
        inputs = ctx.saved_tensors
        if is_asked_for_a_graph():
            return plain_gradients(_attend_rows, inputs[:3], ctx.needs_input_grad, (grad,))
        arrays = (each.numpy() for each in (grad.contiguous(), *inputs))
        by_vectors, by_query = map(torch.from_numpy, _kernels().spread_attention(*arrays))
        return by_vectors, None, by_query.sum_to_size(inputs[2].shape)


class SelfAttention(nn.Module):
    """Each vector of a row becomes a mix of all of them, in several ways side by side.

    Formula: for head i with d = D / heads: A_i = softmax over known keys of Q_i·K_iᵀ / √d,
    Q_i, K_i, V_i = X·W_i; output = X + dropout((A_1·V_1, …)·W_O). There are no positions: order
    has to be in the vectors already. What it returns at unknown places is to be ignored.

    Reference: Vaswani et al. 2017; Lv et al. 2019, who attend within a session.

    >>> attention = SelfAttention(8, num_heads=2)
    >>> attention(torch.randn(3, 5, 8), torch.ones(3, 5, dtype=torch.bool)).shape
    torch.Size([3, 5, 8])
    """

    def __init__(self, dimension: int, num_heads: int = 1, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.num_heads = check_whole("num_heads", num_heads, 1, _MOST_HEADS)
        if dimension % num_heads:
            raise ValueError(f"num_heads must divide dimension {dimension:,}, got {num_heads:,}")
        self.inputs = nn.Linear(dimension, 3 * dimension, bias=False)
        self.output = nn.Linear(dimension, dimension, bias=False)
        self.dropout = nn.Dropout(check_fraction("dropout", dropout))
        for layer in (self.inputs, self.output):
            nn.init.normal_(layer.weight, std=dimension**-0.5)

    def forward(self, vectors: Tensor, known: Tensor) -> Tensor:
        """Return the mixed vectors, [B, L, D]."""
        shape = (*vectors.shape[:2], 3, self.num_heads, vectors.shape[2] // self.num_heads)
        query, key, value = self.inputs(vectors).view(shape).permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-1, -2) * shape[-1] ** -0.5
        mixed = masked_softmax(scores, known[:, None, None]) @ value
        joined = mixed.transpose(1, 2).reshape(vectors.shape)
        attended: Tensor = vectors + self.dropout(self.output(joined))
        return attended
