"""RecBole's atomic files, whose header gives each column a type."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Literal, TypeAlias, cast

import polars as pl

from widemax.data.reading.files import decoded, head_of, read_all
from widemax.data.reading.formats.base import FileHead, TableFormat
from widemax.declarations import declare
from widemax.vocabulary.spelling import quoted

AtomicType: TypeAlias = Literal["token", "float", "token_seq", "float_seq"]
"""What the header of an atomic file says of a column; a _seq holds values between blanks."""

_TYPED = re.compile(r"[^\s:]+:(token|float)(_seq)?")


@declare.file_format("atomic")
class AtomicFormat(TableFormat):
    """An atomic file: every field of the first line is a name with a type, as user_id:token."""

    rank = 20

    @staticmethod
    def recognises(head: FileHead) -> bool:
        """Return whether every field of the first line, between tabs, is a name with a type."""
        return _is_header(head.lines[0])

    @staticmethod
    def scan(path: Path) -> pl.LazyFrame:
        """Return the table of a file; every column holds strings."""
        text = read_all(path).rstrip("\r\n")
        _types(text, path)
        data = io.BytesIO(text.encode())
        # A quote is a character like any other in these files.
        table = pl.read_csv(data, separator="\t", quote_char=None, infer_schema=False)
        return table.rename(lambda name: name.partition(":")[0]).lazy()


def atomic_types(path: str | Path) -> dict[str, AtomicType]:
    """Return the name and the type of each column of an atomic file, in their order.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "log.item"
    >>> _ = path.write_text("item_id:token\\tgenres:token_seq\\n31\\tDrama Crime\\n")
    >>> atomic_types(path)
    {'item_id': 'token', 'genres': 'token_seq'}
    """
    path = Path(path)
    return _types(decoded(head_of(path), path), path)


def _is_header(line: str) -> bool:
    return all(_TYPED.fullmatch(field) for field in line.split("\t"))


def _types(text: str, path: Path) -> dict[str, AtomicType]:
    line = text.split("\n", 1)[0].rstrip("\r")
    if not _is_header(line):
        raise ValueError(f"{path}, line 1: an atomic file types its columns, got {quoted(line)}")
    fields = (field.split(":") for field in line.split("\t"))
    return {name: cast("AtomicType", kind) for name, kind in fields}
