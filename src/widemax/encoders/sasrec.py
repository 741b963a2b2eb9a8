"""Self-attention over the items before: each state weighs what it has read."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from widemax.encoders.blocks import BLOCKS, RowGroups, row_groups
from widemax.encoders.contexts import check_context, check_segments, left_padded
from widemax.encoders.dense import dense_rows, state_after
from widemax.encoders.dropout import Dropout
from widemax.scoring.rows import gather_rows
from widemax.validation import check_fraction, check_num_classes, check_positive, check_whole

_MOST_UNITS = 2**20
_MOST_BLOCKS = 64
_MOST_PLACES = 2**16
_MOST_EXPANSION = 64
_INITIAL_DEVIATION = 0.02


class SASRecEncoder(nn.Module):
    """The state of a causal self-attention network after the items of a context.

    Formula: x_t = s·u(i_t) + p_t with s = ``item_scale``, t counted from the first item read or,
    with ``from_end``, back from the last; then the blocks (``block`` names their kind, see
    ``widemax.encoders.blocks``), where place t attends to places 1 … t; hidden = norm(x) after the
    last item, 0 for a context of nothing. Of a longer context the last ``max_length`` items are
    read. ``dropout`` falls, while training, on x_t and within the blocks.

    Shapes: context int64 [B, H], padded with -1 on the left, as ``Windows(before=H)`` gives it →
    hidden [B, D]; ``states`` takes segments [B, L], L up to ``max_length``, padded with -1 on the
    right → [B, L, D]; ``packed_states`` the same without the padding, [N, D], row after row.

    Cost: O(N·D²) a block for the N items read, and O(Σ l²·D) for attention over rows of l items:
    padding costs little, for rows of similar length go together. With ``sparse`` the gradient of
    the item vectors holds the rows read only.

    Reference: Kang & McAuley 2018; Tikhonovich et al. 2025 for blocks of kind "ligr".

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
        block: str = "sasrec",
        num_blocks: int = 2,
        num_heads: int = 1,
        expansion: int = 1,
        from_end: bool = False,
        item_scale: float = 1.0,
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
        if block not in BLOCKS:
            raise ValueError(f"block must be one of {', '.join(BLOCKS)}, got {block!r}")
        expansion = check_whole("expansion", expansion, 1, _MOST_EXPANSION)
        self.sparse, self.from_end = sparse, from_end
        self.item_scale = check_positive("item_scale", item_scale)
        self.dropout = Dropout(check_fraction("dropout", dropout))
        self.items = nn.Embedding(num_classes, dimension, sparse=sparse)
        self.positions = nn.Parameter(torch.empty(max_length, dimension))
        self.blocks = nn.ModuleList(
            BLOCKS[block](dimension, num_heads=num_heads, expansion=expansion, dropout=dropout)
            for _ in range(num_blocks)
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
        positions = self.positions[
            _from_end(context).clamp(min=0) if self.from_end else slice(width)
        ]
        states = self.item_scale * dense_rows(self.items.weight, context) + positions
        # All places are one group, padding too: it comes last, and nothing before it looks there.
        places = torch.arange(rows * width, device=context.device)
        groups = RowGroups([(places.view(rows, width), places)], places)
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
        places = _from_end(segments) if self.from_end else places
        states: Tensor = self.dropout(
            torch.add(self.positions[places[known]], items, alpha=self.item_scale)
        )
        groups = row_groups(known.sum(-1))
        for block in self.blocks:
            states = block(states, groups)
        normed: Tensor = self.norm(states)
        return normed

    def extra_repr(self) -> str:
        """Return what ``print(encoder)`` shows."""
        return f"max_length={self.max_length}, num_heads={self.num_heads}, sparse={self.sparse}"


def _from_end(segments: Tensor) -> Tensor:
    """Return how many items come after each place [B, L]; below 0 at padding, which comes last."""
    lengths = (segments >= 0).sum(-1, keepdim=True)
    return lengths - 1 - torch.arange(segments.shape[1], device=segments.device)
