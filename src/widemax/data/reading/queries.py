"""What a database answers, kept in a file of its own while it is read as a table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl

from widemax.data.reading.formats.base import QueriedFormat
from widemax.data.reading.formats.parquet import ParquetFormat
from widemax.data.reading.tables import format_of
from widemax.extras import import_extra
from widemax.stores.addresses import Place


@contextmanager
def answered(place: Place, kind: str, query: str) -> Iterator[pl.LazyFrame]:
    """Yield the answer to a query of SQL as a table, to be read by column like Parquet.

    The rows go batch by batch into a file that only this user can read, and that is removed at the
    end: as many may come as the disk holds, and a query is asked once however often it is read.
    """
    found = format_of(kind)
    if not issubclass(found, QueriedFormat):
        raise ValueError(f"query is for a database, and {place} is {kind}")
    if not query.strip():
        raise ValueError('query must be one SELECT of SQL, got ""')
    parquet = import_extra(found.extra, "pyarrow.parquet")
    with TemporaryDirectory(prefix="widemax-") as folder:
        path = Path(folder) / "answer.parquet"
        with (
            found.answer(place, query) as batches,
            parquet.ParquetWriter(path, batches.schema.remove_metadata()) as writer,
        ):
            for batch in batches:
                writer.write_batch(batch)
        yield ParquetFormat.scan(path)
