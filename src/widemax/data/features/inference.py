"""What the columns of a table of features are, inferred from their content."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple, cast

import polars as pl

from widemax.data.features.cells import (
    BLANK,
    are_dates,
    are_numbers,
    as_numbers,
    as_texts,
    as_tokens,
    is_list,
    is_readable,
)
from widemax.data.features.fields import FeatureField, FeatureKind
from widemax.data.reading.formats.atomic import AtomicType

_ATOMIC_KINDS: dict[str, FeatureKind] = {
    "token": "categorical",
    "float": "numeric",
    "token_seq": "tokens",
}
_BAR = "|"
# Fewer rows say nothing about whether a value ever comes back.
_LEAST_ROWS_FOR_IDS = 20
_LEAST_SHARE_WITH_BAR = 0.05
_LEAST_WORDS = 1.5
_NAMED_ID = re.compile(r"(?i:(^|[_\W])id)$|[a-z]I[dD]$")


class Inferred(NamedTuple):
    """What ``infer_fields`` found."""

    fields: tuple[FeatureField, ...]
    """The columns that are features."""
    reasons: dict[str, str]
    """Why each column is a field or is none."""


class _Guess(NamedTuple):
    kind: FeatureKind | None  # None: the column is left out
    reason: str
    separator: str = BLANK


_AN_ID = _Guess(None, "an id: no value comes back")
_NO_VALUE = _Guess(None, "no value")
_FRACTIONS = _Guess(None, "lists of fractions: give each place a column of its own")
_DATES = _Guess("numeric", "dates, in days")


def infer_fields(
    frame: pl.DataFrame,
    *,
    key_column: str = "",
    types: Mapping[str, AtomicType] | None = None,
) -> Inferred:
    """Infer the kind of each column from its values.

    The first of these that is true of the values that are there:
    none, or one in every row: left out; ``types``, those of RecBole's atomic files, names a type:
    "token" is categorical, "float" numeric, "token_seq" tokens; lists: tokens, of fractions left
    out; numbers: numeric, but left out as ids if all differ and count rows (or the column's name
    ends in "id"), and categorical if such a name has values that come back; dates: numeric; a "|"
    in one text of twenty: tokens, cut there; fewer different words than different texts, or
    several words a text and texts that mostly differ: tokens of words; single words that all
    differ: left out as ids; else categorical. Fewer than 20 rows are never taken for ids.

    >>> films = pl.DataFrame({"genres": ["War|Drama", "War"], "year": [1994, 2001], "lang": "en"})
    >>> inferred = infer_fields(films)
    >>> [(field.name, field.kind) for field in inferred.fields], inferred.reasons["lang"]
    ([('genres', 'tokens'), ('year', 'numeric')], 'left out: the same value in every row')
    """
    fields, reasons = [], {}
    for column in frame:
        if column.name == key_column:
            continue
        guess = _guess(column, (types or {}).get(column.name))
        reasons[column.name] = guess.reason if guess.kind else f"left out: {guess.reason}"
        if guess.kind is not None:
            fields.append(FeatureField(column.name, guess.kind, guess.separator))
    return Inferred(tuple(fields), reasons)


def _guess(column: pl.Series, atomic: str | None) -> _Guess:
    if not is_readable(column):
        return _Guess(None, f"{column.dtype} is not read")
    if is_list(column):
        return _guess_lists(column, atomic)
    texts = as_texts(column)
    known = texts.drop_nulls()
    if known.is_empty():
        return _NO_VALUE
    if known.n_unique() == 1 and not texts.null_count():
        return _Guess(None, "the same value in every row")
    if atomic is not None:
        kind = _ATOMIC_KINDS.get(atomic)
        if kind is None:
            return _FRACTIONS
        is_id = kind == "categorical" and _all_differ(known)
        return _AN_ID if is_id else _Guess(kind, f"typed {atomic}")
    if column.dtype.is_float() and column.is_infinite().any():
        return _Guess(None, "infinite numbers")
    if column.dtype.is_numeric():
        return _guess_numbers(column.name, as_numbers(column).drop_nulls())
    return _DATES if column.dtype.is_temporal() else _guess_texts(column.name, known)


def _guess_lists(column: pl.Series, atomic: str | None) -> _Guess:
    inner: pl.DataType = column.dtype.inner  # type: ignore[attr-defined]
    if atomic == "float_seq" or inner.is_float() or inner.is_decimal():
        return _FRACTIONS
    return _NO_VALUE if as_tokens(column).is_empty() else _Guess("tokens", "lists")


def _guess_texts(name: str, known: pl.Series) -> _Guess:
    if are_numbers(known):
        return _guess_numbers(name, as_numbers(known))
    if are_dates(known):
        return _DATES
    if known.str.contains(_BAR, literal=True).mean() >= _LEAST_SHARE_WITH_BAR:  # type: ignore[operator]
        return _Guess("tokens", "texts with |", _BAR)
    distinct = known.unique()
    words = as_tokens(distinct)["token"]
    if words.n_unique() < len(distinct):
        return _Guess("tokens", "words that combine")
    several = len(words) >= _LEAST_WORDS * len(distinct)
    if several and 2 * len(distinct) > len(known):
        return _Guess("tokens", "words of texts that mostly differ")
    if _all_differ(known):
        return _AN_ID
    return _Guess("categorical", f"{len(distinct):,} different texts in {len(known):,} rows")


def _guess_numbers(name: str, numbers: pl.Series) -> _Guess:
    if not (numbers == numbers.floor()).all():
        return _Guess("numeric", "numbers")
    named_id = _NAMED_ID.search(name) is not None
    if _all_differ(numbers):
        # Different whole numbers may lie as close together as the numbers of rows do.
        span = cast(float, numbers.max()) - cast(float, numbers.min())
        if named_id or span < 2 * len(numbers):
            return _AN_ID
    if named_id:
        return _Guess("categorical", "whole numbers that are called ids")
    return _Guess("numeric", "numbers")


def _all_differ(known: pl.Series) -> bool:
    return len(known) >= _LEAST_ROWS_FOR_IDS and known.n_unique() == len(known)
