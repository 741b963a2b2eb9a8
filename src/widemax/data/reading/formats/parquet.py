"""Parquet, which is read by column when it is collected."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from widemax.data.reading.formats.base import FileHead, TableFormat
from widemax.declarations import declare


@declare.file_format("parquet")
class ParquetFormat(TableFormat):
    """A Parquet file: it begins with PAR1."""

    rank = 10
    typed = True

    @staticmethod
    def recognises(head: FileHead) -> bool:
        """Return whether the file begins with the mark of Parquet."""
        return head.raw.startswith(b"PAR1")

    @staticmethod
    def scan(path: Path) -> pl.LazyFrame:
        """Return the table of a file."""
        # As a plain name: polars would read patterns and partitions into it.
        return pl.scan_parquet(path, glob=False, hive_partitioning=False)
