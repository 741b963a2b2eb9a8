"""Filters as conditions of SQL on what a table holds of items."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from widemax.filters import ColumnKind, Filters, check_values, range_of, unknown_feature


def conditions_of(
    filters: Filters, columns: Mapping[str, ColumnKind]
) -> list[tuple[str, list[Any]]]:
    """Return a condition on the column ``features`` for each filter, and the values of its places.

    Names and values are never part of the text. What is not known of an item meets no condition.

    >>> conditions_of({"price": ["2..5"]}, {"price": "number"})[0][1]
    ['price', 2.0, 'price', 5.0]
    """
    for name in filters:
        if name not in columns:
            raise unknown_feature(name, columns)
        check_values(name, filters[name])
    return [_condition(name, columns[name], values) for name, values in filters.items()]


def _condition(name: str, kind: ColumnKind, values: Any) -> tuple[str, list[Any]]:
    if kind == "number":
        number = "(features ->> %s::text)::float8"
        within = f"{number} >= %s::float8 and {number} <= %s::float8"
        places: list[Any] = []
        for each in values:
            least, most = range_of(name, each)
            places += [name, least, name, most]
        return f"({' or '.join([f'({within})'] * len(values))})", places
    texts = [str(each) for each in values]
    if kind == "tokens":
        return "(features -> %s::text) ?| %s::text[]", [name, texts]
    return "(features ->> %s::text) = any(%s::text[])", [name, texts]
