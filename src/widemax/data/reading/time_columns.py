"""Which column of a log has the times, where it has none of the usual names."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import cast

import polars as pl

from widemax.data.reading.columns import ISO_DATE, as_iso, as_times, listed

_ENDING = re.compile(
    r"[ _.-](?i:at|on|time|date|ts)$"  # listened_at, event_time
    r"|(?<=[a-z\d])(At|On|Time|Date|Ts|TS)$"  # listenedAt
)
_MAY_BE_A_LENGTH = re.compile(r"(?i)time$")
_EARLIEST_EPOCH = 1e8  # 1973 in seconds; lengths of time are shorter
_LOOKED_AT = 100

_LOGGER = logging.getLogger(__name__)


def guessed_time(table: pl.LazyFrame, taken: tuple[str, ...], path: Path | str) -> str:
    """Return the only column that is called like one of times and has them, or "" with a note.

    Called so is what ends like listened_at, watched_on, event_time, orderDate or view_ts. Numbers
    below a _time must be at least 1e8: watch_time may be how long it took.

    >>> table = pl.LazyFrame({"user": ["ann"], "listened_at": ["2026-01-31"], "watch_time": ["7"]})
    >>> guessed_time(table, ("user",), "log")
    'listened_at'
    """
    names = [name for name in table.collect_schema().names() if name not in taken]
    found = [
        name for name in names if _ENDING.search(name) and _has_times(_column(table, name), name)
    ]
    if len(found) == 1:
        return found[0]
    seen = found or [
        name for name in names if _looks_like_times(_column(table.head(_LOOKED_AT), name))
    ]
    if seen:
        _LOGGER.warning(
            "%s: no column of times was found, and %s look%s like it; time_column (--time-column "
            "NAME) names one: items are in the order of the file",
            path, listed(seen), "s" if len(seen) == 1 else "",
        )  # fmt: skip
    return ""


def _column(table: pl.LazyFrame, name: str) -> pl.Series:
    return table.select(name).collect().to_series()


def _has_times(column: pl.Series, name: str) -> bool:
    try:
        times, _ = as_times(column, lambda row, message: ValueError(message))
    except ValueError:
        return False
    texts = column.dtype == pl.String and column.cast(pl.Float64, strict=False).null_count()
    if texts or column.dtype.is_temporal() or not _MAY_BE_A_LENGTH.search(name):
        return True
    return cast(float, times.min()) >= _EARLIEST_EPOCH


def _looks_like_times(column: pl.Series) -> bool:
    """Return whether the first value is a date, or seconds or milliseconds of 2001 to 2033."""
    first = column.drop_nulls().head(1)
    if first.is_empty() or not (first.dtype == pl.String or first.dtype.is_numeric()):
        return not first.is_empty() and first.dtype in (pl.Date, pl.Datetime)
    number = first.cast(pl.Float64, strict=False).item()
    if number is None:
        return bool(as_iso(first).str.contains(ISO_DATE).item())
    return any(1e9 * unit <= number < 2e9 * unit for unit in (1.0, 1e3))
