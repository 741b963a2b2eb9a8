"""A user from what they do now and what they did before, and how much each counts."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from widemax.encoders.attention import SelfAttention, attend_rows, attention_pool
from widemax.encoders.contexts import check_context, context_vectors, numbered_halves, vectors_at
from widemax.encoders.dense import dense_rows
from widemax.encoders.gate import gated
from widemax.encoders.halves import fused_halves, halves_fit
from widemax.encoders.pooled_attention import pool_attended
from widemax.encoders.recurrence import apart, read_rows
from widemax.encoders.users import features_dimension, item_table, known_features
from widemax.scoring.rows import gather_rows
from widemax.scoring.table import check_table_size
from widemax.validation import ABSENT, as_int64, check_fraction, check_tensor, check_whole

Field = tuple[Tensor, Tensor | None]
"""Vectors of items [U, D], and bool [U]: which of them are known; None: all."""

_MOST_PLACES = 2**16
_MOST_CODES = 2**28


class SDMEncoder(nn.Module):
    """A gate between the last items, read in their order, and a summary of those before them.

    Formula: q = q_0 + A·features is the query of a user. Each item has the vectors of its fields:
    its own and one for each column of ``item_codes``. Short: the last ``short`` items, all fields
    side by side → LSTM → ``SelfAttention`` → s = ``attention_pool`` by q. Long: the items before
    them, each field pooled by q on its own → p = tanh(W·(z_0, z_1, …) + b).
    g = sigmoid(G·(q, s, p) + c); hidden = g ⊙ p + (1 − g) ⊙ s. ``dropout`` falls on the vectors
    of fields, on the attention's output and on the result.

    Shapes: context int64 [B, H], oldest first, -1 anywhere; ``users`` int64 [B], -1 unknown →
    hidden [B, D]; ``item_codes`` int64 [V, S], -1 unknown. With ``sparse`` gradients of the tables
    hold the rows that were read only.

    Reference: Lv et al. 2019, with a residual connection around the attention.

    >>> encoder = SDMEncoder(100, 8, short=3, item_codes=torch.arange(100)[:, None] % 7)
    >>> encoder(torch.tensor([[-1, 3, 5, 9, 7], [-1, -1, -1, -1, -1]])).shape
    torch.Size([2, 8])
    """

    codes: Tensor

    def __init__(
        self,
        num_classes: int,
        dimension: int,
        *,
        short: int = 10,
        num_heads: int = 2,
        num_layers: int = 1,
        item_codes: Tensor | None = None,
        user_features: nn.Module | None = None,
        dropout: float = 0.0,
        sparse: bool = True,
    ) -> None:
        super().__init__()
        self.num_classes, self.dimension = check_table_size(num_classes, dimension)
        self.output_dimension = dimension
        self.short = check_whole("short", short, 1, _MOST_PLACES)
        num_layers = check_whole("num_layers", num_layers, 1, 64)
        codes = _check_codes(item_codes, num_classes)
        # Known from the catalogue whenever the model is built: not part of what it learned.
        self.register_buffer("codes", codes, persistent=False)
        self.dropout = nn.Dropout(check_fraction("dropout", dropout))
        self.items = item_table(num_classes, dimension, sparse=sparse)
        self.sides = nn.ModuleList(
            item_table(int(column.max()) + 1, dimension, sparse=sparse) for column in codes.T
        )
        fields = (1 + len(self.sides)) * dimension
        self.lstm = nn.LSTM(fields, dimension, num_layers, batch_first=True)
        self.attention = SelfAttention(dimension, num_heads, dropout=dropout)
        self.summary = nn.Linear(fields, dimension)
        self.gate = nn.Linear(3 * dimension, dimension)
        self.user_features = user_features
        width = features_dimension(user_features)
        self.profile = nn.Linear(width, dimension, bias=False) if width else None
        self.query = nn.Parameter(torch.empty(dimension))
        nn.init.normal_(self.query, std=dimension**-0.5)

    def class_tables(self) -> dict[str, range]:
        """Return which tensors have a row for each class, with the classes of their rows."""
        return {"items.weight": range(self.num_classes)}

    def forward(self, context: Tensor, users: Tensor | None = None) -> Tensor:
        """Return the user vectors, [B, D]."""
        context = check_context(context, self.num_classes)
        query = self._query(context, users)
        numbered = numbered_halves(context, self.short)
        layers = (query, self.lstm, self.attention)
        if not self.codes.shape[1] and halves_fit(self.items, numbered.recent, *layers):
            return fused_halves(self.items, numbered, *layers, self.summary, self.gate)
        named, num_recent, before, session = numbered
        fields = self._fields(named)
        recent = _side_by_side([vectors[:num_recent] for vectors, _ in fields])
        short, pooled = self._short(recent, session, query), self._pooled(fields, before, query)
        fused: Tensor = self.dropout(gated(short, pooled, query, self.summary, self.gate))
        return fused

    def dense(self, context: Tensor, features: Tensor | None = None) -> Tensor:
        """Return the user vectors of contexts as ``DenseEncoder`` takes them, [B, D]."""
        query = self.query.expand(context.shape[0], -1)
        if features is not None and self.profile is not None:
            query = query + self.profile(features)
        lengths = (context >= 0).sum(1, keepdim=True)
        places = torch.arange(self.short, device=context.device) + (lengths - self.short).clamp(0)
        # As wide as the last ones may be, even where a context is not.
        wide = pad(context, (0, self.short), value=ABSENT)
        recent, known = self._dense_fields(wide.gather(1, places))
        states = self.attention(self.lstm(torch.cat(recent, dim=-1))[0], known[0])
        short = attention_pool(states, query, known[0])
        numbers = torch.arange(context.shape[1], device=context.device)
        earlier = torch.where(numbers < lengths - self.short, context, ABSENT)
        pooled = [
            attention_pool(each, query, where)
            for each, where in zip(*self._dense_fields(earlier), strict=True)
        ]
        long = torch.tanh(self.summary(torch.cat(pooled, dim=1)))
        gate = torch.sigmoid(self.gate(torch.cat([query, short, long], dim=1)))
        return short + gate * (long - short)

    def _dense_fields(self, items: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Return the vectors [B, L, D] of each field of items [B, L], and where they are known."""
        vectors, known = [dense_rows(self.items.weight, items)], [items >= 0]
        for side, column in zip(self.sides, self.codes.T, strict=True):
            codes = torch.where(items >= 0, column[items.clamp(min=0)], ABSENT)
            assert isinstance(side, nn.Embedding)
            vectors.append(dense_rows(side.weight, codes))
            known.append(codes >= 0)
        return vectors, known

    def _query(self, context: Tensor, users: Tensor | None) -> Tensor:
        """Return the query of each user, [B, D], or one for all, [1, D]."""
        query = self.query[None]
        if self.user_features is None or self.profile is None:
            return query
        return torch.add(query, self.profile(known_features(self.user_features, users, context)))

    def _short(self, vectors: Tensor, places: Tensor, query: Tensor) -> Tensor:
        if not places.numel():
            return query.new_zeros(len(places), self.dimension)
        lengths = (places >= 0).sum(1)
        if self.training and self.dropout.p:
            # What falls at one place does not at another, even of the same item.
            vectors = self.dropout(vectors_at(vectors, places)).flatten(0, 1)
            places = apart(places)
        states = read_rows(self.lstm, vectors, places)
        return pool_attended(self.attention, states, lengths, query)

    def _pooled(self, fields: list[Field], places: Tensor, query: Tensor) -> Tensor:
        """Return what each field of the items before the session pools, side by side."""
        pooled = []
        for vectors, known in fields:
            own = places
            if known is not None:
                own = torch.where(pad(known, (0, 1))[places], places, ABSENT)
            if self.training and self.dropout.p:
                dropped = self.dropout(vectors_at(vectors, own))
                pooled.append(attention_pool(dropped, query, own >= 0))
            else:
                pooled.append(attend_rows(vectors, own, query))
        return _side_by_side(pooled)

    def _fields(self, items: Tensor) -> list[Field]:
        """Return the vectors [U, D] of each field of items [U], and where they are known."""
        nothing = self.query.new_zeros(self.dimension)
        own = gather_rows(self.items.weight, items, sparse=self.items.sparse)
        fields: list[Field] = [(own.to(nothing.dtype), None)]
        for side, column in zip(self.sides, self.codes.T, strict=True):
            assert isinstance(side, nn.Embedding)
            codes = column[items]
            vectors = context_vectors(side.weight, codes, nothing, sparse=side.sparse)
            fields.append((vectors, codes >= 0))
        return fields

    def extra_repr(self) -> str:
        """Return what ``print(encoder)`` shows."""
        return f"short={self.short}, num_heads={self.attention.num_heads}"


def _side_by_side(fields: list[Tensor]) -> Tensor:
    """Return torch's ``cat`` of rows, which copies even where there is one field only."""
    return fields[0] if len(fields) == 1 else torch.cat(fields, dim=-1)


def _check_codes(item_codes: Tensor | None, num_classes: int) -> Tensor:
    """Return the codes of the items as int64 [V, S], S = 0 where there are none."""
    if item_codes is None:
        return torch.empty(num_classes, 0, dtype=torch.int64)
    if check_tensor("item_codes", item_codes).dim() != 2 or len(item_codes) != num_classes:
        raise ValueError(
            f"item_codes must have shape [{num_classes}, S], got {list(item_codes.shape)}"
        )
    codes = as_int64("item_codes", item_codes)
    for column in codes.T:
        low, high = int(column.min()), int(column.max())
        if low < ABSENT or not 0 <= high < _MOST_CODES:
            raise ValueError(
                f"item_codes must lie between 0 and {_MOST_CODES - 1:,}, or be -1 where unknown, "
                f"and name some code in each column, got {low:,} to {high:,}"
            )
    return codes
