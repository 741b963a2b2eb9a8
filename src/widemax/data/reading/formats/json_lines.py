"""JSON lines: an object in each line, whose members are the columns."""

from __future__ import annotations

import io
import json
from pathlib import Path

import polars as pl

from widemax.data.reading.files import read_all
from widemax.data.reading.formats.base import FileHead, TableFormat
from widemax.declarations import declare


@declare.file_format("jsonl")
class JsonLinesFormat(TableFormat):
    """JSON lines: the first line is an object, with a member for each column."""

    rank = 15
    typed = True

    @staticmethod
    def recognises(head: FileHead) -> bool:
        """Return whether the first line is an object of JSON."""
        first = head.lines[0].strip()
        if not first.startswith("{"):
            return False
        try:
            return isinstance(json.loads(first), dict)
        except (ValueError, RecursionError):
            return False

    @staticmethod
    def scan(path: Path) -> pl.LazyFrame:
        """Return the table of a file; what an object does not have is null."""
        # The types by all lines: a member may be missing in the first ones, or null.
        data = io.BytesIO(read_all(path).encode())
        return pl.read_ndjson(data, infer_schema_length=None).lazy()
