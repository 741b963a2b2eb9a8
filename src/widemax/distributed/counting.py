"""The vocabulary of a log in many files, of which each process counts some."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import polars as pl
import torch

from widemax.data.reading.files import files_of, partitions_of
from widemax.data.reading.logs import Columns, NoRowError, scan_log
from widemax.data.reading.tables import recognise
from widemax.distributed.wire import Wire
from widemax.vocabulary import Vocabulary
from widemax.vocabulary.spelling import Key

_SUMMED = (pl.col("count").sum(), pl.col("file").min(), pl.col("row").sort_by("file").first())


def counted_vocabulary(
    path: str | Path,
    wire: Wire,
    *,
    item_column: str = "",
    user_column: str = "",
    where: str = "",
    min_count: int = 1,
    max_size: int | None = None,
    unknown: Key | None = None,
) -> Vocabulary:
    """Return the vocabulary that ``read_source`` finds, each file read by one process alone.

    Each process takes every n-th file and reads one at a time, its column of items alone; keys
    with their counts then go to all. Classes of equal count stand in the order in which they first
    come, over all files, as in one process. All processes call it together; each must see the
    files, of which there may be fewer than processes.

    >>> import tempfile
    >>> import torch.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> folder = Path(tempfile.mkdtemp())
    >>> for day, items in enumerate((["tea", "rum"], ["rum", "gin"])):
    ...     place = folder / f"day={day}"
    ...     place.mkdir()
    ...     frame = pl.DataFrame({"user": [1, 2], "item": items})
    ...     frame.write_parquet(place / "part-0.parquet")
    >>> counted_vocabulary(folder, Wire()).keys.to_list()
    ['rum', 'tea', 'gin']
    >>> dist.destroy_process_group()
    """
    files = files_of(path)
    kind, folders = recognise(path), partitions_of(path, files)
    wanted = Columns(user_column, item_column)
    found: list[pl.DataFrame] = []
    for place in range(wire.rank, len(files), wire.size):
        try:
            log = scan_log([files[place]], kind, wanted, where, partitions=[folders[place]])
        except NoRowError:
            continue
        found.append(_counted(log.items(), place))
        if len(found) > 1:
            found = [_joined(found)]
    counts = _exchanged(found, wire)
    if not counts:
        raise ValueError(f"{path} has no row for which {where} holds")
    every = _joined(counts).sort("file", "row")
    return Vocabulary.from_counts(
        every["key"],
        every["count"].to_numpy(),
        min_count=min_count,
        max_size=max_size,
        unknown=unknown,
    )


def _counted(items: pl.Series, file: int) -> pl.DataFrame:
    """Return each key of a file with how often, and where it first comes."""
    rows = pl.DataFrame({"key": items, "row": np.arange(len(items), dtype=np.int64)})
    return rows.group_by("key").agg(
        pl.len().cast(pl.Int64).alias("count"),
        pl.lit(file, dtype=pl.Int64).first().alias("file"),
        pl.col("row").min(),
    )


def _joined(parts: list[pl.DataFrame]) -> pl.DataFrame:
    kinds = {part["key"].dtype for part in parts}
    if len(kinds) > 1:
        raise ValueError("items must be whole numbers in all files, or strings in all of them")
    return pl.concat(parts).group_by("key").agg(*_SUMMED)


def _exchanged(own: list[pl.DataFrame], wire: Wire) -> list[pl.DataFrame]:
    """Return the counts of all processes that have some; they travel as Arrow's own bytes."""
    room = io.BytesIO()
    if own:
        own[0].write_ipc(room)
    sent = torch.frombuffer(bytearray(room.getvalue() or b"\0"), dtype=torch.uint8)
    parts = wire.gathered(sent if own else sent[:0])
    return [pl.read_ipc(io.BytesIO(part.numpy().tobytes())) for part in parts if len(part)]
