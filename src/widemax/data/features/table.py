"""The features of items or users, encoded: one row for each key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import torch
from torch import Tensor

from widemax.data.features.encoding import encode_codes, encode_numbers, encode_tokens, rows_of
from widemax.data.features.fields import FeatureField, FittedField
from widemax.data.features.schema import FeatureSchema, column_of
from widemax.data.reading.tables import AtomicType
from widemax.data.sequences import Sequences, offsets_of
from widemax.validation import check_ids
from widemax.vocabulary.keys import Keys, as_keys, quoted

_KEY = "key"


@dataclass(frozen=True, eq=False, repr=False)
class FeatureTable:
    """The encoded features of N keys: of the classes of a vocabulary, or of users.

    Formula: see ``FeatureSchema``. A key without a row in the data has code 0 in every field, no
    number, and the token 0 alone; so has a row whose own tokens are all unknown.

    Shapes: ``keys`` [N]; ``codes`` int64 [N, C], a column for each categorical field; ``numbers``
    float32 [N, M], standardised, NaN where missing; ``tokens`` holds N sequences of codes, none
    empty, for each field of tokens.

    Cost: O(cells) to make; 8 bytes a code or token, 4 a number.

    Reference: none.

    Use when: classes or users have features beside their key. Avoid when: they have none.

    >>> films = pl.DataFrame({
    ...     "id": ["a", "b", "c"],
    ...     "year": [1990, 2000, None],
    ...     "genre": ["War|Drama", "War", "Opera"],
    ... })
    >>> table = FeatureTable.fit(films, ["b", "a", "z"], key_column="id")
    >>> table
    FeatureTable(3 rows, year: numeric, genre: tokens)
    >>> table.numbers.tolist(), table.tokens[0].values.tolist()
    ([[1.0], [-1.0], [nan]], [1, 1, 2, 0])
    """

    schema: FeatureSchema
    keys: pl.Series
    codes: Tensor
    numbers: Tensor
    tokens: tuple[Sequences, ...]

    def __post_init__(self) -> None:
        rows = len(self.keys)
        for name, values, kind in (
            ("codes", self.codes, self.schema.of_kind("categorical")),
            ("numbers", self.numbers, self.schema.of_kind("numeric")),
        ):
            if values.shape != (rows, len(kind)):
                raise ValueError(
                    f"{name} must be [{rows:,}, {len(kind)}], one row a key and one column a "
                    f"field, got {list(values.shape)}"
                )
        if bool(self.numbers.isinf().any()):
            raise ValueError("numbers must be finite, or NaN where they are missing")
        for column, each in enumerate(self.schema.of_kind("categorical")):
            _check_codes(each, self.codes[:, column])
        if len(self.tokens) != len(self.schema.of_kind("tokens")):
            raise ValueError(f"tokens must hold one entry a field, got {len(self.tokens)}")
        for each, lists in zip(self.schema.of_kind("tokens"), self.tokens, strict=True):
            _check_codes(each, lists.values)
            if len(lists) != rows or bool((lists.lengths == 0).any()):
                raise ValueError(
                    f"tokens of field {quoted(each.field.name)} must be {rows:,} lists, none empty"
                )

    @classmethod
    def fit(
        cls,
        frame: pl.DataFrame,
        keys: Keys,
        *,
        key_column: str,
        fields: Sequence[FeatureField] | None = None,
        types: Mapping[str, AtomicType] | None = None,
        min_count: int = 1,
    ) -> FeatureTable:
        """Learn a schema from the rows of ``keys``, and encode them.

        Rows of other keys are not looked at: what a model never trains on should stay unknown. Keys
        are matched as they are written, a 7 with a "7".
        """
        own = as_keys(keys)
        places = rows_of(frame, own, key_column)
        schema = FeatureSchema.fit(
            frame[places.drop_nulls()],
            key_column=key_column,
            fields=fields,
            types=types,
            min_count=min_count,
        )
        return cls._encoded(schema, frame, places, own)

    @classmethod
    def encode(
        cls, schema: FeatureSchema, frame: pl.DataFrame, keys: Keys, *, key_column: str
    ) -> FeatureTable:
        """Encode the rows of ``keys`` by a schema that is fitted already."""
        own = as_keys(keys)
        return cls._encoded(schema, frame, rows_of(frame, own, key_column), own)

    @classmethod
    def _encoded(
        cls, schema: FeatureSchema, frame: pl.DataFrame, places: pl.Series, keys: pl.Series
    ) -> FeatureTable:
        def column(each: FittedField) -> pl.Series:
            return column_of(frame, each.field).gather(places).alias(each.field.name)

        codes = [encode_codes(each, column(each)) for each in schema.of_kind("categorical")]
        numbers = [encode_numbers(each, column(each)) for each in schema.of_kind("numeric")]
        tokens = (encode_tokens(each, column(each)) for each in schema.of_kind("tokens"))
        return cls(
            schema,
            keys,
            torch.stack(codes, 1) if codes else torch.empty(len(keys), 0, dtype=torch.int64),
            torch.stack(numbers, 1) if numbers else torch.empty(len(keys), 0),
            tuple(tokens),
        )

    def __len__(self) -> int:
        return len(self.keys)

    def __repr__(self) -> str:
        return repr(self.schema).replace("FeatureSchema(", f"FeatureTable({len(self):,} rows, ")

    @property
    def known(self) -> Tensor:
        """Which rows have a known value in any field, bool [N]."""
        known = (self.codes > 0).any(1) | ~self.numbers.isnan().all(1)
        for lists in self.tokens:
            known |= lists.values[lists.offsets[:-1]] > 0
        return known

    def describe(self) -> str:
        """Return what the columns are, and how many of the keys have features."""
        known = int(self.known.sum())
        return f"{known:,} of {len(self):,} keys have features\n{self.schema.describe()}"

    def to_frame(self) -> pl.DataFrame:
        """Return the encoded columns, to be stored beside ``schema.to_dict()``."""
        columns = [self.keys.alias(_KEY)]
        codes, numbers = iter(self.codes.unbind(1)), iter(self.numbers.unbind(1))
        tokens = iter(self.tokens)
        for place, each in enumerate(self.schema.fields):
            if each.field.kind == "tokens":
                column = _as_lists(next(tokens))
            else:
                column = pl.Series(
                    next(codes if each.field.kind == "categorical" else numbers).numpy()
                )
            columns.append(column.alias(_stored_name(place)))
        return pl.DataFrame(columns)

    @classmethod
    def from_frame(cls, schema: FeatureSchema, frame: pl.DataFrame) -> FeatureTable:
        """Return what ``to_frame`` wrote, for the schema it was written with."""
        wanted = [_KEY, *map(_stored_name, range(len(schema.fields)))]
        if frame.columns != wanted:
            raise ValueError(f"frame must have the columns {wanted}, got {frame.columns}")
        codes: list[Tensor] = []
        numbers: list[Tensor] = []
        tokens: list[Sequences] = []
        for place, each in enumerate(schema.fields):
            column = frame[_stored_name(place)]
            if each.field.kind == "categorical":
                codes.append(_stored(each, column, pl.Int64()))
            elif each.field.kind == "numeric":
                numbers.append(_stored(each, column, pl.Float32()))
            else:
                tokens.append(_stored_lists(each, column))
        rows = frame.height
        return cls(
            schema,
            as_keys(frame[_KEY]),
            torch.stack(codes, 1) if codes else torch.empty(rows, 0, dtype=torch.int64),
            torch.stack(numbers, 1) if numbers else torch.empty(rows, 0),
            tuple(tokens),
        )


def _stored_name(place: int) -> str:
    return f"field_{place}"


def _as_lists(lists: Sequences) -> pl.Series:
    rows = pl.Series("row", np.repeat(np.arange(len(lists)), lists.lengths.numpy()))
    flat = pl.DataFrame([rows, pl.Series("token", lists.values.numpy())])
    return flat.group_by("row", maintain_order=True).agg("token")["token"]


def _stored(each: FittedField, column: pl.Series, dtype: pl.DataType) -> Tensor:
    if column.dtype != dtype or column.null_count():
        raise ValueError(
            f"the stored column of field {quoted(each.field.name)} must be {dtype} without nulls, "
            f"got {column.dtype}"
        )
    return torch.from_numpy(column.to_numpy().copy())


def _stored_lists(each: FittedField, column: pl.Series) -> Sequences:
    if column.dtype != pl.List(pl.Int64) or column.null_count():
        raise ValueError(
            f"the stored column of field {quoted(each.field.name)} must be lists of Int64 without "
            f"nulls, got {column.dtype}"
        )
    lengths = torch.from_numpy(column.list.len().cast(pl.Int64).to_numpy().copy())
    if bool((lengths == 0).any()):
        raise ValueError(f"the stored lists of field {quoted(each.field.name)} must not be empty")
    values = column.explode() if len(column) else pl.Series([], dtype=pl.Int64)
    return Sequences(_stored(each, values, pl.Int64()), offsets_of(lengths))


def _check_codes(each: FittedField, codes: Tensor) -> None:
    check_ids(f"codes of field {quoted(each.field.name)}", codes, each.num_codes)
