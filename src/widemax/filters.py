"""What items must have to be chosen: values of their features, as name=value or name=2..5."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from widemax.declarations.options import shortened, shown
from widemax.vocabulary.spelling import UnknownNameError, nearest_spellings

ColumnKind: TypeAlias = Literal["category", "number", "tokens"]
"""What a feature has of an item: one name, one number, or any number of names."""

Filters: TypeAlias = Mapping[str, Sequence[str | float]]
"""Of each feature that is named, the values of which an item must have one."""

RANGE = ".."
"""What stands between the ends of a range of numbers."""


def parse_filters(given: Sequence[str]) -> dict[str, list[str]]:
    """Return filters as they are typed, name=value, several of one feature as its values.

    >>> parse_filters(["category=tea", "price=2..5", "category=rum"])
    {'category': ['tea', 'rum'], 'price': ['2..5']}
    """
    found: dict[str, list[str]] = {}
    for name, value in parse_pairs("filter", given):
        found.setdefault(name, []).append(value)
    return found


def parse_pairs(flag: str, given: Sequence[str]) -> list[tuple[str, str]]:
    """Return texts name=value as pairs; one without a name or a value is an error."""
    pairs = []
    for each in given:
        name, equals, value = each.partition("=")
        if not (name and equals and value):
            raise ValueError(f"--{flag} must be name=value, got {shortened(repr(each))}")
        pairs.append((name, value))
    return pairs


def check_values(name: str, wanted: Sequence[str | float]) -> None:
    """Raise if a filter does not list values."""
    if not wanted or isinstance(wanted, str):
        raise ValueError(
            f"filters[{name!r}] must be a list of one value or more, got {shown(wanted)}"
        )


def range_of(name: str, value: str | float) -> tuple[float, float]:
    """Return the smallest and the largest number that a filter lets pass.

    >>> range_of("price", "2..5"), range_of("price", "..50"), range_of("price", 3)
    ((2.0, 5.0), (-inf, 50.0), (3.0, 3.0))
    """
    first, dots, last = str(value).partition(RANGE)
    try:
        least = float(first) if first else -math.inf
        most = (float(last) if last else math.inf) if dots else least
    except ValueError:
        least = most = math.nan
    if not least <= most or not str(value).strip("."):
        raise ValueError(
            f"filters[{name!r}] must hold numbers, or ranges such as 2{RANGE}5, got "
            f"{shortened(repr(value))}"
        )
    return least, most


def unknown_feature(name: str, known: Iterable[str]) -> UnknownNameError:
    """Return the error that a filter is on a feature that the items do not have."""
    there = list(known)
    return UnknownNameError(
        f"{shortened(repr(name))} is no feature of the items of the run: there are "
        f"{', '.join(map(repr, there)) or 'none'}",
        nearest_spellings(name, there),
    )
