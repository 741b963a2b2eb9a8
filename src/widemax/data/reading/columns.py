"""Columns of raw records: ids, times and flags as they come, checked and made comparable."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from widemax.vocabulary.keys import first_row
from widemax.vocabulary.spelling import quoted

Fault: TypeAlias = Callable[[int, str], ValueError]
"""Makes the error about one row of a column: it knows the file and the column's name."""

ISO_DATE = r"^\d{4}-\d{2}-\d{2}"
"""How a date of ISO 8601 begins."""
_DATE_WITH_POINTS = r"^(\d{2})\.(\d{2})\.(\d{4})"

_PER_SECOND = {"seconds": 1.0, "milliseconds": 1e3, "microseconds": 1e6, "nanoseconds": 1e9}
_POLARS_UNITS = {"ms": 1e3, "us": 1e6, "ns": 1e9}
# In 1973 and 2286: between them, the ranges of the four units do not touch.
_EARLIEST, _LATEST = 1e8, 1e10
_SECONDS_A_DAY = 86_400
_MOST_LISTED = 20
_A_ROW = "a row is to have one user and one item"

MISSING_ID, MISSING_TIME = "the id is missing", "the time is missing"
"""What a fault says of a cell with nothing in it."""


def as_ids(column: pl.Series, fault: Fault, *, from_text: bool) -> pl.Series:
    """Return a column of ids as strings or int64.

    ``from_text``, ids are whole numbers if every one is written as int64 would be.

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
    _check_present(column, fault, MISSING_ID)
    if column.dtype == pl.String:
        return _numbers_if_all_are(column, fault) if from_text else column
    if column.dtype.is_nested():
        raise fault(0, f"an id must be a whole number or a string, got a {column.dtype}; {_A_ROW}")
    if not column.dtype.is_integer():
        value = f"{column[0]} ({column.dtype})" if len(column) else column.dtype
        raise fault(0, f"an id must be a whole number or a string, got {value}")
    return _as_int64(column, fault, "an id")


def as_times(column: pl.Series, fault: Fault) -> tuple[pl.Series, float]:
    """Return a column of times as numbers in the order of the times, and how many make a second.

    The numbers are int64 or float64; divided by the second value (``seconds_of``) they are seconds
    since 1970. Dates are exact. Numbers count seconds, but milliseconds, microseconds or
    nanoseconds if there are any between 1973 and 2286 in that unit (from 1e11, 1e14 and 1e17, up
    to a hundred times that); two such units in one column (seconds, then milliseconds) are an
    error. Text is read as numbers if all are numbers, else as ISO 8601, in UTC where it names no
    zone. 31.12.2026 is a day, as between points no month goes first; other orders of day, month and
    year are not guessed.

    >>> as_times(pl.Series(["1970-01-02", "1970-01-01T00:00:00.5Z"]), ValueError)
    Traceback (most recent call last):
    ValueError: (1, "the time is '1970-01-01T00:00:00.5Z', but the first is '1970-01-02'")
    >>> times, per_second = as_times(pl.Series(["1970-01-02", "1970-01-01 00:00"]), ValueError)
    >>> (times / per_second).to_list()
    [86400.0, 0.0]
    >>> as_times(pl.Series([1_700_000_000_250]), ValueError)[1]
    1000.0
    """
    _check_present(column, fault, MISSING_TIME)
    if column.dtype == pl.String:
        column = _parsed_times(column, fault)
    if column.dtype == pl.Date:
        return column.to_physical().cast(pl.Int64) * _SECONDS_A_DAY, 1.0
    if isinstance(column.dtype, pl.Datetime):
        return column.to_physical(), _POLARS_UNITS[column.dtype.time_unit]
    if column.dtype.is_integer():
        column = _as_int64(column, fault, "a time")
    elif not column.dtype.is_float():
        raise fault(0, f"a time must be a number, a date or ISO 8601 text, got {column.dtype}")
    elif not column.is_finite().all():
        row = first_row(~column.is_finite())
        raise fault(row, f"a time must be finite, got {column[row]}")
    else:
        column = column.cast(pl.Float64)
    return column, _per_second(column, fault)


def seconds_of(numbers: NDArray[np.generic], per_second: float) -> NDArray[np.float64]:
    """Return the times of ``as_times`` as seconds.

    Whole seconds are divided off first: nanoseconds of today are too large for float64 to hold.

    >>> seconds_of(np.array([1_700_000_000_250_000_000]), 1e9).tolist()
    [1700000000.25]
    """
    if per_second == 1.0:
        return numbers.astype(np.float64, copy=False)
    if numbers.dtype != np.int64:
        return numbers.astype(np.float64) / per_second
    whole, rest = np.divmod(numbers, np.int64(per_second))
    return np.asarray(whole + rest / per_second, np.float64)


def as_flags(column: pl.Series, fault: Fault) -> pl.Series:
    """Return a column of yes and no as booleans.

    True is true or a number other than 0; in text, "true" and "false" in any case, or a number.

    >>> as_flags(pl.Series(["0", "12.5", "True"]), ValueError).to_list()
    [False, True, True]
    """
    _check_present(column, fault, "the goal is missing")
    if column.dtype == pl.Boolean:
        return column
    numbers = column
    if column.dtype == pl.String:
        words = column.str.to_lowercase().replace({"true": "1", "false": "0"})
        numbers = words.cast(pl.Float64, strict=False)
    elif not (column.dtype.is_integer() or column.dtype.is_float()):
        raise fault(0, f"a goal must be true, false or a number, got {column.dtype}")
    wrong = numbers.is_null() | ~numbers.cast(pl.Float64).is_finite().fill_null(False)
    if wrong.any():
        row = first_row(wrong)
        value = quoted(column[row]) if column.dtype == pl.String else column[row]
        raise fault(row, f"a goal must be true, false or a number, got {value}")
    return numbers != 0


def as_weights(column: pl.Series, fault: Fault) -> pl.Series:
    """Return a column of weights as float64: numbers of at least 0.

    >>> as_weights(pl.Series(["4.5", "0"]), ValueError).to_list()
    [4.5, 0.0]
    """
    _check_present(column, fault, "the weight is missing")
    numbers = column.cast(pl.Float64, strict=False)
    wrong = ~(numbers.is_finite() & (numbers >= 0)).fill_null(False)
    if wrong.any():
        row = first_row(wrong)
        value = quoted(column[row]) if column.dtype == pl.String else column[row]
        raise fault(row, f"a weight must be a finite number of at least 0, got {value}")
    return numbers


def parse_event_weights(text: str) -> dict[str, float]:
    """Return the weight of each type of event.

    >>> parse_event_weights("view=1, cart = 3")
    {'view': 1.0, 'cart': 3.0}
    >>> parse_event_weights("view=1, cart")
    Traceback (most recent call last):
    ValueError: event_weights must list types with weights of at least 0, such as view=1, \
