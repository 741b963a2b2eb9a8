"""CSV as in RFC 4180, between commas, semicolons or tabs, with a header or without.

Between semicolons a column of numbers may have decimal commas: so a spreadsheet writes 4.5 where
people do.
"""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import polars as pl

from widemax.data.reading.files import read_all
from widemax.data.reading.formats.base import (
    ITEM,
    TIME,
    USER,
    FileHead,
    TableFormat,
    names_a_log,
)
from widemax.declarations import declare
from widemax.vocabulary.spelling import quoted

_SEPARATORS = ("\t", ",", ";")
_SEMICOLON = ";"
_JSON_ARRAY = "[{"
_NUMBER_WITH_COMMA = r"^\s*[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?\s*$"
_EARLIEST_EPOCH = 1e8  # 1973 in seconds; ratings and counts are smaller


@declare.file_format("csv")
class CsvFormat(TableFormat):
    """CSV: every line has as many fields as the first, at least two."""

    rank = 30

    @staticmethod
    def recognises(head: FileHead) -> bool:
        """Return whether the first line can only be one of a table, or all lines agree with it.

        It can if it names a user and an item, or holds numbers between commas: what is wrong below
        it is then an error of a row. Else all lines have as many columns, and no blank follows a
        separator: a comma in a sentence is followed by one. The separator is that of which the
        first line has most.
        """
        first = head.lines[0]
        separator = _separator_of(first)
        if not separator or first.startswith(_JSON_ARRAY):
            return False
        fields = _fields_of(first, separator)
        if names_a_log(fields) or (separator != "\t" and all(map(_is_number, fields))):
            return True
        if f"{separator} " in first:
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
        text = read_all(path).rstrip("\r\n")
        table = _csv(text, path)
        if _separator_of(text.split("\n", 1)[0]) == _SEMICOLON:
            table = table.with_columns(map(_with_points, table))
        return table.lazy()


def _separator_of(line: str) -> str:
    """Return which of tab, comma and semicolon a line has most of; "" if it has none."""
    best = max(_SEPARATORS, key=line.count)
    return best if best in line else ""


def _fields_of(line: str, separator: str) -> list[str]:
    """Return the fields of a first line, without the blanks around them."""
    try:
        fields = next(csv.reader([line], delimiter=separator, skipinitialspace=True))
    except csv.Error:
        return []
    return [field.strip() for field in fields]


def _with_points(column: pl.Series) -> pl.Series:
    """Return a column of numbers such as 1.234,5 as 1234.5, any other column as it is."""
    if not column.str.contains(",", literal=True).any():
        return column
    are_numbers = column.str.contains(_NUMBER_WITH_COMMA) | (column == "")
    if not are_numbers.all():
        return column
    return column.str.replace_all(".", "", literal=True).str.replace(",", ".", literal=True)


def _csv(text: str, path: Path) -> pl.DataFrame:
    first = text.split("\n", 1)[0].rstrip("\r")
    separator = _separator_of(first)
    if not separator:
        raise ValueError(f"{path}, line 1: no tab, comma or semicolon in {quoted(first)}")
    fields = _fields_of(first, separator)
    has_header = not any(map(_is_number, fields))
    try:
        table = pl.read_csv(
            io.BytesIO(text.encode()),
            separator=separator,
            has_header=has_header,
            infer_schema=False,
            new_columns=None if has_header else _names_without_header(fields),
        )
    except pl.exceptions.PolarsError:
        _check_rows(text, separator, has_header, path)
        raise
    if not has_header:
        return table
    # Where blanks follow the separators of the header, they do in every row.
    blanks_around = f"{separator} " in first
    return _without_blanks(table) if blanks_around else table.rename(str.strip)


def _without_blanks(table: pl.DataFrame) -> pl.DataFrame:
    """Return a table without blanks around names and fields, nor the quotes they kept shut."""
    plain = pl.all().str.strip_chars().str.replace(r'(?s)^"(.*)"$', "$1")
    return table.select(plain).rename(lambda name: name.strip().strip('"'))


def _check_rows(text: str, separator: str, has_header: bool, path: Path) -> None:
    """Name the first row that is wrong: polars does not say which."""
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    row = width = 0
    try:
        for fields in rows:
            width = width or len(fields)
            row += 1
            if len(fields) > width:
                found = f"{len(fields):,} fields, but {width:,} in the first line"
                raise ValueError(f"{path}, row {row - has_header:,}: {found}")
    except csv.Error as error:
        ends = "unexpected end" in str(error) or "field larger" in str(error)
        problem = "a quote is opened and not closed" if ends else f"quotes are wrong ({error})"
        raise ValueError(f"{path}, row {row + 1 - has_header:,}: {problem}") from error


def _names_without_header(fields: list[str]) -> list[str]:
    names = [USER, ITEM, *(f"column_{place}" for place in range(3, len(fields) + 1))]
    if len(fields) > 2 and _is_number(fields[-1]) and float(fields[-1]) >= _EARLIEST_EPOCH:
        names[-1] = TIME
    return names


def _is_number(field: str) -> bool:
    return re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", field.strip()) is not None
