"""One column of features: what it is declared to be, what it was found to hold, and its codes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import polars as pl
import torch
from torch import Tensor

from widemax.data.features.cells import BLANK, as_numbers, as_texts, as_tokens
from widemax.data.sequences import Sequences, offsets_of
from widemax.validation import check_positive
from widemax.vocabulary import Vocabulary
from widemax.vocabulary.spelling import quoted

FeatureKind: TypeAlias = Literal["categorical", "numeric", "tokens"]

FEATURE_KINDS: tuple[str, ...] = get_args(FeatureKind)
"""What a column of features may be."""

_LONGEST_NAME = 1024


@dataclass(frozen=True)
class FeatureField:
    """A column of features and how it is read.

    >>> FeatureField("genres", "tokens", separator="|")
    FeatureField(name='genres', kind='tokens', separator='|')
    """

    name: str
    """The name of the column."""
    kind: FeatureKind
    """Whether a row holds one name, one number (or a date, in days), or any number of names."""
    separator: str = BLANK
    """Where a text is cut into tokens; " " is all white space."""

    def __post_init__(self) -> None:
        _check_text("name", self.name)
        _check_text("separator", self.separator)
        if self.kind not in FEATURE_KINDS:
            raise ValueError(
                f"kind of field {quoted(self.name)} must be one of {', '.join(FEATURE_KINDS)}, "
                f"got {quoted(self.kind)}"
            )


@dataclass(frozen=True, eq=False)
class FittedField:
    """A column of features with the values it was found to hold.

    >>> brands = pl.Series(["ale", "rum", "rum", None])
    >>> fitted = FittedField.fit(FeatureField("brand", "categorical"), brands)
    >>> fitted.num_codes, fitted.values.decode([0]), fitted.encode(brands).tolist()
    (3, ['rum'], [2, 1, 1, 0])
    """

    field: FeatureField
    """How the column is read."""
    values: Vocabulary | None = None
    """Its texts: value i has code i + 1, a missing or unknown one code 0; None if it is numeric."""
    mean: float = 0.0
    """A number x is encoded as (x − mean) / deviation."""
    deviation: float = 1.0
    """The standard deviation of the numbers, 1 if they are all the same."""

    def __post_init__(self) -> None:
        name = quoted(self.field.name)
        if (self.values is None) != (self.field.kind == "numeric"):
            raise ValueError(f"values of field {name} must be given unless it is numeric")
        if self.values is not None and self.values.keys.dtype != pl.String:
            raise ValueError(f"values of field {name} must be texts")
        if not _is_finite(self.mean):
            raise ValueError(f"mean of field {name} must be a finite number, got {self.mean!r}")
        check_positive(f"deviation of field {name}", self.deviation)

    @classmethod
    def fit(cls, field: FeatureField, column: pl.Series, *, min_count: int = 1) -> FittedField:
        """Learn the values of a column, those seen ``min_count`` times, or its mean and spread."""
        numeric = field.kind == "numeric"
        found = as_numbers(column).drop_nulls() if numeric else _names(field, column)
        if found.is_empty():
            raise ValueError(f"field {quoted(field.name)} has no value in any row")
        if not numeric:
            return cls(field, Vocabulary.count(found, min_count=min_count))
        numbers = found.to_numpy()
        # At most 1 before they are summed and squared, so that no finite numbers overflow.
        largest = float(abs(numbers).max()) or 1.0
        scaled = numbers / largest
        spread = float(scaled.std()) * largest
        return cls(field, None, float(scaled.mean()) * largest, spread if spread > 0 else 1.0)

    @property
    def num_codes(self) -> int:
        """How many codes there are, with that of the unknown; 0 of a numeric field."""
        return 0 if self.values is None else len(self.values) + 1

    def encode(self, column: pl.Series) -> Tensor | Sequences:
        """Return what a table of features holds of a column of N rows.

        Of names their codes, int64 [N]; of numbers the standardised ones, float32 [N], NaN where
        one is missing; of tokens N sequences of the codes that are known, or of 0 alone.
        """
        if self.values is None:
            return self._standardised(as_numbers(column).to_numpy())  # null is NaN there
        if self.field.kind == "categorical":
            texts = as_texts(column)
            known = texts.is_not_null()
            codes = torch.zeros(len(texts), dtype=torch.int64)
            # Vocabularies mark what they do not know by -1, and code 0 is the unknown.
            found_codes = self.values.encode(texts.filter(known), missing="mark") + 1
            codes[torch.tensor(known.to_numpy())] = found_codes
            return codes
        found = as_tokens(column, self.field.separator)
        codes = self.values.encode(found["token"], missing="mark") + 1
        rows = found["row"].to_torch()[codes > 0]
        lengths = torch.bincount(rows, minlength=len(column))
        empty = (lengths == 0).nonzero()[:, 0]
        order = torch.cat([rows, empty]).argsort(stable=True)
        tokens = torch.cat([codes[codes > 0], torch.zeros_like(empty)])[order]
        return Sequences(tokens, offsets_of(lengths.clamp(min=1)))

    def _standardised(self, numbers: np.ndarray[Any, Any]) -> Tensor:
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = ((numbers - self.mean) / self.deviation).astype(np.float32)
        lost = ~np.isnan(numbers) & ~np.isfinite(scaled)
        if lost.any():
            row = int(lost.argmax())
            raise ValueError(
                f"field {quoted(self.field.name)}, row {row:,}: {numbers[row]:g} is too far from "
                f"the mean {self.mean:g} (deviation {self.deviation:g})"
            )
        return torch.from_numpy(scaled)

    def grown(self, column: pl.Series, *, min_count: int = 1) -> FittedField:
        """Add values that a column holds: old ones keep their codes, and numbers their scale."""
        if self.values is None:
            return self
        return FittedField(
            self.field, self.values.grow(_names(self.field, column), min_count=min_count)
        )

    def same_codes(self, other: FittedField) -> bool:
        """Whether both read every value alike."""
        if self.field != other.field or self.num_codes != other.num_codes:
            return False
        if self.values is None or other.values is None:
            return (self.mean, self.deviation) == (other.mean, other.deviation)
        return self.values.keys.equals(other.values.keys)

    def describe(self) -> str:
        """Return what was found, in a few words."""
        if self.values is None:
            return f"mean {self.mean:.4g}, deviation {self.deviation:.4g}"
        first = ", ".join(quoted(key) for key in self.values.keys.head(3))
        more = ", …" if len(self.values) > 3 else ""
        cut = "" if self.field.separator == BLANK else f", cut at {quoted(self.field.separator)}"
        return f"{len(self.values):,} values ({first}{more}){cut}"

    def to_dict(self) -> dict[str, Any]:
        """Return all of it in what JSON can hold."""
        known: dict[str, Any] = {"name": self.field.name, "kind": self.field.kind}
        if self.values is None:
            return {**known, "mean": self.mean, "deviation": self.deviation}
        known["separator"] = self.field.separator
        known["values"] = self.values.keys.to_list()
        known["counts"] = self.values.counts.tolist()
        return known

    @classmethod
    def from_dict(cls, given: object) -> FittedField:
        """Return what ``to_dict`` wrote; anything else is a ValueError."""
        if not isinstance(given, Mapping):
            raise ValueError(f"a field must be a table of entries, got {type(given).__name__}")
        numeric = given.get("kind") == "numeric"
        wanted = ["mean", "deviation"] if numeric else ["separator", "values", "counts"]
        wanted = ["name", "kind", *wanted]
        if set(given) != set(wanted):
            raise ValueError(
                f"field {quoted(given.get('name'))} must have the entries {', '.join(wanted)}, "
                f"got {', '.join(map(quoted, given))}"
            )
        if numeric:
            field = FeatureField(given["name"], given["kind"])
            return cls(field, None, _number(given, "mean"), _number(given, "deviation"))
        field = FeatureField(given["name"], given["kind"], given["separator"])
        return cls(field, _stored_values(given))


def _names(field: FeatureField, column: pl.Series) -> pl.Series:
    """Return all names in a column, one below the other."""
    if field.kind == "tokens":
        return as_tokens(column, field.separator)["token"]
    return as_texts(column).drop_nulls()


def _stored_values(given: Mapping[str, Any]) -> Vocabulary:
    name, values, counts = quoted(given["name"]), given["values"], given["counts"]
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"values of field {name} must be a list of texts")
    if not isinstance(counts, list) or not all(type(count) is int for count in counts):
        raise ValueError(f"counts of field {name} must be a list of whole numbers")
    if not values or len(values) != len(counts):
        raise ValueError(
            f"values and counts of field {name} must be equally many and not none, got "
            f"{len(values):,} and {len(counts):,}"
        )
    try:
        schema = {"key": pl.String(), "count": pl.Int64()}
        return Vocabulary(pl.DataFrame({"key": values, "count": counts}, schema=schema))
    except (ValueError, TypeError, OverflowError, pl.exceptions.PolarsError) as error:
        raise ValueError(f"values of field {name} cannot be read: {error}") from error


def _number(given: Mapping[str, Any], name: str) -> float:
    value = given[name]
    if type(value) not in (int, float) or not _is_finite(value):
        raise ValueError(
            f"{name} of field {quoted(given['name'])} must be a finite number, got {quoted(value)}"
        )
    return float(value)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except (OverflowError, TypeError):  # a whole number beyond all floats, or no number
        return False


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str) or not 1 <= len(value) <= _LONGEST_NAME:
        raise ValueError(
            f"{name} must be a text of 1 to {_LONGEST_NAME:,} letters, got {quoted(value)[:80]}"
        )
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} is no valid Unicode: {error}") from None
