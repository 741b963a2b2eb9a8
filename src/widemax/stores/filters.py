"""Conditions on what is known of items, such as price<50, for searches in a database."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from widemax.vocabulary.spelling import quoted

_FORM = re.compile(r"\s*([^<>=!]+?)\s*(<=|>=|!=|=|<|>)\s*(.*?)\s*", re.DOTALL)
# By the language of paths in JSON: values of two types are neither equal nor in an order.
_PATHS = {
    "=": "$ ? (@ == $number || @ == $text)",
    "!=": "$ ? (@ == $number || @ == $text)",
    **{sign: f"$ ? (@ {sign} $number || @ {sign} $text)" for sign in ("<", "<=", ">", ">=")},
}


@dataclass(frozen=True)
class Filter:
    """A condition on one column of what a run shows of its items.

    >>> Filter.parse("price <= 9.50")
    Filter(column='price', sign='<=', value='9.50')
    """

    column: str
    """What it is about."""
    sign: str
    """=, !=, <, <=, > or >=."""
    value: str
    """What the column is compared with: as a number where both are, else as a text."""

    def __post_init__(self) -> None:
        if self.sign not in _PATHS:
            raise ValueError(f"sign must be one of {' '.join(_PATHS)}, got {quoted(self.sign)}")

    @classmethod
    def parse(cls, text: str) -> Filter:
        """Take a condition apart.

        >>> Filter.parse("cheap")
        Traceback (most recent call last):
        ValueError: a filter must be a column, one of = != < <= > >= and a value, got 'cheap'
        """
        found = _FORM.fullmatch(text)
        if found is None:
            raise ValueError(
                f"a filter must be a column, one of = != < <= > >= and a value, got {quoted(text)}"
            )
        return cls(*found.groups())

    def condition(self) -> tuple[str, list[Any]]:
        """Return the condition of SQL on a column ``features``, and the values for its places.

        An item of which the column is not known does not meet it.
        """
        negated = "not " if self.sign == "!=" else ""
        texts = {"number": _number(self.value), "text": self.value}
        path = "jsonb_path_exists(features -> %s::text, %s::jsonpath, %s::jsonb)"
        return negated + path, [self.column, _PATHS[self.sign], json.dumps(texts)]


def check_filters(filters: Sequence[Filter], columns: Sequence[str]) -> None:
    """Raise if a filter is on a column that is not there."""
    for each in filters:
        if each.column not in columns:
            there = ", ".join(map(quoted, columns)) or "none"
            raise ValueError(f"a filter is on {quoted(each.column)}: the columns are {there}")


def _number(text: str) -> float | str:
    """Return the number that a text is, else the text."""
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text
