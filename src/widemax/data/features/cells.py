"""Columns of features as they come, read as texts, as numbers or as lists of tokens."""

from __future__ import annotations

import polars as pl

from widemax.data.reading.columns import ISO_DATE, as_iso, parsed_dates
from widemax.vocabulary.keys import first_row
from widemax.vocabulary.spelling import quoted

MISSING_MARKS = ("", "NA", "N/A", "nan", "NaN", "null", "NULL", "None", "\\N")
"""Texts that stand for a missing value, beside null and NaN."""

BLANK = " "

_TEXTS = (pl.String, pl.Categorical, pl.Enum)
_DATES = (pl.Date, pl.Datetime)
_MICROSECONDS_A_DAY = 86_400e6


def is_list(column: pl.Series) -> bool:
    """Whether a column holds several values a row."""
    return column.dtype in (pl.List, pl.Array)


def is_readable(column: pl.Series) -> bool:
    """Whether a column is of a type that features can be read from."""
    inner = getattr(column.dtype, "inner", None) if is_list(column) else column.dtype
    known = (*_TEXTS, *_DATES, pl.Boolean, pl.Null)
    return inner is not None and (inner in known or inner.is_numeric())


def as_texts(column: pl.Series) -> pl.Series:
    """Return one text a row, null where the value is missing.

    Numbers that are whole are written without a fraction, whatever their type is, so that 3 of one
    file is 3.0 of another.

    >>> as_texts(pl.Series([3.0, 2.5, float("nan"), None])).to_list()
    ['3', '2.5', None, None]
    """
    _check_single(column)
    if column.dtype.is_decimal():
        column = column.cast(pl.Float64)
    if column.dtype.is_float():
        frame = column.fill_nan(None).alias("value").to_frame()
        whole = pl.col("value").cast(pl.Int64, strict=False)
        texts = pl.when(pl.col("value") == whole).then(whole.cast(pl.String))
        return frame.select(texts.otherwise(pl.col("value").cast(pl.String)))["value"]
    texts_of = column.cast(pl.String)
    return texts_of.set(texts_of.is_in(MISSING_MARKS).fill_null(False), None)


def as_numbers(column: pl.Series) -> pl.Series:
    """Return one number a row, null where the value is missing.

    Text is a number, or a date as 2026-12-31 or 31.12.2026; dates are days since 1970.

    >>> as_numbers(pl.Series(["1.5", "", "7"])).to_list()
    [1.5, None, 7.0]
    """
    _check_single(column)
    if column.dtype in _TEXTS:
        numbers = _parsed(as_texts(column))
    elif column.dtype in _DATES:
        numbers = _days(column)
    else:
        numbers = column.cast(pl.Float64).fill_nan(None)
    infinite = numbers.is_infinite().fill_null(False)
    if infinite.any():
        row = first_row(infinite)
        raise ValueError(
            f"column {quoted(column.name)}, row {row:,}: a number must be finite, "
            f"got {numbers[row]}"
        )
    return numbers


def as_tokens(column: pl.Series, separator: str = BLANK) -> pl.DataFrame:
    """Return the tokens of all rows one below the other, with the row of each.

    A list holds tokens; a text is cut at each ``separator``, with a blank at all white space.
    Tokens that are empty or missing are left out.

    >>> as_tokens(pl.Series(["Drama|War", None, "War"]), "|").rows()
    [(0, 'Drama'), (0, 'War'), (2, 'War')]
    """
    _check_readable(column)
    if is_list(column):
        lists = column.cast(pl.List(column.dtype.inner))  # type: ignore[attr-defined]
    elif separator == BLANK:
        lists = as_texts(column).str.extract_all(r"\S+")
    else:
        lists = as_texts(column).str.split(separator)
    rows = pl.int_range(len(lists), eager=True, dtype=pl.Int64)
    flat = pl.DataFrame({"row": rows, "token": lists}).explode("token")
    flat = flat.with_columns(as_texts(flat["token"]).alias("token"))
    if not is_list(column):
        flat = flat.with_columns(pl.col("token").str.strip_chars())
    return flat.filter(pl.col("token").is_not_null(), pl.col("token") != "")


def are_numbers(texts: pl.Series) -> bool:
    """Whether all texts that are there are numbers; with a leading zero they are names."""
    known = texts.drop_nulls()
    if known.str.contains(r"^\s*[+-]?0\d").any():
        return False
    numbers = known.cast(pl.Float64, strict=False)
    return not numbers.null_count() and bool(numbers.is_finite().all())


def are_dates(texts: pl.Series) -> bool:
    """Whether all texts that are there are dates of ISO 8601, or such as 31.12.2026."""
    known = as_iso(texts.drop_nulls())
    return bool(known.str.contains(ISO_DATE).all()) and not parsed_dates(known).null_count()


def _parsed(texts: pl.Series) -> pl.Series:
    numbers = texts.str.strip_chars().cast(pl.Float64, strict=False)
    unread = numbers.is_null() & texts.is_not_null()
    if not unread.any():
        return numbers.fill_nan(None)
    if are_dates(texts):
        return _days(parsed_dates(as_iso(texts)))
    row = first_row(unread)
    raise ValueError(
        f"column {quoted(texts.name)}, row {row:,}: must be a number or a date, "
        f"got {quoted(texts[row])}"
    )


def _days(dates: pl.Series) -> pl.Series:
    microseconds = dates.cast(pl.Datetime("us")).to_physical()
    return microseconds.cast(pl.Float64) / _MICROSECONDS_A_DAY


def _check_single(column: pl.Series) -> None:
    _check_readable(column)
    if is_list(column):
        raise ValueError(f"column {quoted(column.name)} holds lists: its kind must be 'tokens'")


def _check_readable(column: pl.Series) -> None:
    if not is_readable(column):
        raise ValueError(
            f"column {quoted(column.name)} must hold texts, numbers, dates or lists of these, "
            f"got {column.dtype}"
        )
