"""Self-attention over the items before: each state weighs what it has read."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from widemax.encoders.contexts import check_context, check_segments, left_padded
from widemax.encoders.dense import dense_rows, state_after
from widemax.scoring.rows import gather_rows
from widemax.validation import check_fraction, check_num_classes, check_whole

_MOST_UNITS = 2**20
_MOST_BLOCKS = 64
_MOST_PLACES = 2**16
_INITIAL_DEVIATION = 0.02


class SASRecEncoder(nn.Module):
    """The state of a causal self-attention network after the items of a context.

    Formula: x_t = u(i_t) + p_t, t counted from the first item read; then in each block
    x ← x + Attention(norm(x)), x ← x + W₂·relu(W₁·norm(x) + b₁) + b₂, where place t attends to
    places 1 … t; hidden = norm(x) after the last item, 0 for a context of nothing. Of a longer
    context the last ``max_length`` items are read. ``dropout`` falls, while training, on x_t and on
    what each half of a block adds.

    Shapes: context int64 [B, H], padded with -1 on the left, as ``Windows(before=H)`` gives it →
    hidden [B, D]; ``states`` takes segments [B, L], L up to ``max_length``, padded with -1 on the
    right → [B, L, D]; ``packed_states`` the same without the padding, [N, D], row after row.

    Cost: O(N·D²) a block for the N items read, and O(Σ l²·D) for attention over rows of l items:
    padding costs little, for rows of similar length go together. With ``sparse`` the gradient of
    the item vectors holds the rows read only.

    Reference: Kang & McAuley 2018; norms come first in a block, as in Xiong et al. 2020.

    Train on ``packed_states``, which predicts every place at once;
    ``TableScorer.tied(encoder.items)`` shares the item vectors with the output.

    >>> encoder = SASRecEncoder(100, dimension=8, max_length=4).eval()
    >>> states = encoder.states(torch.tensor([[3, 1, 4], [5, 9, -1]]))
    >>> last = encoder(torch.tensor([[3, 1, 4], [-1, 5, 9]]))
    >>> torch.allclose(last, states[[0, 1], [2, 1]], atol=1e-6), states[1, 2].abs().sum().item()
    (True, 0.0)
    """

    def __init__(
        self,
        num_classes: int,
        dimension: int,
        max_length: int = 50,
        *,
        num_blocks: int = 2,
        num_heads: int = 1,
        dropout: float = 0.0,
        sparse: bool = False,
    ) -> None:
        super().__init__()
        self.num_classes = check_num_classes(num_classes)
        self.dimension = check_whole("dimension", dimension, 1, _MOST_UNITS)
        self.output_dimension = dimension
        self.max_length = check_whole("max_length", max_length, 1, _MOST_PLACES)
        num_blocks = check_whole("num_blocks", num_blocks, 1, _MOST_BLOCKS)
        self.num_heads = check_whole("num_heads", num_heads, 1, dimension)
        if dimension % num_heads:
            raise ValueError(f"num_heads must divide dimension {dimension}, got {num_heads}")
        self.sparse = sparse
        self.dropout = nn.Dropout(check_fraction("dropout", dropout))
        self.items = nn.Embedding(num_classes, dimension)
        self.positions = nn.Parameter(torch.empty(max_length, dimension))
        self.blocks = nn.ModuleList(
            _Block(dimension, num_heads, dropout) for _ in range(num_blocks)
        )
        self.norm = nn.LayerNorm(dimension)
        for vectors in (self.items.weight, self.positions):
            nn.init.normal_(vectors, std=_INITIAL_DEVIATION)

    def class_tables(self) -> dict[str, range]:
        """Return which tensors have a row for each class, with the classes of their rows."""
        return {"items.weight": range(self.num_classes)}

    def forward(self, context: Tensor) -> Tensor:
        """Return the state after the last item of each context, [B, D]."""
        context = check_context(context, self.num_classes)
        segments, lengths = left_padded(context[:, -self.max_length :])
        states = self._packed_states(segments)
        read = lengths > 0
        hidden = states.new_zeros(len(context), self.dimension)
        hidden[read] = states[lengths.cumsum(0)[read] - 1]
        return hidden

    def dense(self, context: Tensor, features: Tensor | None = None) -> Tensor:
        """Return the last states of contexts as ``DenseEncoder`` takes them, [B, D]."""
        context = context[:, : self.max_length]
        rows, width = context.shape
        states = dense_rows(self.items.weight, context) + self.positions[:width]
        # All places are one group, padding too: it comes last, and nothing before it looks there.
        places = torch.arange(rows * width, device=context.device)
        groups = _Groups([(places.view(rows, width), places)], places)
        states = states.flatten(0, 1)
        for block in self.blocks:
            states = block(states, groups)
        return state_after(self.norm(states).view(rows, width, self.dimension), context)

    def states(self, segments: Tensor) -> Tensor:
        """Return the state after each place, [B, L, D]; 0 at padding.

        The state at place t has read places 0 … t, so that it predicts place t + 1.
        """
        states, known = self.packed_states(segments), (segments >= 0)[..., None]
        padded = states.new_zeros(*segments.shape, self.dimension)
        return padded.masked_scatter(known, states)

    def packed_states(self, segments: Tensor) -> Tensor:
        """Return the state after each item of segments, [N, D], segment after segment."""
        segments = check_segments(segments, self.num_classes)
        if segments.shape[1] > self.max_length:
            raise ValueError(
                f"segments must have at most {self.max_length:,} places (max_length), "
                f"got {segments.shape[1]:,}"
            )
        return self._packed_states(segments)

    def _packed_states(self, segments: Tensor) -> Tensor:
        known = segments >= 0
        items = gather_rows(self.items.weight, segments[known], sparse=self.sparse)
        places = torch.arange(segments.shape[1], device=segments.device).expand_as(segments)
        states: Tensor = self.dropout(items + self.positions[places[known]])
        groups = _groups(known.sum(-1))
        for block in self.blocks:
            states = block(states, groups)
        normed: Tensor = self.norm(states)
        return normed

    def extra_repr(self) -> str:
        """Return what ``print(encoder)`` shows."""
        return f"max_length={self.max_length}, num_heads={self.num_heads}, sparse={self.sparse}"


class _Block(nn.Module):
    """Attention, then two layers on each place alone; both add to what comes in."""

    def __init__(self, dimension: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.attention_norm = nn.LayerNorm(dimension)
        self.projections = nn.Linear(dimension, 3 * dimension)
        self.output = nn.Linear(dimension, dimension)
        self.forward_norm = nn.LayerNorm(dimension)
        self.inner = nn.Linear(dimension, dimension)
        self.outer = nn.Linear(dimension, dimension)
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: Tensor, groups: _Groups) -> Tensor:
        """Return new states [N, D] of rows that are grouped by length."""
        attended = self.output(self._attend(self.attention_norm(states), groups))
        states = states + self.dropout(attended)
        inner = torch.relu(self.inner(self.forward_norm(states)))
        added: Tensor = self.dropout(self.outer(self.dropout(inner)))
        return states + added

    def _attend(self, states: Tensor, groups: _Groups) -> Tensor:
        projected, mixed = self.projections(states), [states[:0]]
        for places, kept in groups.padded:
            # Padding comes last, and causal attention only looks back: no place that counts sees
            # what stands there.
            parts = projected.index_select(0, places.flatten())
            parts = parts.view(*places.shape, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
            queries, keys, values = parts.unbind(0)
            seen = scaled_dot_product_attention(queries, keys, values, is_causal=True)
            mixed.append(seen.transpose(1, 2).flatten(2).flatten(0, 1).index_select(0, kept))
        return torch.cat(mixed).index_select(0, groups.order)


class _Groups(NamedTuple):
    """Rows of similar length, so that little of what attention multiplies is padding."""

    padded: list[tuple[Tensor, Tensor]]
    """For each group the places of its items among all, [b, l], and which of b·l are there."""
    order: Tensor
    """Where each of all items stands when the groups come one after the other, [N]."""


def _groups(lengths: Tensor) -> _Groups:
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
    return _Groups(padded, torch.cat(found).argsort())
