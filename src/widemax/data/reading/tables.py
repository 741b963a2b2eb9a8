"""What a file holds, and its table: Parquet, CSV, atomic files, lines of words."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeAlias, cast, get_args

import numpy as np
import polars as pl

from widemax.data.reading.files import decoded, files_of, head_of, read_all, with_blanks
from widemax.vocabulary.keys import quoted

TableKind: TypeAlias = Literal["parquet", "csv", "atomic", "pairs", "lists"]
SourceKind: TypeAlias = Literal["text"] | TableKind

AtomicType: TypeAlias = Literal["token", "float", "token_seq", "float_seq"]
"""What the header of an atomic file says of a column; a _seq holds values between blanks."""

KINDS: tuple[str, ...] = ("text", *get_args(TableKind))
"""The formats that are recognised."""

USER, ITEM, TIME = "user", "item", "time"

_UNREADABLE = (OSError, csv.Error, pl.exceptions.PolarsError, pl.exceptions.PanicException)
_SEPARATORS = ("\t", ",", ";")
_TYPED = re.compile(r"[^\s:]+:(token|float)(_seq)?")
_EARLIEST_EPOCH = 1e8  # 1973 in seconds; ratings and counts are smaller


def recognise(path: str | Path) -> SourceKind:
    """Return what a file holds, by the first 64 KB of its content: the first of these that is true.

    "parquet": it begins with PAR1;
    "atomic": every field of the first line, between tabs, is a name with a type, as in
    ``user_id:token``;
    "csv": every line has as many fields as the first, at least two, between tabs, commas or
    semicolons (whichever the first line has most of), and none of those in the first line is
    followed by a blank, as a comma in a sentence is;
    "lists": every word is a whole number, there are several lines, no two of them begin with the
    same one, and not all have two words: a user and their items;
    "pairs": every line has two words, and every word holds a digit;
    "text": anything else that is UTF-8 without NUL bytes.

    Of a folder or a pattern, the first file is looked at.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "file"
    >>> for text in ("good morning", "u7 i31", "user,item\\n7,31", "well, then"):
    ...     _ = path.write_text(text)
    ...     print(recognise(path))
    text
    pairs
    csv
    text
    """
    first = files_of(path)[0]
    head = head_of(first)
    if head.startswith(b"PAR1"):
        return "parquet"
    lines = [line.rstrip("\r") for line in decoded(head, first).split("\n") if line.strip()]
    if not lines:
        raise ValueError(f"{first} is empty")
    if _is_atomic(lines[0]):
        return "atomic"
    if _is_regular(lines):
        return "csv"
    if _are_lists(lines):
        return "lists"
    return "pairs" if all(map(_is_pair, lines)) else "text"


def scan_table(path: Path, kind: TableKind) -> pl.LazyFrame:
    """Return the table of one file; in all formats but Parquet every column holds strings.

    Without a header the first column is named user, the second item, the last time if it begins
    with a number of at least 1e8, and any other column_3, column_4, … Pairs, and lists of a user
    and their items, have a user and an item in each row. Parquet is read by column when it is
    collected, everything else here. CSV is that of RFC 4180, atomic files are RecBole's.

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
        words = _words_by_line(text)
        return (_pairs(words, path) if kind == "pairs" else _lists(words)).lazy()
    with table_errors(path):
        return (_atomic(text, path) if kind == "atomic" else _csv(text, path)).lazy()


def atomic_types(path: str | Path) -> dict[str, AtomicType]:
    """Return the name and the type of each column of an atomic file, in their order.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "log.item"
    >>> _ = path.write_text("item_id:token\\tgenres:token_seq\\n31\\tDrama Crime\\n")
    >>> atomic_types(path)
    {'item_id': 'token', 'genres': 'token_seq'}
    """
    path = Path(path)
    return _atomic_header(decoded(head_of(path), path), path)


@contextmanager
def table_errors(path: Path) -> Iterator[None]:
    """Turn what polars and csv raise into a ValueError that names the file."""
    try:
        yield
    except _UNREADABLE as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{path} cannot be read as a table: {reason}") from error


def _is_atomic(line: str) -> bool:
    return all(_TYPED.fullmatch(field) for field in line.split("\t"))


def _is_regular(lines: list[str]) -> bool:
    """Whether lines look like CSV: as many columns in each, and no blank after a separator."""
    separator = _separator_of(lines[0])
    if not separator or f"{separator} " in lines[0]:
        return False
    try:
        return len({len(row) for row in csv.reader(lines, delimiter=separator)}) == 1
    except csv.Error:
        return False


def _separator_of(line: str) -> str:
    """Return which of tab, comma and semicolon a line has most of; "" if it has none."""
    best = max(_SEPARATORS, key=line.count)
    return best if best in line else ""


def _are_lists(lines: list[str]) -> bool:
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


def _is_pair(line: str) -> bool:
    words = line.split()
    return len(words) == 2 and all(any(map(str.isdigit, word)) for word in words)


def _csv(text: str, path: Path) -> pl.DataFrame:
    first = text.split("\n", 1)[0].rstrip("\r")
    separator = _separator_of(first)
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
    _atomic_header(text, path)
    data = io.BytesIO(text.encode())
    # A quote is a character like any other in these files.
    table = pl.read_csv(data, separator="\t", quote_char=None, infer_schema=False)
    return table.rename(lambda name: name.partition(":")[0])


def _atomic_header(text: str, path: Path) -> dict[str, AtomicType]:
    line = text.split("\n", 1)[0].rstrip("\r")
    if not _is_atomic(line):
        raise ValueError(f"{path}, line 1: an atomic file types its columns, got {quoted(line)}")
    fields = (field.split(":") for field in line.split("\t"))
    return {name: cast("AtomicType", kind) for name, kind in fields}


def _words_by_line(text: str) -> pl.DataFrame:
    """Return the words of ``text`` and the number of the line each stands in, from 0."""
    plain = with_blanks(text.encode()).decode()
    lines = pl.Series("word", [plain]).str.split("\n").explode().str.split(" ")
    return lines.to_frame().with_row_index("line").explode("word").filter(pl.col("word") != "")


def _pairs(words: pl.DataFrame, path: Path) -> pl.DataFrame:
    lengths = np.bincount(words["line"])
    wrong = np.flatnonzero((lengths != 2) & (lengths != 0))
    if len(wrong):
        raise ValueError(
            f"{path}, line {wrong[0] + 1:,}: a user and an item wanted, got "
            f'{lengths[wrong[0]]:,} words; kind="lists" reads a user and their items, '
            'kind="text" sentences'
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
