"""A file format of your own: one JSON object per line.

widemax --plugin examples/plugins/json_lines.py train log.jsonl --folder run
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

import widemax as wm
from widemax.data.reading.formats import FileHead, TableFormat


@wm.declare.file_format("json-lines")
class JsonLinesFormat(TableFormat):
    """JSON lines: every line is an object."""

    rank = 15  # asked before CSV and text, which would take the lines for theirs

    @staticmethod
    def recognises(head: FileHead) -> bool:
        """Return whether every line looks like an object."""
        return all(line.startswith("{") and line.endswith("}") for line in head.lines[:-1]) and (
            head.lines[0].startswith('{"')
        )

    @staticmethod
    def scan(path: Path) -> pl.LazyFrame:
        """Return the table of a file, its keys as columns."""
        return pl.scan_ndjson(path)
