"""Blocks of self-attention: what each adds to the states of a row, from those up to its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention, silu

from widemax.encoders.dropout import Dropout


class SASRecBlock(nn.Module):
    """Attention, then two layers on each place alone; both add to what comes in.

    Formula: x ← x + Attention(norm(x)), x ← x + W₂·relu(W₁·norm(x) + b₁) + b₂, where W₁ has
    ``expansion`` times D rows. ``dropout`` falls on what is added and on the inner layer.

    Reference: Kang & McAuley 2018; norms come first, as in Xiong et al. 2020.

    >>> block = SASRecBlock(8, num_heads=2)
    >>> block(torch.randn(5, 8), row_groups(torch.tensor([3, 2]))).shape
    torch.Size([5, 8])
    """

    def __init__(
        self, dimension: int, *, num_heads: int = 1, expansion: int = 1, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(dimension)
        self.attention = CausalAttention(dimension, num_heads)
        self.forward_norm = nn.LayerNorm(dimension)
        self.inner = nn.Linear(dimension, expansion * dimension)
        self.outer = nn.Linear(expansion * dimension, dimension)
        self.dropout = Dropout(dropout)

    def forward(self, states: Tensor, groups: RowGroups) -> Tensor:
        """Return new states [N, D] of rows that are grouped by length."""
        attended = self.attention(self.attention_norm(states), groups)
        states = states + self.dropout(attended)
        inner = torch.relu(self.inner(self.forward_norm(states)))
        added: Tensor = self.dropout(self.outer(self.dropout(inner)))
        return states + added


class LiGRBlock(nn.Module):
    """Attention, then a gated unit on each place alone; a gate says how much of each is added.

    Formula: x ← x + σ(W_g·x + b_g)·Attention(norm(x)), then
    x ← x + σ(W_h·x + b_h)·W₃(silu(W₁·norm(x))·(W₂·norm(x))), where W₁ and W₂ have ``expansion``
    times D rows. ``dropout`` falls on what the gates multiply and on the inner layer.

    Reference: Borisyuk et al. 2025 (LiGR); Shazeer 2020 (SwiGLU); Tikhonovich et al. 2025, who call
    SASRec with such blocks and a sampled softmax eSASRec.

    >>> block = LiGRBlock(8, num_heads=2, expansion=4)
    >>> block(torch.randn(5, 8), row_groups(torch.tensor([3, 2]))).shape
    torch.Size([5, 8])
    """

    def __init__(
        self, dimension: int, *, num_heads: int = 1, expansion: int = 1, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(dimension)
        self.attention = CausalAttention(dimension, num_heads)
        self.attention_gate = nn.Linear(dimension, dimension)
        self.forward_norm = nn.LayerNorm(dimension)
        # W₁ and W₂ of the formula, one below the other: one product for both.
        self.inner = nn.Linear(dimension, 2 * expansion * dimension, bias=False)
        self.outer = nn.Linear(expansion * dimension, dimension, bias=False)
        self.forward_gate = nn.Linear(dimension, dimension)
        self.dropout = Dropout(dropout)

    def forward(self, states: Tensor, groups: RowGroups) -> Tensor:
        """Return new states [N, D] of rows that are grouped by length."""
        attended = self.dropout(self.attention(self.attention_norm(states), groups))
        states = torch.addcmul(states, self.attention_gate(states).sigmoid(), attended)
        activated, linear = self.inner(self.forward_norm(states)).chunk(2, dim=-1)
        added = self.dropout(self.outer(self.dropout(silu(activated) * linear)))
        return torch.addcmul(states, self.forward_gate(states).sigmoid(), added)


class CausalAttention(nn.Module):
    """Each place of a row becomes a mix of the places up to it, in several ways side by side.

    Formula: for head i with d = D / heads, Q_i, K_i, V_i = X·W_i + b_i: softmax over the places up
    to one's own of Q_i·K_iᵀ / √d, times V_i; all heads together times W_O.

    Reference: Vaswani et al. 2017.
    """

    def __init__(self, dimension: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.projections = nn.Linear(dimension, 3 * dimension)
        self.output = nn.Linear(dimension, dimension)

    def forward(self, states: Tensor, groups: RowGroups) -> Tensor:
        """Return what each of the states [N, D] sees, [N, D]."""
        projected, mixed = self.projections(states), [states[:0]]
        for places, kept in groups.padded:
            # Padding comes last, and causal attention only looks back: no place that counts sees
            # what stands there.
            parts = projected.index_select(0, places.flatten())
            parts = parts.view(*places.shape, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
            queries, keys, values = parts.unbind(0)
            seen = scaled_dot_product_attention(queries, keys, values, is_causal=True)
            mixed.append(seen.transpose(1, 2).flatten(2).flatten(0, 1).index_select(0, kept))
        attended: Tensor = self.output(torch.cat(mixed).index_select(0, groups.order))
        return attended


BLOCKS: dict[str, Callable[..., nn.Module]] = {"ligr": LiGRBlock, "sasrec": SASRecBlock}
"""The kinds of blocks by their names."""


class RowGroups(NamedTuple):
    """Rows of similar length, so that little of what attention multiplies is padding."""

    padded: list[tuple[Tensor, Tensor]]
    """For each group the places of its items among all, [b, l], and which of b·l are there."""
    order: Tensor
    """Where each of all items stands when the groups come one after the other, [N]."""


def row_groups(lengths: Tensor) -> RowGroups:
    """Return rows that differ in length by less than a factor of two, group by group."""
    starts, total = lengths.cumsum(0) - lengths, int(lengths.sum())
    padded, found = [], [lengths[:0]]
    longest = 1
    while total and longest < 2 * int(lengths.max()):
        rows = ((lengths <= longest) & (2 * lengths > longest)).nonzero()[:, 0]
        longest *= 2
        if len(rows):
            steps = torch.arange(int(lengths[rows].max()), device=lengths.device)
            places = starts[rows, None] + steps
            there = steps < lengths[rows, None]
            padded.append((places.clamp(max=total - 1), there.flatten().nonzero()[:, 0]))
            found.append(places[there])
    return RowGroups(padded, torch.cat(found).argsort())
