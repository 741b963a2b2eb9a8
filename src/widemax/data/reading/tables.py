"""What a file holds, and its table: by the formats that are declared."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from widemax.data.reading.files import files_of
from widemax.data.reading.formats.base import FileHead, TableFormat
from widemax.declarations import declared, find, nearest
from widemax.declarations.table import load
from widemax.stores.addresses import is_address

TEXT = "text"
"""What a file is that no format of logs recognises."""

POSTGRES = "postgresql"
"""What an address is the address of."""

_JSON_ARRAY = re.compile(rb"\s*\[\s*\{\s*\"")
_UNREADABLE = (OSError, csv.Error, pl.exceptions.PolarsError, pl.exceptions.PanicException)


def formats() -> tuple[str, ...]:
    """Return the names of what a source may be: a text, or a log in one of these formats.

    >>> formats()[0], {"csv", "parquet"} <= set(formats())
    ('text', True)
    """
    return (TEXT, *declared("format"))


def check_kind(kind: str, known: tuple[str, ...] | None = None) -> str:
    """Return the name of a format, if it is one.

    >>> check_kind("parket")
    Traceback (most recent call last):
    ValueError: kind must be one of text, ..., postgresql, got 'parket'; did you mean 'parquet'?
    """
    known = formats() if known is None else known
    if kind not in known:
        raise ValueError(
            f"kind must be one of {', '.join(known)}, got {kind!r}{nearest(kind, known)}"
        )
    return kind


def recognise(path: str | Path) -> str:
    """Return what a file holds, by the first 64 KB of its content.

    It is of the first format, in the order of their ranks, that recognises it, else a text (UTF-8
    without NUL bytes), but for an array of JSON, which nobody means as one. Of a folder or a
    pattern, the first file is looked at.

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
    if is_address(path):
        return POSTGRES
    head = FileHead(files_of(path)[0])
    known: dict[str, TableFormat] = {name: load(each) for name, each in declared("format").items()}
    for name in sorted(known, key=lambda each: known[each].rank):
        if known[name].recognises(head):
            return name
    if _JSON_ARRAY.match(head.raw):
        raise ValueError(
            f"{head.path} is a JSON array: write each object on a line of its own (jq -c '.[]'), "
            "or read it as a text (--kind text)"
        )
    return TEXT


def scan_table(path: Path, kind: str) -> pl.LazyFrame:
    """Return the table of one file; every column holds strings, unless its format is typed.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "log"
    >>> _ = path.write_text("7;tea;1700000000\\n7;rum;1700000060\\n")
    >>> scan_table(path, "csv").collect().row(1)
    ('7', 'rum', '1700000060')
    """
    with table_errors(path):
        return format_of(kind).scan(path)


def format_of(kind: str) -> type[TableFormat]:
    """Return the format of this name.

    >>> format_of("parquet").typed, format_of("lists").named
    (True, False)
    """
    found: type[TableFormat] = load(find("format", kind))
    return found


@contextmanager
def table_errors(path: Path | str) -> Iterator[None]:
    """Turn what polars and csv raise into a ValueError that names the file or the database."""
    try:
        yield
    except _UNREADABLE as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{path} cannot be read as a table: {reason}") from error
