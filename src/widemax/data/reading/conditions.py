"""Which rows of a log are read: a condition of SQL, and the one that leaves out what is missing."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection
from pathlib import Path

import polars as pl

from widemax.data.reading.columns import is_missing, listed
from widemax.vocabulary.spelling import quoted

# What a shell would change between double quotes.
_NOT_PLAIN = re.compile(r'["$`\\!]')


def rows_where(
    table: pl.LazyFrame, where: str, path: Path | str, *, ids: Collection[str], typed: bool
) -> pl.LazyFrame:
    """Return the rows for which a condition of SQL holds.

    Without types, text that is all numbers counts as such, but in the columns of ``ids`` only
    where the run has numbers, too: 007 is a name. Polars parses the condition: nothing of it is run
    as Python.

    >>> table = pl.LazyFrame({"sku": ["007", "12"], "stars": ["4", "10"]})
    >>> condition = "sku = '007' or stars > 4 and stars < 9"
    >>> rows_where(table, condition, "log", ids=["sku"], typed=False).collect().rows()
    [('007', '4')]
    """
    there = table.collect_schema().names()
    try:
        condition = pl.sql_expr(where)
        # Each once, however often it is named.
        named = list(dict.fromkeys(condition.meta.root_names()))
        if missing := [name for name in named if name not in there]:
            raise ValueError(f"there is no column {missing[0]!r}: there are {listed(there)}")
        if typed:
            return table.filter(condition)
        frame = table.collect()
        compared = frame.select(_as_compared(frame[name], is_id=name in ids) for name in named)
        # The rows as they were: a column of ids must not become one of fractions.
        return frame.filter(compared.select(condition).to_series().fill_null(False)).lazy()
    except (pl.exceptions.PolarsError, ValueError) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise ValueError(f"{path}: where = {quoted(where)} cannot be asked: {reason}") from error


def _as_compared(column: pl.Series, *, is_id: bool) -> pl.Series:
    """Return a column of text as it is compared with: as numbers if all are."""
    numbers, whole = (column.cast(dtype, strict=False) for dtype in (pl.Float64, pl.Int64))
    if numbers.null_count() > column.null_count():
        return column
    if not is_id or whole.null_count() > column.null_count():
        return numbers
    return whole if (whole.cast(pl.String) == column).all() else column


def without_missing(columns: list[pl.Series], where: str = "") -> str:
    """Return how many rows lack a value, and the condition that leaves them out.

    >>> columns = [pl.Series("user", ["ann", None, None]), pl.Series("sku", [None, "", "tea"])]
    >>> print(without_missing(columns))
    3 of 3 rows lack one (user: 2, sku: 2): leave them out by where \
(--where '"user" is not null and length(sku) > 0')
    """
    lacking = [(column, is_missing(column)) for column in columns]
    lacking = [(column, missing) for column, missing in lacking if missing.any()]
    rows = pl.DataFrame([missing.alias(column.name) for column, missing in lacking])
    number = rows.select(pl.any_horizontal(pl.all()).sum()).item()
    each = ", ".join(f"{column.name}: {missing.sum():,}" for column, missing in lacking)
    conditions = [f"({where})"] if where else []
    for column, missing in lacking:
        name, is_empty = _sql_name(column.name), missing.sum() > column.null_count()
        conditions.append(f"length({name}) > 0" if is_empty else f"{name} is not null")
    condition = " and ".join(conditions)
    typed = shlex.quote(condition) if _NOT_PLAIN.search(condition) else f'"{condition}"'
    return (
        f"{number:,} of {len(rows):,} rows lack one ({each}): leave them out by where "
        f"(--where {typed})"
    )


def _sql_name(name: str) -> str:
    """Return the name of a column as a condition names it: in quotes where SQL would misread it."""
    try:
        if pl.sql_expr(f"{name} is not null").meta.root_names() == [name]:
            return name
    except pl.exceptions.PolarsError:
        pass
    return '"' + name.replace('"', '""') + '"'
