"""All columns of features that a model reads, fitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from widemax.data.features.fields import FeatureField, FeatureKind, FittedField
from widemax.data.features.inference import infer_fields
from widemax.data.reading.columns import listed
from widemax.data.reading.formats.atomic import AtomicType
from widemax.vocabulary.spelling import quoted

FORMAT_VERSION = 1

_ENTRIES = ("version", "fields", "reasons")


@dataclass(frozen=True, eq=False, repr=False)
class FeatureSchema:
    """The fields of a table of features, and the code or scale of every value.

    By it, values that come later are read as they were in training.

    >>> frame = pl.DataFrame({"brand": ["ale", "rum", "rum"], "price": [1.0, 2.0, 3.0]})
    >>> schema = FeatureSchema.fit(frame)
    >>> print(schema.describe())
    brand  categorical  2 values ('rum', 'ale')  2 different texts in 3 rows
    price  numeric  mean 2, deviation 0.8165  numbers
    >>> FeatureSchema.from_dict(schema.to_dict()).same_codes(schema)
    True
    """

    fields: tuple[FittedField, ...]
    """In the order of their columns."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Of each column that was looked at, why it became what it is."""

    def __post_init__(self) -> None:
        if not self.fields:
            raise ValueError("there are no fields: a table of features needs at least one")
        for place, name in enumerate(names := self.names):
            if name in names[:place]:
                raise ValueError(f"field {quoted(name)} stands there twice")

    @classmethod
    def fit(
        cls,
        frame: pl.DataFrame,
        *,
        key_column: str = "",
        fields: Sequence[FeatureField] | None = None,
        types: Mapping[str, AtomicType] | None = None,
        min_count: int = 1,
    ) -> FeatureSchema:
        """Learn the values of the given fields, or of all that ``infer_fields`` finds.

        A value seen less often than ``min_count`` is unknown. A field that then knows none is left
        out if it was found, and an error if it was given.
        """
        if fields is not None:
            fitted = [
                FittedField.fit(each, column_of(frame, each), min_count=min_count)
                for each in fields
            ]
            return cls(tuple(fitted), {each.name: "declared" for each in fields})
        inferred = infer_fields(frame, key_column=key_column, types=types)
        found, reasons = [], dict(inferred.reasons)
        for each in inferred.fields:
            try:
                found.append(FittedField.fit(each, frame[each.name], min_count=min_count))
            except ValueError as error:
                reasons[each.name] = f"left out: {error}"
        if not found:
            raise ValueError(
                "no column can be read as a feature: "
                + "; ".join(f"{quoted(name)} {reason}" for name, reason in reasons.items())
            )
        return cls(tuple(found), reasons)

    @property
    def names(self) -> list[str]:
        """The names of the fields."""
        return [each.field.name for each in self.fields]

    def of_kind(self, kind: FeatureKind) -> list[FittedField]:
        """Return the fields of one kind, in their order."""
        return [each for each in self.fields if each.field.kind == kind]

    def grown(self, frame: pl.DataFrame, *, min_count: int = 1) -> FeatureSchema:
        """Add the values of newer data: old codes stay, new ones come after them.

        The scale of numbers stays too: what was learned belongs to it.

        >>> schema = FeatureSchema.fit(pl.DataFrame({"brand": ["ale", "rum", "rum"]}))
        >>> schema.grown(pl.DataFrame({"brand": ["gin"]})).fields[0].values.keys.to_list()
        ['rum', 'ale', 'gin']
        """
        fields = tuple(
            each.grown(frame[each.field.name], min_count=min_count)
            if each.field.name in frame.columns
            else each
            for each in self.fields
        )
        return FeatureSchema(fields, self.reasons)

    def same_codes(self, other: FeatureSchema) -> bool:
        """Whether both read every table alike."""
        return len(self.fields) == len(other.fields) and all(
            own.same_codes(others) for own, others in zip(self.fields, other.fields, strict=True)
        )

    def describe(self) -> str:
        """Return a line for each column: its name, its kind, what it holds, and why."""
        found = {each.field.name: f"{each.field.kind}  {each.describe()}" for each in self.fields}
        names = dict.fromkeys([*self.reasons, *found])
        lines = ((name, found.get(name), self.reasons.get(name)) for name in names)
        return "\n".join("  ".join(part for part in line if part) for line in lines)

    def __repr__(self) -> str:
        kinds = ", ".join(f"{each.field.name}: {each.field.kind}" for each in self.fields)
        return f"FeatureSchema({kinds})"

    def to_dict(self) -> dict[str, Any]:
        """Return all of it in what JSON can hold."""
        fields = [each.to_dict() for each in self.fields]
        return {"version": FORMAT_VERSION, "fields": fields, "reasons": dict(self.reasons)}

    @classmethod
    def from_dict(cls, given: object) -> FeatureSchema:
        """Return what ``to_dict`` wrote; anything else is a ValueError."""
        if not isinstance(given, Mapping) or set(given) != set(_ENTRIES):
            raise ValueError(f"a schema must have the entries {', '.join(_ENTRIES)}")
        version, fields, reasons = (given[entry] for entry in _ENTRIES)
        if type(version) is not int or version != FORMAT_VERSION:
            raise ValueError(f"version of a schema must be {FORMAT_VERSION}, got {quoted(version)}")
        if not isinstance(fields, list):
            raise ValueError(f"fields must be a list, got {type(fields).__name__}")
        if not isinstance(reasons, Mapping) or not all(
            isinstance(each, str) for each in (*reasons, *reasons.values())
        ):
            raise ValueError("reasons must be a table of texts")
        return cls(tuple(FittedField.from_dict(each) for each in fields), dict(reasons))


def column_of(frame: pl.DataFrame, field: FeatureField) -> pl.Series:
    """Return the column of a field, which must be there."""
    if field.name not in frame.columns:
        raise ValueError(
            f"there is no column {quoted(field.name)}: there are {listed(frame.columns)}"
        )
    return frame[field.name]
