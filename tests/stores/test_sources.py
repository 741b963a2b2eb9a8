"""Logs by a query: the rows of a database are read as those of Parquet are."""

import datetime
import re
import uuid

import duckdb
import numpy as np
import polars as pl
import psycopg
import pytest
import torch
from typer.testing import CliRunner

import widemax as wm
from tests.runs.settings import config_with
from widemax.cli.app import app
from widemax.data.reading.source import read_source
from widemax.data.reading.tables import recognise
from widemax.runs.training.preparing import prepare

ROWS = 3000
QUERY = "select user_id, item_id, ts from clicks -- all of them"
SECRET = "s3cr3t"


@pytest.fixture(scope="module")
def table():
    generator = np.random.default_rng(0)
    start = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    seconds = generator.integers(10**6, size=ROWS)
    return pl.DataFrame(
        {
            "user_id": generator.integers(200, size=ROWS),
            "item_id": [f"i{item}" for item in generator.zipf(1.5, ROWS) % 60],
            "ts": [start + datetime.timedelta(seconds=int(each)) for each in seconds],
            "rating": generator.integers(1, 6, size=ROWS) / 2,
        }
    )


@pytest.fixture(scope="module")
def parquet(table, tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "clicks.parquet"
    table.write_parquet(path)
    return path


@pytest.fixture
def postgres(database, table):
    with psycopg.connect(database) as connection:
        connection.execute(
            "create table clicks (user_id bigint, item_id text, ts timestamptz, rating numeric)"
        )
        with connection.cursor().copy("copy clicks from stdin") as rows:
            for row in table.iter_rows():
                rows.write_row(row)
    return database


@pytest.fixture
def duck(parquet, tmp_path):
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(path) as connection:
        connection.execute(f"create table clicks as select * from '{parquet}'")
    return path


@pytest.fixture(params=["postgres", "duck"])
def place(request):
    return request.getfixturevalue(request.param)


def assert_same(found, expected):
    for name in ("values", "offsets", "times", "weights"):
        ours, theirs = (getattr(each.sequences, name) for each in (found, expected))
        assert (ours is None) == (theirs is None)
        assert ours is None or torch.equal(ours, theirs)
    assert found.vocabulary == expected.vocabulary
    assert found.sequences.names.equals(expected.sequences.names)


def test_a_query_gives_what_parquet_does(place, parquet):
    assert recognise(place) == ("duckdb" if str(place).endswith(".duckdb") else "postgresql")
    assert_same(read_source(place, query=QUERY), read_source(parquet))
    options = {"weight_column": "rating", "where": "rating >= 1.5", "core": 2}
    query = "select * from clicks;"
    assert_same(read_source(place, query=query, **options), read_source(parquet, **options))


def test_the_query_chooses_and_orders(place, parquet, table):
    found = read_source(place, query="select user_id, item_id from clicks where rating > 2")
    assert len(found.sequences.values) == (table["rating"] > 2).sum()
    assert found.sequences.times is None


@pytest.mark.parametrize(
    "query",
    ["delete from clicks", "drop table clicks", "select 1; select 2", "", " ", "select * from gone",
     "select user_id, item_id from clicks where", "select 1) to program 'true' --"],
)  # fmt: skip
def test_what_is_no_question_is_refused_and_changes_nothing(place, query):
    with pytest.raises(ValueError, match=r"query|database"):
        read_source(place, query=query)
    assert len(read_source(place, query=QUERY).sequences.values) == ROWS


def test_a_query_reaches_no_other_file(duck, parquet):
    with pytest.raises(ValueError, match="query cannot be answered"):
        read_source(duck, query=f"select * from '{parquet}'")


def test_an_error_half_way_is_one_line(postgres):
    query = "select user_id, item_id, 1 / (user_id - 100) from clicks"
    with pytest.raises(ValueError, match="division by zero"):
        read_source(postgres, query=query)


def test_types_of_a_database(database):
    keys = [str(uuid.uuid4()) for _ in range(3)]
    with psycopg.connect(database) as connection:
        connection.execute("create type kind as enum ('tea', 'rum')")
        connection.execute("create table log (who uuid, what kind, stars numeric(3, 1), d date)")
        for key, what in zip(keys, ("tea", "rum", "tea"), strict=True):
            connection.execute("insert into log values (%s, %s, 2.5, '1970-01-02')", [key, what])
    columns = {"user_column": "who", "item_column": "what", "time_column": "d"}
    found = read_source(database, query="select * from log", weight_column="stars", **columns)
    assert found.sequences.names.to_list() == keys
    assert found.vocabulary.keys.to_list() == ["tea", "rum"]
    assert found.sequences.times.tolist() == [86400.0] * 3
    assert found.sequences.weights.tolist() == [2.5] * 3


def test_a_database_needs_a_query_and_nothing_else_takes_one(place, parquet, tmp_path):
    with pytest.raises(ValueError, match="is a database"):
        read_source(place)
    with pytest.raises(ValueError, match=r"query is for a database, and .* is parquet"):
        read_source(parquet, query=QUERY)
    text = tmp_path / "text"
    text.write_text("good morning\nto you all\n")
    with pytest.raises(ValueError, match="query is for a database"):
        read_source(text, query=QUERY)
    with pytest.raises(ValueError, match="has no column that looks like the user"):
        read_source(place, query="select item_id from clicks")
    with pytest.raises(ValueError, match="is empty: it has the columns 'user_id', 'item_id'"):
        read_source(place, query="select user_id, item_id from clicks where user_id < 0")


def settings(**options):
    values = {"epochs": 2, "dimension": 4, "batch_size": 256, "num_samples": 8, "seed": 3}
    return config_with(source=None, **values, **options)


def model_of(folder):
    return wm.load(folder, checkpoint="last").model.state_dict()


def test_a_run_by_sql_has_the_bits_of_one_by_parquet_and_resumes(postgres, parquet, tmp_path):
    wm.train(parquet, settings(), folder=tmp_path / "parquet")
    address = postgres.replace("postgres@", f"postgres:{SECRET}@")
    half = prepare(address, settings(query=QUERY).changed(epochs=1), tmp_path / "sql")
    half.run()
    wm.train(address, wm.Config(epochs=2), folder=tmp_path / "sql", resume=True)
    ours, theirs = (model_of(tmp_path / name) for name in ("sql", "parquet"))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    run = wm.load(tmp_path / "sql")
    assert run.description["source"] == postgres
    assert run.config.query == QUERY
    for path in (tmp_path / "sql").rglob("*"):
        assert path.is_dir() or SECRET.encode() not in path.read_bytes()


def test_the_verb_says_nothing_of_the_password(postgres, tmp_path):
    address = postgres.replace("postgres@", f"postgres:{SECRET}@")
    words = ["train", address, "--query", "select * from gone", "--folder", str(tmp_path / "run")]
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, ValueError)
    assert re.search('relation "gone" does not exist', str(done.exception))
    assert SECRET not in done.output + str(done.exception)
    nobody = f"postgresql://ann:{SECRET}@127.0.0.1:1/shop"
    done = CliRunner().invoke(app, [words[0], nobody, *words[2:]])
    assert "Failed to connect" in str(done.exception)
    assert SECRET not in str(done.exception)
