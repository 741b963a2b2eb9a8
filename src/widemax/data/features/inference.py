"""What the columns of a table of features are, told by their content."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

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
from widemax.data.reading.tables import AtomicType

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
    """What ``infer_fields`` found: the fields, and why each column is one or is none."""

    fields: tuple[FeatureField, ...]
    reasons: dict[str, str]


class _Guess(NamedTuple):
    kind: FeatureKind | None  # None: the column is left out
    reason: str
    separator: str = BLANK


def infer_fields(
    frame: pl.DataFrame,
    *,
    key_column: str = "",
    types: Mapping[str, AtomicType] | None = None,
) -> Inferred:
    """Tell the kind of each column from its values.

    Formula: the first of these that is true of the values that are there:
    none, or one in every row: left out; ``types`` names a type: "token" is categorical, "float"
    numeric, "token_seq" tokens; lists: tokens, of fractions left out; numbers: numeric, but left
    out as ids if all differ and count rows (or the column's name ends in "id"), and categorical if
    such a name has values that come back; dates: numeric; a "|" in one text of twenty: tokens, cut
    there; fewer different words than different texts, or several words a text and texts that
    mostly differ: tokens of words; single words that all differ: left out as ids; else categorical.

    Shapes: columns of N rows; fewer than 20 rows are never taken for ids.

    Cost: O(cells).

    Reference: RecBole's atomic files (``types``).

    Use when: kinds should not have to be said; read ``reasons``. Avoid when: they are known
    (declare ``FeatureField``s).

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
        return _Guess(None, "no value")
    if known.n_unique() == 1 and not texts.null_count():
        return _Guess(None, "the same value in every row")
    if atomic is not None:
        return _guess_typed(known, atomic)
    if column.dtype.is_float() and column.is_infinite().any():
        return _Guess(None, "infinite numbers")
    if column.dtype.is_numeric():
        return _guess_numbers(column.name, as_numbers(column).drop_nulls())
    if column.dtype.is_temporal():
        return _Guess("numeric", "dates, in days")
    return _guess_texts(column.name, known)


def _guess_lists(column: pl.Series, atomic: str | None) -> _Guess:
    inner: pl.DataType = column.dtype.inner  # type: ignore[attr-defined]
    if atomic == "float_seq" or inner.is_float() or inner.is_decimal():
        return _Guess(None, "lists of fractions: give each place a column of its own")
    if as_tokens(column).is_empty():
        return _Guess(None, "no value")
    return _Guess("tokens", "lists")


def _guess_typed(known: pl.Series, atomic: str) -> _Guess:
    kind = _ATOMIC_KINDS.get(atomic)
    if kind is None:
        return _Guess(None, "lists of fractions: give each place a column of its own")
    if kind == "categorical" and _all_differ(known):
        return _Guess(None, "an id: no value comes back")
    return _Guess(kind, f"typed {atomic}")


def _guess_texts(name: str, known: pl.Series) -> _Guess:
    if are_numbers(known):
        return _guess_numbers(name, as_numbers(known))
    if are_dates(known):
        return _Guess("numeric", "dates, in days")
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
        return _Guess(None, "an id: no value comes back")
    return _Guess("categorical", f"{len(distinct):,} different texts in {len(known):,} rows")


def _guess_numbers(name: str, numbers: pl.Series) -> _Guess:
    whole = bool((numbers == numbers.floor()).all())
    named_id = _NAMED_ID.search(name) is not None
    if whole and _all_differ(numbers) and (named_id or _count_rows(numbers)):
        return _Guess(None, "an id: no value comes back")
    if whole and named_id:
        return _Guess("categorical", "whole numbers that are called ids")
    return _Guess("numeric", "numbers")


def _all_differ(known: pl.Series) -> bool:
    return len(known) >= _LEAST_ROWS_FOR_IDS and known.n_unique() == len(known)


def _count_rows(numbers: pl.Series) -> bool:
    """Whether different whole numbers lie as close together as the numbers of rows do."""
    lowest, highest = numbers.min(), numbers.max()
    assert isinstance(lowest, float)
    assert isinstance(highest, float)
    return highest - lowest < 2 * len(numbers)
