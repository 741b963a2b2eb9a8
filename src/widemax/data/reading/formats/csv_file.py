"""CSV as in RFC 4180, between commas, semicolons or tabs, with a header or without."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import polars as pl

from widemax.data.reading.files import read_all
from widemax.data.reading.formats.base import ITEM, TIME, USER, FileHead, TableFormat
from widemax.declarations import declare
from widemax.vocabulary.keys import quoted

_SEPARATORS = ("\t", ",", ";")
_EARLIEST_EPOCH = 1e8  # 1973 in seconds; ratings and counts are smaller


@declare.file_format("csv")
class CsvFormat(TableFormat):
    """CSV: every line has as many fields as the first, at least two."""

    rank = 30

    @staticmethod
    def recognises(head: FileHead) -> bool:
        """Return whether lines have as many columns each, and no blank after a separator.

        The separator is that of which the first line has most; a comma in a sentence is followed by
        a blank.
        """
        separator = _separator_of(head.lines[0])
        if not separator or f"{separator} " in head.lines[0]:
            return False
        try:
            return len({len(row) for row in csv.reader(head.lines, delimiter=separator)}) == 1
        except csv.Error:
            return False

    @staticmethod
    def scan(path: Path) -> pl.LazyFrame:
        """Return the table of a file; every column holds strings.

        Without a header the first column is named user, the second item, the last time if it begins
        with a number of at least 1e8, and any other column_3, column_4, …
        """
        return _csv(read_all(path).rstrip("\r\n"), path).lazy()


def _separator_of(line: str) -> str:
    """Return which of tab, comma and semicolon a line has most of; "" if it has none."""
    best = max(_SEPARATORS, key=line.count)
    return best if best in line else ""


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