cart=3, got 'cart'
    """
    found: dict[str, float] = {}
    for part in text.split(","):
        name, _, number = (each.strip() for each in part.rpartition("="))
        try:
            weight = float(number) if name else -1.0
        except ValueError:
            weight = -1.0
        if not 0 <= weight < math.inf or name in found:
            raise ValueError(
                "event_weights must list types with weights of at least 0, such as view=1, cart=3, "
                f"got {quoted(part.strip())}{' twice' if name in found else ''}"
            )
        found[name] = weight
    return found


def as_iso(texts: pl.Series) -> pl.Series:
    """Return texts with dates such as 31.12.2026 written as ISO 8601 has them.

    >>> as_iso(pl.Series(["31.12.2026 18:30", "2026-12-31"])).to_list()
    ['2026-12-31 18:30', '2026-12-31']
    """
    return texts.str.replace(_DATE_WITH_POINTS, "$3-$2-$1")


def parsed_dates(texts: pl.Series) -> pl.Series:
    """Return texts of ISO 8601 as moments in UTC, to the microsecond; null where one is none."""
    return texts.str.to_datetime(strict=False, time_zone="UTC", time_unit="us")


def listed(names: list[str]) -> str:
    """Return the names of columns as a message lists them: quoted, and not too many."""
    more = ", …" if len(names) > _MOST_LISTED else ""
    return ", ".join(map(quoted, names[:_MOST_LISTED])) + more


def is_missing(column: pl.Series) -> pl.Series:
    """Return which cells have nothing in them, or empty text.

    >>> is_missing(pl.Series(["tea", "", None])).to_list()
    [False, True, True]
    """
    missing = column.is_null()
    return missing | (column == "").fill_null(True) if column.dtype == pl.String else missing


def _check_present(column: pl.Series, fault: Fault, message: str) -> None:
    if column.null_count() or (column.dtype == pl.String and (column == "").any()):
        raise fault(first_row(is_missing(column)), message)


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
    digits = quoted(column[row]).replace("'", "")
    raise fault(row, f"an id must lie within int64, got {digits}")


def _as_int64(column: pl.Series, fault: Fault, name: str) -> pl.Series:
    whole = column.cast(pl.Int64, strict=False)
    if whole.null_count():
        row = first_row(whole.is_null())
        raise fault(row, f"{name} must lie within int64, got {column[row]}")
    return whole


def _parsed_times(column: pl.Series, fault: Fault) -> pl.Series:
    for dtype in (pl.Int64, pl.Float64):
        parsed = column.cast(dtype, strict=False)
        if not parsed.null_count():
            return parsed
    if parsed[0] is None:
        dates = as_iso(column)
        dates = dates.set(~dates.str.contains(ISO_DATE), None)
        parsed = dates if dates[0] is None else parsed_dates(dates)
    if parsed[0] is None:
        raise fault(
            0,
            "a time must be a number, a date or text such as 2026-12-31T18:30 or 31.12.2026, got "
            f"{quoted(column[0])}",
        )
    if parsed.null_count():
        row = first_row(parsed.is_null())
        raise fault(row, f"the time is {quoted(column[row])}, but the first is {quoted(column[0])}")
    return parsed


def _per_second(times: pl.Series, fault: Fault) -> float:
    """Return how many of the numbers make a second; two units in one column are an error."""
    low, high = cast(float, times.min()), cast(float, times.max())
    # Those in which some number from low to high would lie between the two years.
    units = {
        unit: each
        for unit, each in _PER_SECOND.items()
        if low < _LATEST * each and high >= _EARLIEST * each
    }
    if len(units) == 1 and low >= _EARLIEST * min(units.values()):
        return min(units.values())
    found: dict[str, int] = {}
    for unit, each in units.items():
        within = (times >= _EARLIEST * each) & (times < _LATEST * each)
        if within.any():
            found[unit] = first_row(within)
    if len(found) > 1:
        (unit, _), (other, row) = sorted(found.items(), key=lambda pair: pair[1])[:2]
        raise fault(row, f"the time {times[row]} looks like {other} where others look like {unit}")
    return _PER_SECOND[next(iter(found), "seconds")]
