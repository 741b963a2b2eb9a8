"""Which rows of a log are read: a condition of SQL, and the one that leaves out what is missing."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from widemax.data.reading.columns import is_missing, listed
from widemax.vocabulary.keys import first_row
from widemax.vocabulary.spelling import quoted

# What a shell would change between double quotes.
_NOT_PLAIN = re.compile(r'["$`\\!]')
# A fraction, outside of what stands in quotes.
_FRACTION = re.compile(r"""('[^']*'|"[^"]*")|(?<![\w.])(\d+\.\d*|\.\d+)(?![\w.])""")


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
        condition = pl.sql_expr(_with_floats(where))
        # Each once, however often it is named.
        named = list(dict.fromkeys(condition.meta.root_names()))
        if missing := [name for name in named if name not in there]:
            raise ValueError(f"there is no column {missing[0]!r}: there are {listed(there)}")
        if typed:
            with _texts_explained(table.select(named).head(1).collect()):
                table.head(0).select(condition).collect()
            return table.filter(condition)
        frame = table.collect()
        compared = frame.select(_as_compared(frame[name], is_id=name in ids) for name in named)
        with _texts_explained(compared):
            chosen = compared.select(condition).to_series().fill_null(False)
        # The rows as they were: a column of ids must not become one of fractions.
        return frame.filter(chosen).lazy()
    except (pl.exceptions.PolarsError, ValueError) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise ValueError(f"{path}: where = {quoted(where)} cannot be asked: {reason}") from error


def _with_floats(where: str) -> str:
    """Return a condition with fractions as floats: polars takes 3.9 for text beside a text.

    >>> _with_floats("stars > 3.9 and size = '3.9'")
    "stars > 3.9e0 and size = '3.9'"
    """
    return _FRACTION.sub(lambda found: found[1] or f"{found[2]}e0", where)


@contextmanager
def _texts_explained(compared: pl.DataFrame) -> Iterator[None]:
    """Have the error of a text that is compared with a time or a number say what to write.

    It names the row with the text that is no number.
    """
    try:
        yield
    except (pl.exceptions.ComputeError, pl.exceptions.InvalidOperationError) as error:
        if "date/datetime/time" in str(error):
            raise ValueError(
                "a time cannot be compared with a text: write date '2026-12-31' for columns of "
                "times, and '2026-12-31' for columns of text"
            ) from error
        texts = [column for column in compared if column.dtype == pl.String]
        if "string" not in str(error).lower() or not texts:
            raise
        raise ValueError(
            "a text cannot be compared with a number, and there is text in "
            f"{' and '.join(map(_first_text, texts))}; try_cast({_sql_name(texts[0].name)} as "
            "double) takes what is no number for missing"
        ) from error


def _first_text(column: pl.Series) -> str:
    """Return where a column of text has one that is no number; "007" and "5" may be texts, too."""
    no_number = column.is_not_null() & column.cast(pl.Float64, strict=False).is_null()
    if not no_number.any():
        return f"column {column.name}"
    row = first_row(no_number)
    return f"column {column.name}, row {row + 1:,} ({quoted(column[row])})"


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
