"""Columns of raw records: ids and times as they come, checked and made comparable."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import polars as pl

from widemax.keys import first_row, show

Fault: TypeAlias = Callable[[int, str], ValueError]
"""Makes the error about one row of a column: it knows the file and the column's name."""

# Since 1970, between 1973 and 2286: the ranges of the four units do not touch.
_UNITS = {"seconds": 1e8, "milliseconds": 1e11, "microseconds": 1e14, "nanoseconds": 1e17}
_RANGE = 100.0
_ISO_DATE = r"^\d{4}-\d{2}-\d{2}"


def as_ids(column: pl.Series, fault: Fault, *, from_text: bool) -> pl.Series:
    """Return a column of ids as strings or int64.

    Formula: ``from_text``, ids are whole numbers if every one is written as int64 would be.

    Shapes: [N], as many as there are rows.

    Cost: O(N).

    Reference: none.

    Use when: an id comes from a file. Avoid when: it is a key of a vocabulary (``as_keys``).

    >>> def fault(row, message):
    ...     return ValueError(f"row {row}: {message}")
    >>> as_ids(pl.Series(["7", "12"]), fault, from_text=True).to_list()
    [7, 12]
    >>> as_ids(pl.Series(["7", "12.0"]), fault, from_text=True)
    Traceback (most recent call last):
    ValueError: row 1: an id must be a whole number or a string, got 12.0
    """
    if column.dtype in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    missing = column.is_null()
    if column.dtype == pl.String:
        missing |= (column == "").fill_null(False)
    if missing.any():
        raise fault(first_row(missing), "the id is missing")
    if column.dtype == pl.String:
        return _numbers_if_all_are(column, fault) if from_text else column
    if not column.dtype.is_integer():
        value = f"{column[0]} ({column.dtype})" if len(column) else column.dtype
        raise fault(0, f"an id must be a whole number or a string, got {value}")
    return _as_int64(column, fault, "an id")


def as_sortable(column: pl.Series, fault: Fault) -> pl.Series:
    """Return a column of times as numbers that are in the order of the times.

    Formula: dates as polars stores them; numbers as they are; text as numbers if all are numbers,
    else as ISO 8601 in UTC. Two units in one column (seconds, then milliseconds) are an error.

    Shapes: [N], as many as there are rows.

    Cost: O(N).

    Reference: ISO 8601. Days before months before years, or the other way round, are not guessed.

    Use when: rows are sorted by time. Avoid when: the time itself is wanted.

    >>> as_sortable(pl.Series(["1970-01-02", "1970-01-01T00:00:00.5Z"]), ValueError).to_list()
    Traceback (most recent call last):
    ValueError: (1, "the time is '1970-01-01T00:00:00.5Z', but the first is '1970-01-02'")
    >>> as_sortable(pl.Series(["1970-01-02", "1970-01-01 00:00"]), ValueError).to_list()
    [86400000000, 0]
    """
    if column.null_count():
        raise fault(first_row(column.is_null()), "the time is missing")
    if column.dtype == pl.String:
        column = _parsed_times(column, fault)
    if column.dtype in (pl.Datetime, pl.Date):
        return column.to_physical()
    if column.dtype.is_integer():
        column = _as_int64(column, fault, "a time")
    elif not column.dtype.is_float():
        raise fault(0, f"a time must be a number, a date or ISO 8601 text, got {column.dtype}")
    elif not column.is_finite().all():
        row = first_row(~column.is_finite())
        raise fault(row, f"a time must be finite, got {column[row]}")
    _check_one_unit(column, fault)
    return column


def _numbers_if_all_are(column: pl.Series, fault: Fault) -> pl.Series:
    whole = column.cast(pl.Int64, strict=False)
    if not whole.null_count():
        return whole if (whole.cast(pl.String) == column).all() else column  # "007" is a name
    if column.cast(pl.Float64, strict=False).null_count():
        return column
    fractional = ~column.str.contains(r"^[+-]?\d+$")
    if fractional.any():
        row = first_row(fractional)
        raise fault(row, f"an id must be a whole number or a string, got {column[row]}")
    row = first_row(whole.is_null())
    raise fault(row, f"an id must lie within int64, got {_digits(column[row])}")


def _as_int64(column: pl.Series, fault: Fault, name: str) -> pl.Series:
    whole = column.cast(pl.Int64, strict=False)
    if whole.null_count():
        row = first_row(whole.is_null())
        raise fault(row, f"{name} must lie within int64, got {column[row]}")
    return whole


def _digits(text: str) -> str:
    """Return digits as they stand in a message: without quotes, of bounded length."""
    return show(text).replace("'", "")


def _parsed_times(column: pl.Series, fault: Fault) -> pl.Series:
    for dtype in (pl.Int64, pl.Float64):
        numbers = column.cast(dtype, strict=False)
        if not numbers.null_count():
            return numbers
    parsed = numbers if numbers[0] is not None else _parsed_dates(column)
    if parsed[0] is None:
        raise fault(0, f"a time must be a number, a date or ISO 8601 text, got {show(column[0])}")
    if parsed.null_count():
        row = first_row(parsed.is_null())
        raise fault(row, f"the time is {show(column[row])}, but the first is {show(column[0])}")
    return parsed


def _parsed_dates(column: pl.Series) -> pl.Series:
    dates = column.set(~column.str.contains(_ISO_DATE), None)
    if dates[0] is None:
        return dates
    return dates.str.to_datetime(strict=False, time_zone="UTC", time_unit="us")


def _check_one_unit(times: pl.Series, fault: Fault) -> None:
    found: dict[str, int] = {}
    for unit, least in _UNITS.items():
        within = (times >= least) & (times < least * _RANGE)
        if within.any():
            found[unit] = first_row(within)
    if len(found) > 1:
        (unit, _), (other, row) = sorted(found.items(), key=lambda pair: pair[1])[:2]
        raise fault(row, f"the time {times[row]} looks like {other} where others look like {unit}")
