"""Tables of interactions in the formats they come in: Parquet, CSV, atomic files, plain words."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Literal, TypeAlias

import polars as pl
import torch

from widemax.data.reading.inputs import decoded, first_lines, head_of, read_all, with_blanks
from widemax.data.reading.text import words_by_line
from widemax.vocabulary.keys import quoted

TableKind: TypeAlias = Literal["parquet", "csv", "atomic", "pairs", "lists"]

PARQUET_MAGIC = b"PAR1"
USER, ITEM, TIME = "user", "item", "time"

_UNREADABLE = (OSError, csv.Error, pl.exceptions.PolarsError, pl.exceptions.PanicException)
_SEPARATORS = ("\t", ",", ";")
_TYPED = re.compile(r"[^\s:]+:(token|float)(_seq)?")
_EARLIEST_EPOCH = 1e8  # 1973 in seconds; ratings and counts are smaller


def scan_table(path: Path, kind: TableKind) -> pl.LazyFrame:
    """Return the table of one file; in all formats but Parquet every column holds strings.

    Formula: none.

    Shapes: without a header the first column is named user, the second item, the last time if it
    begins with a number of at least 1e8, and any other column_3, column_4, … Pairs, and lists of a
    user and his items, have a user and an item in each row.

    Cost: Parquet is read by column when it is collected, the others are read here.

    Reference: RFC 4180 (CSV); RecBole's atomic files, whose header types each column.

    Use when: writing a reader of interactions. Avoid when: ``read_interactions`` is enough.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "log"
    >>> _ = path.write_text("7;tea;1700000000\\n7;rum;1700000060\\n")
    >>> scan_table(path, "csv").collect().row(1)
    ('7', 'rum', '1700000060')
    """
    if kind == "parquet":
        # As a plain name: polars would read patterns and partitions into it.
        return pl.scan_parquet(path, glob=False, hive_partitioning=False)
    text = read_all(path).rstrip("\r\n")
    if kind in ("pairs", "lists"):
        words = words_by_line(with_blanks(text.encode()).decode())
        return (_pairs(words, path) if kind == "pairs" else _lists(words)).lazy()
    with reading(path):
        return (_atomic(text, path) if kind == "atomic" else _csv(text, path)).lazy()


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what polars and csv raise into a ValueError that names the file."""
    try:
        yield
    except _UNREADABLE as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{path} cannot be read as a table: {reason}") from error


def separator_of(line: str) -> str:
    """Return which of tab, comma and semicolon a line has most of; "" if it has none."""
    best = max(_SEPARATORS, key=line.count)
    return best if best in line else ""


def is_regular(lines: list[str]) -> bool:
    """Whether lines look like CSV: as many columns in each, and no blank after a separator."""
    separator = separator_of(lines[0])
    if not separator or f"{separator} " in lines[0]:
        return False
    try:
        widths = {len(row) for row in islice(csv.reader(lines, delimiter=separator), len(lines))}
    except csv.Error:
        return False
    return len(widths) == 1


def are_lists(lines: list[str]) -> bool:
    """Whether lines look like users with their items: whole numbers, each user in one line."""
    rows = [line.split() for line in lines]
    widths = {len(row) for row in rows}
    return (
        len(rows) > 1
        and max(widths) > 1
        and widths != {2}
        and all(word.isascii() and word.isdecimal() for row in rows for word in row)
        and len({row[0] for row in rows}) == len(rows)
    )


def is_atomic(line: str) -> bool:
    """Whether a line is the header of an atomic file, such as ``user_id:token<TAB>time:float``."""
    return all(_TYPED.fullmatch(field) for field in line.split("\t"))


