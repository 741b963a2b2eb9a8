"""Partitioned Parquet: columns in the names of folders, and a vocabulary counted over processes."""

import random

import duckdb
import polars as pl
import pytest

from tests.distributed.processes import measured_by_all
from widemax.data import read_source
from widemax.distributed import Wire, counted_vocabulary

OPTIONS = ({}, {"min_count": 3}, {"max_size": 7}, {"where": "day > 1"})


def item(drawn):
    return drawn.randrange(drawn.randrange(1, 60))


def write(folder, *, days=5, codes=False):
    """Write a log as DuckDB partitions it: a folder for each day."""
    drawn = random.Random(4)
    rows = [
        (drawn.randrange(9), drawn.randrange(1, 1 + days), item(drawn), time) for time in range(300)
    ]
    frame = pl.DataFrame(rows, schema=["user", "day", "item", "time"], orient="row")
    if not codes:
        frame = frame.with_columns(pl.format("i{}", "item").alias("item"))
    with duckdb.connect() as database:
        database.register("log", frame.to_arrow())
        database.execute(
            f"COPY (SELECT * FROM log ORDER BY day, time) TO '{folder}' "
            "(FORMAT parquet, PARTITION_BY (day))"
        )
    return frame.sort("day", "time")


def test_columns_of_folders_are_read(tmp_path):
    frame = write(tmp_path / "log")
    source = read_source(tmp_path / "log", where="day >= 3 AND day < 5")
    wanted = frame.filter(pl.col("day").is_between(3, 4))["item"].value_counts()
    assert dict(
        zip(source.vocabulary.keys, source.vocabulary.counts.tolist(), strict=True)
    ) == dict(wanted.iter_rows())
    as_item = read_source(tmp_path / "log", item_column="day")
    assert sorted(as_item.vocabulary.keys.to_list()) == [1, 2, 3, 4, 5]


def test_names_are_unquoted_and_a_missing_value_is_none(tmp_path):
    for name, user in (("town=Bad%20K%C3%B6nig", 1), ("town=Ulm", 2)):
        (tmp_path / "log" / name).mkdir(parents=True)
        frame = pl.DataFrame({"user": [user], "item": [3]})
        frame.write_parquet(tmp_path / "log" / name / "part-0.parquet")
    read = read_source(tmp_path / "log", item_column="town")
    assert sorted(read.vocabulary.keys.to_list()) == ["Bad König", "Ulm"]
    (tmp_path / "log" / "town=__HIVE_DEFAULT_PARTITION__").mkdir()
    frame.write_parquet(tmp_path / "log" / "town=__HIVE_DEFAULT_PARTITION__" / "part-0.parquet")
    with pytest.raises(ValueError, match="column town, row 1"):
        read_source(tmp_path / "log", item_column="town")
    frame.write_parquet(tmp_path / "log" / "part-0.parquet")
    with pytest.raises(ValueError, match="all files must have the same"):
        read_source(tmp_path / "log")


def vocabularies(folder, wire):
    return [
        (found.keys.to_list(), found.counts.tolist())
        for found in (counted_vocabulary(folder, wire, **options) for options in OPTIONS)
    ]


def work(groups):
    """Return what is counted by each number of processes; each writes the files for itself."""
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as place:
        found = {}
        for codes, days in ((False, 5), (True, 3)):
            folder = Path(place) / str(days)
            write(folder, days=days, codes=codes)
            for size, group in groups.items():
                found[codes, days, size] = vocabularies(folder, Wire(group))
    return found


@pytest.fixture(scope="module")
def measured(request, tmp_path_factory):
    return measured_by_all(request, tmp_path_factory)


def test_a_vocabulary_is_counted_over_processes(measured, tmp_path):
    for codes, days in ((False, 5), (True, 3)):
        write(tmp_path / str(days), days=days, codes=codes)
        wanted = []
        for options in OPTIONS:
            found = read_source(tmp_path / str(days), **options).vocabulary
            wanted.append((found.keys.to_list(), found.counts.tolist()))
        for rank, by_size in enumerate(measured):
            for size in (2, 3, 4):
                if rank < size:
                    assert by_size[codes, days, size] == wanted, (codes, size, rank)
