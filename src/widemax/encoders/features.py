"""Vectors of rows of features."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag, pad

from widemax.data.features.fields import FittedField
from widemax.data.features.schema import FeatureSchema
from widemax.data.features.table import FeatureTable
from widemax.data.sequences import offsets_of
from widemax.encoders.dense import dense_mean
from widemax.scoring.rows import gather_rows
from widemax.scoring.tower import RowFeatures
from widemax.validation import ABSENT, check_ids, check_tensor, check_whole

_MOST_UNITS = 2**16


class FeatureEncoder(RowFeatures):
    """A vector for each row of a ``FeatureTable``: its fields, encoded and set side by side.

    Formula: a categorical field gives the vector of its code; tokens the mean of the vectors of
    their codes; all numeric fields together N·(z, m) + b, z the standardised numbers with 0 for a
    missing one and m 1 where it is missing, 0 elsewhere. Code 0, the unknown, has a vector like any
    other, which starts at 0.

    Shapes: rows int64 [B] in −1 … ``num_rows`` − 1; −1 is a row of which nothing is known →
    [B, ``output_dimension``], which is ``dimension`` for each field of codes, and once more if
    there are numbers. The table is held as buffers that are no part of the state, for rows change
    and weights stay. With ``sparse`` gradients hold only the codes that were read.

    >>> import polars as pl
    >>> films = pl.DataFrame({"id": ["a", "b"], "year": [1990, 2000], "genre": ["War", "Opera"]})
    >>> encoder = FeatureEncoder(FeatureTable.fit(films, ["a", "b"], key_column="id"), dimension=4)
    >>> encoder(torch.tensor([1, -1])).shape, encoder.output_dimension
    (torch.Size([2, 8]), 8)
    """

    def __init__(self, table: FeatureTable, dimension: int = 16, *, sparse: bool = False) -> None:
        super().__init__()
        self.schema = table.schema
        self.dimension = check_whole("dimension", dimension, 1, _MOST_UNITS)
        self.sparse = sparse
        self.code_weights = _code_tables(self.schema.of_kind("categorical"), dimension)
        self.token_weights = _code_tables(self.schema.of_kind("tokens"), dimension)
        count = len(self.schema.of_kind("numeric"))
        self.number_layer = nn.Linear(2 * count, dimension) if count else None
        vectors = len(self.code_weights) + len(self.token_weights) + (count > 0)
        self.output_dimension = vectors * dimension
        self.set_table(table)

    def set_table(self, table: FeatureTable) -> None:
        """Read rows from another table from now on; its values must have the same codes."""
        self._check_table(table)
        self.num_rows = len(table)
        like = next(self.parameters())
        buffers = {
            # One row more, of which nothing is known: the one before the first.
            "codes": pad(table.codes, (0, 0, 0, 1)),
            "numbers": pad(table.numbers, (0, 0, 0, 1), value=torch.nan).to(like.dtype),
        }
        for place, lists in enumerate(table.tokens):
            buffers[f"tokens_{place}"] = pad(lists.values, (0, 1))
            buffers[f"offsets_{place}"] = torch.cat([lists.offsets, lists.offsets[-1:] + 1])
        for name, values in buffers.items():
            self.register_buffer(name, values.to(like.device), persistent=False)

    def grown(self, table: FeatureTable) -> FeatureEncoder:
        """Return an encoder of a table whose schema has ``grown``, with all that was learned.

        A value that is new starts from the vector of the unknown.
        """
        _check_grown(self.schema, table.schema)
        like = next(self.parameters())
        other = FeatureEncoder(table, self.dimension, sparse=self.sparse)
        other = other.to(like.device, like.dtype).train(self.training)
        with torch.no_grad():
            for old, new in (
                *zip(self.code_weights, other.code_weights, strict=True),
                *zip(self.token_weights, other.token_weights, strict=True),
            ):
                new[: len(old)] = old
                new[len(old) :] = old[0]
        if self.number_layer is not None and other.number_layer is not None:
            other.number_layer.load_state_dict(self.number_layer.state_dict())
        return other

    def forward(self, rows: Tensor) -> Tensor:
        """Return the vectors of some rows, [B, ``output_dimension``]."""
        if check_tensor("rows", rows).dim() != 1:
            raise ValueError(f"rows must have shape [B], got {list(rows.shape)}")
        rows = check_ids("rows", rows, self.num_rows, absent=True)
        rows = torch.where(rows < 0, self.num_rows, rows)
        lists = [self._tokens_of(place, rows) for place in range(len(self.token_weights))]
        return self._joined(self.get_buffer("codes")[rows], self.get_buffer("numbers")[rows], lists)

    def encode(self, table: FeatureTable) -> Tensor:
        """Return the vectors of all rows of another table, [N, ``output_dimension``]."""
        self._check_table(table)
        like = next(self.parameters())
        lists = [
            (each.values.to(like.device), each.offsets.to(like.device)) for each in table.tokens
        ]
        return self._joined(table.codes.to(like.device), table.numbers.to(like), lists)

    def dense(self, columns: Sequence[Tensor]) -> Tensor:
        """Return the vectors of columns, one for each field, [B, ``output_dimension``], to trace.

        A categorical field is codes int64 [B]; tokens are codes [B, T], those that are not above 0
        left out; numbers are as they come, float64 [B], NaN where missing.
        """
        codes, tokens, numbers = [], [], []
        for field, column in zip(self.schema.fields, columns, strict=True):
            if field.field.kind == "categorical":
                codes.append(column)
            elif field.field.kind == "tokens":
                tokens.append(torch.where(column > 0, column, ABSENT))
            else:
                numbers.append((column - field.mean) / field.deviation)
        parts = [weight[each] for weight, each in zip(self.code_weights, codes, strict=True)]
        for weight, each in zip(self.token_weights, tokens, strict=True):
            known = (each >= 0).any(1, keepdim=True)
            parts.append(torch.where(known, dense_mean(weight, each), weight[0]))
        if self.number_layer is not None:
            given = torch.stack(numbers, dim=1).to(self.number_layer.weight.dtype)
            missing = given.isnan()
            known = torch.where(missing, 0.0, given)
            parts.append(self.number_layer(torch.cat([known, missing.to(known.dtype)], dim=1)))
        return torch.cat(parts, dim=1)

    def _joined(self, codes: Tensor, numbers: Tensor, lists: list[tuple[Tensor, Tensor]]) -> Tensor:
        parts = [
            gather_rows(weight, column, sparse=self.sparse)
            for weight, column in zip(self.code_weights, codes.unbind(1), strict=True)
        ]
        parts += [
            embedding_bag(values, weight, offsets[:-1], mode="mean", sparse=self.sparse)
            for weight, (values, offsets) in zip(self.token_weights, lists, strict=True)
        ]
        if self.number_layer is not None:
            missing = numbers.isnan()
            known = numbers.masked_fill(missing, 0.0)
            parts.append(self.number_layer(torch.cat([known, missing.to(known.dtype)], dim=1)))
        return torch.cat(parts, dim=1)

    def _tokens_of(self, place: int, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the tokens of some rows end to end, and where those of each begin, [B + 1]."""
        values, offsets = self.get_buffer(f"tokens_{place}"), self.get_buffer(f"offsets_{place}")
        first, lengths = offsets[rows], offsets[rows + 1] - offsets[rows]
        starts = offsets_of(lengths)
        moved = (first - starts[:-1]).repeat_interleave(lengths)
        places = torch.arange(len(moved), device=rows.device) + moved
        return values[places], starts

    def _check_table(self, table: FeatureTable) -> None:
        if not isinstance(table, FeatureTable):
            raise ValueError(f"table must be a FeatureTable, got {type(table).__name__}")
        if not self.schema.same_codes(table.schema):
            raise ValueError(
                f"table must have the fields and codes of {self.schema!r}, got {table.schema!r}; "
                "encode it by that schema, or let the encoder grow"
            )

    def extra_repr(self) -> str:
        """Return what ``print(encoder)`` shows."""
        return (
            f"{self.schema!r}, num_rows={self.num_rows}, dimension={self.dimension}, "
            f"sparse={self.sparse}"
        )


def _code_tables(fields: list[FittedField], dimension: int) -> nn.ParameterList:
    tables = nn.ParameterList(torch.empty(each.num_codes, dimension) for each in fields)
    for table in tables:
        nn.init.normal_(table, std=dimension**-0.5)
        with torch.no_grad():
            table[0] = 0.0
    return tables


def _check_grown(old: FeatureSchema, new: FeatureSchema) -> None:
    if old.names != new.names:
        raise ValueError(f"table must have the fields {old.names}, got {new.names}")
    for before, after in zip(old.fields, new.fields, strict=True):
        if before.values is not None and after.values is not None:
            kept = after.values.keys.head(len(before.values)).equals(before.values.keys)
        else:
            kept = before.same_codes(after)
        if not kept or before.field != after.field:
            raise ValueError(
                f"field {before.field.name!r} must keep its codes, as FeatureSchema.grown does"
            )