def atomic_types(path: str | Path) -> dict[str, str]:
    """Return the name and the type of each column of an atomic file.

    Formula: the header ``name:type`` names one of token, float, token_seq and float_seq; a _seq
    holds values between blanks.

    Shapes: one entry for each column, in their order.

    Cost: the head of the file is read.

    Reference: RecBole's atomic files.

    Use when: columns of ``scan_table(path, "atomic")``, which are strings, are to be read as what
    they are. Avoid when: the columns of a log are all that is wanted.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "log.item"
    >>> _ = path.write_text("item_id:token\\tgenres:token_seq\\n31\\tDrama Crime\\n")
    >>> atomic_types(path)
    {'item_id': 'token', 'genres': 'token_seq'}
    """
    path = Path(path)
    header = decoded(first_lines(head_of(path)), path).split("\n", 1)[0].rstrip("\r")
    _check_atomic(header, path)
    fields = (field.partition(":") for field in header.split("\t"))
    return {name: kind for name, _, kind in fields}


def _csv(text: str, path: Path) -> pl.DataFrame:
    first = text.split("\n", 1)[0].rstrip("\r")
    separator = separator_of(first)
    if not separator:
        raise ValueError(f"{path}, line 1: no tab, comma or semicolon in {quoted(first)}")
    fields = next(csv.reader([first], delimiter=separator))
    has_header = not any(map(_is_number, fields))
    try:
        return pl.read_csv(
            io.BytesIO(text.encode()),
            separator=separator,
            has_header=has_header,
            infer_schema=False,
            new_columns=None if has_header else _names_without_header(fields),
        )
    except pl.exceptions.PolarsError:
        _check_widths(text, separator, has_header, path)
        raise


def _check_widths(text: str, separator: str, has_header: bool, path: Path) -> None:
    """Name the first row that has more fields than the first one: polars does not say which."""
    rows = csv.reader(io.StringIO(text), delimiter=separator)
    try:
        width = len(next(rows))
        for row, fields in enumerate(rows, start=1 if has_header else 2):
            if len(fields) > width:
                raise ValueError(
                    f"{path}, row {row:,}: {len(fields):,} fields, but {width:,} in the first line"
                )
    except csv.Error:
        return  # then what polars said must do


def _names_without_header(fields: list[str]) -> list[str]:
    names = [USER, ITEM, *(f"column_{place}" for place in range(3, len(fields) + 1))]
    if len(fields) > 2 and _is_number(fields[-1]) and float(fields[-1]) >= _EARLIEST_EPOCH:
        names[-1] = TIME
    return names


def _is_number(field: str) -> bool:
    return re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", field.strip()) is not None


def _atomic(text: str, path: Path) -> pl.DataFrame:
    _check_atomic(text.split("\n", 1)[0].rstrip("\r"), path)
    data = io.BytesIO(text.encode())
    # A quote is a character like any other in these files.
    table = pl.read_csv(data, separator="\t", quote_char=None, infer_schema=False)
    return table.rename({name: name.partition(":")[0] for name in table.columns})


def _check_atomic(header: str, path: Path) -> None:
    if not is_atomic(header):
        raise ValueError(f"{path}, line 1: an atomic file types its columns, got {quoted(header)}")


def _pairs(words: pl.DataFrame, path: Path) -> pl.DataFrame:
    lengths = torch.bincount(words["line"].cast(pl.Int64).to_torch())
    wrong = ((lengths != 2) & (lengths != 0)).nonzero()
    if len(wrong):
        line = int(wrong[0])
        raise ValueError(
            f"{path}, line {line + 1:,}: a user and an item wanted, got {int(lengths[line]):,} "
            'words; kind="lists" reads a user and his items, kind="text" sentences'
        )
    word = words["word"]
    return pl.DataFrame({USER: word.gather_every(2), ITEM: word.gather_every(2, 1)})


def _lists(words: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each word after the first of its line; a user without items has none."""
    line, word = words["line"], words["word"]
    is_user = (line != line.shift()).fill_null(True)
    users = word.filter(is_user)
    row = is_user.cast(pl.Int64).cum_sum() - 1
    return pl.DataFrame({USER: users.gather(row.filter(~is_user)), ITEM: word.filter(~is_user)})
