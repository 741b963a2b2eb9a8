"""The features of items or users, encoded: one row for each key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor

from widemax.data.features.fields import FEATURE_KINDS, FeatureField, FittedField
from widemax.data.features.schema import FeatureSchema, column_of
from widemax.data.reading.columns import as_ids, listed
from widemax.data.reading.formats.atomic import AtomicType
from widemax.data.sequences import Sequences, offsets_of
from widemax.validation import check_ids
from widemax.vocabulary.keys import Keys, as_keys, first_row
from widemax.vocabulary.spelling import quoted

_KEY = "key"


@dataclass(frozen=True, eq=False, repr=False)
class FeatureTable:
    """The encoded features of N keys: of the classes of a vocabulary, or of users.

    A key without a row in the data has code 0 in every field, no number, and the token 0 alone; so
    has a row whose own tokens are all unknown.

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
    """The fields, and what their codes stand for."""
    keys: pl.Series
    """[N], whose features these are."""
    codes: Tensor
    """Int64 [N, C], a column for each categorical field."""
    numbers: Tensor
    """Float32 [N, M], a column for each numeric field, standardised, NaN where missing."""
    tokens: tuple[Sequences, ...]
    """For each field of tokens, N sequences of codes, none empty."""

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
        rows = _rows_of(frame, own, key_column)
        schema = FeatureSchema.fit(
            frame[rows.drop_nulls()],
            key_column=key_column,
            fields=fields,
            types=types,
            min_count=min_count,
        )
        return cls._encoded(schema, frame, own, rows)

    @classmethod
    def encode(
        cls, schema: FeatureSchema, frame: pl.DataFrame, keys: Keys, *, key_column: str
    ) -> FeatureTable:
        """Encode the rows of ``keys`` by a schema that is fitted already."""
        own = as_keys(keys)
        return cls._encoded(schema, frame, own, _rows_of(frame, own, key_column))

    @classmethod
    def _encoded(
        cls, schema: FeatureSchema, frame: pl.DataFrame, keys: pl.Series, rows: pl.Series
    ) -> FeatureTable:
        columns = (
            each.encode(column_of(frame, each.field).gather(rows).alias(each.field.name))
            for each in schema.fields
        )
        return cls._of_columns(schema, keys, columns)

    @classmethod
    def _of_columns(
        cls, schema: FeatureSchema, keys: pl.Series, columns: Iterable[Tensor | Sequences]
    ) -> FeatureTable:
        """Put together the encoded column of each field."""
        by_kind: dict[str, list[Any]] = {kind: [] for kind in FEATURE_KINDS}
        for each, column in zip(schema.fields, columns, strict=True):
            by_kind[each.field.kind].append(column)
        codes, numbers = by_kind["categorical"], by_kind["numeric"]
        return cls(
            schema,
            keys,
            torch.stack(codes, 1) if codes else torch.empty(len(keys), 0, dtype=torch.int64),
            torch.stack(numbers, 1) if numbers else torch.empty(len(keys), 0),
            tuple(by_kind["tokens"]),
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
        by_kind = {
            "categorical": map(_as_series, self.codes.unbind(1)),
            "numeric": map(_as_series, self.numbers.unbind(1)),
            "tokens": map(_as_lists, self.tokens),
        }
        columns = [next(by_kind[each.field.kind]) for each in self.schema.fields]
        names = self._stored_names(self.schema)
        return pl.DataFrame(dict(zip(names, [self.keys, *columns], strict=True)))

    @classmethod
    def from_frame(cls, schema: FeatureSchema, frame: pl.DataFrame) -> FeatureTable:
        """Return what ``to_frame`` wrote, for the schema it was written with."""
        names = cls._stored_names(schema)
        if frame.columns != names:
            raise ValueError(f"frame must have the columns {names}, got {frame.columns}")
        stored = zip(schema.fields, names[1:], strict=True)
        columns = (_stored(each, frame[name]) for each, name in stored)
        return cls._of_columns(schema, as_keys(frame[_KEY]), columns)

    @staticmethod
    def _stored_names(schema: FeatureSchema) -> list[str]:
        return [_KEY, *(f"field_{place}" for place in range(len(schema.fields)))]


def _rows_of(frame: pl.DataFrame, keys: pl.Series, key_column: str) -> pl.Series:
    """Return the row of each key in a frame, null where there is none."""
    if key_column not in frame.columns:
        raise ValueError(
            f"key_column must name a column, got {quoted(key_column)}: there are "
            f"{listed(frame.columns)}"
        )

    def fault(row: int, message: str) -> ValueError:
        return ValueError(f"key_column {quoted(key_column)}, row {row:,}: {message}")

    given = as_ids(frame[key_column], fault, from_text=False).cast(pl.String)
    twice = ~given.is_first_distinct()
    if twice.any():
        raise fault(first_row(twice), f"key {quoted(given[first_row(twice)])} stands there twice")
    rows = pl.int_range(len(given), eager=True, dtype=pl.Int64)
    sought = keys.cast(pl.String)
    found = sought.replace_strict(given, rows, default=None, return_dtype=pl.Int64)
    if not found.is_not_null().any():
        raise ValueError(
            f"key_column {quoted(key_column)} holds none of the {len(keys):,} keys"
            + (f", such as {quoted(keys[0])}" if len(keys) else "")
        )
    return found


def _as_series(column: Tensor) -> pl.Series:
    return pl.Series(column.numpy())


def _as_lists(lists: Sequences) -> pl.Series:
    rows = pl.Series("row", np.repeat(np.arange(len(lists)), lists.lengths.numpy()))
    flat = pl.DataFrame([rows, pl.Series("token", lists.values.numpy())])
    return flat.group_by("row", maintain_order=True).agg("token")["token"]


def _stored(each: FittedField, column: pl.Series) -> Tensor | Sequences:
    """Return a stored column if it is one of the field's kind."""
    wanted = {"categorical": pl.Int64(), "numeric": pl.Float32(), "tokens": pl.List(pl.Int64)}
    dtype, name = wanted[each.field.kind], quoted(each.field.name)
    if column.dtype != dtype or column.null_count():
        raise ValueError(
            f"the stored column of field {name} must be {dtype} without nulls, got {column.dtype}"
        )
    if each.field.kind != "tokens":
        return torch.from_numpy(column.to_numpy(writable=True))
    lengths = torch.from_numpy(column.list.len().cast(pl.Int64).to_numpy(writable=True))
    if bool((lengths == 0).any()):
        raise ValueError(f"the stored lists of field {name} must not be empty")
    values = column.explode(empty_as_null=False)
    if values.null_count():
        raise ValueError(f"the stored lists of field {name} must have no nulls")
    return Sequences(torch.from_numpy(values.to_numpy(writable=True)), offsets_of(lengths))


def _check_codes(each: FittedField, codes: Tensor) -> None:
    check_ids(f"codes of field {quoted(each.field.name)}", codes, each.num_codes)
