"""Logs: every format gives the same sequences, sorted as a plain sort would."""

import gzip
import logging
from datetime import date

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from widemax.data.reading.logs import Columns
from widemax.data.reading.source import read_source
from widemax.data.reading.tables import recognise

ROWS = [(7, "rum", 30), (8, "tea", 20), (7, "gin", 10), (7, "rum", 40), (8, "rum", 20)]
SEQUENCES = {7: ["gin", "rum", "rum"], 8: ["tea", "rum"]}


def as_dict(sequences, vocabulary):
    parts = [vocabulary.decode(sequences.sequence(index)) for index in range(len(sequences))]
    return dict(zip(sequences.names.to_list(), parts, strict=True))


def write_rows(path, kind, rows, separator=","):
    table = pl.DataFrame(rows, schema=["userId", "item_id", "Timestamp"], orient="row")
    if kind == "parquet":
        table.write_parquet(path)
    elif kind == "csv":
        table.write_csv(path, separator=separator)
    else:
        types = {
            "userId": "userId:token",
            "item_id": "item_id:token",
            "Timestamp": "Timestamp:float",
        }
        table.rename(types).write_csv(path, separator="\t")


@pytest.mark.parametrize(
    ("kind", "separator"),
    [("parquet", ""), ("csv", ","), ("csv", "\t"), ("csv", ";"), ("atomic", "\t")],
)
def test_every_format_gives_the_same(tmp_path, kind, separator):
    path = tmp_path / "log.txt"  # a name that says nothing
    write_rows(path, kind, ROWS, separator)
    assert recognise(path) == kind
    source = read_source(path)
    assert as_dict(source.sequences, source.vocabulary) == SEQUENCES
    assert source.columns == Columns("userId", "item_id", "Timestamp")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc"), st.integers(-3, 3)), min_size=1)
)
def test_sorted_as_a_plain_sort_would(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("log") / "log"
    write_rows(path, "csv", rows)
    read = read_source(path, kind="csv")
    expected: dict[int, list[str]] = {user: [] for user, _, _ in rows}
    for user, item, _ in sorted(rows, key=lambda row: row[2]):
        expected[user].append(item)
    found = as_dict(read.sequences, read.vocabulary)
    assert found == expected
    assert list(found) == list(expected)


def test_pairs_keep_their_order(tmp_path):
    path = tmp_path / "log"
    path.write_text("7 31\n8 12\n\n7\t5\n7  31\r\n")
    source = read_source(path)
    assert source.kind == "pairs"
    assert as_dict(source.sequences, source.vocabulary) == {7: [31, 5, 31], 8: [12]}


def test_without_a_header_the_first_columns_count_and_a_large_last_one_is_the_time(tmp_path):
    path = tmp_path / "u.data"
    path.write_text("7\t31\t5\t881250949\n7\t12\t5\t881250900\n")
    source = read_source(path)
    assert source.columns == Columns("user", "item", "time")
    assert as_dict(source.sequences, source.vocabulary) == {7: [12, 31]}
    path.write_text("7,31,5\n7,12,4\n")
    source = read_source(path)
    assert source.columns == Columns("user", "item", "")
    assert as_dict(source.sequences, source.vocabulary) == {7: [31, 12]}


def test_given_columns_come_before_guesses(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("user,item,session,page,at\n1,2,s,p,5\n1,2,s,q,3\n")
    source = read_source(path, user_column="session", item_column="page", time_column="at")
    assert as_dict(source.sequences, source.vocabulary) == {"s": ["q", "p"]}


def test_quoted_fields_and_gzip(tmp_path):
    path = tmp_path / "log"
    text = 'user_id,item_id\nann,"tea, black"\nann,"the ""best""\nrum"\n'
    path.write_bytes(gzip.compress(text.encode()))
    source = read_source(path, kind="csv")
    assert as_dict(source.sequences, source.vocabulary) == {
        "ann": ["tea, black", 'the "best"\nrum']
    }


def test_a_folder_is_one_log(tmp_path):
    for place, rows in enumerate((ROWS[:3], ROWS[3:])):
        write_rows(tmp_path / f"part-{place}", "parquet", rows)
    source = read_source(tmp_path)
    assert as_dict(source.sequences, source.vocabulary) == SEQUENCES


def test_rare_items_go_then_short_sequences(tmp_path):
    path = tmp_path / "log"
    write_rows(path, "csv", [*ROWS, (9, "gin", 1)])
    read = read_source(path, kind="csv", min_count=2, min_length=2)
    assert as_dict(read.sequences, read.vocabulary) == {7: ["gin", "rum", "rum"]}
    assert read.vocabulary.total == 3


@pytest.mark.parametrize(
    ("ids", "keys"),
    [
        (["7", "-12"], [7, -12]),
        (["7", "012"], ["7", "012"]),
        (["7", "+1"], ["7", "+1"]),
        (["7", "b7"], ["7", "b7"]),
        (["7", "1.5.0"], ["7", "1.5.0"]),
        (["9223372036854775807", "1"], [9223372036854775807, 1]),
    ],
)
def test_ids_are_numbers_if_all_are_written_like_numbers(tmp_path, ids, keys):
    path = tmp_path / "log.csv"
    path.write_text("user,item\n" + "".join(f"u,{key}\n" for key in ids))
    assert read_source(path).vocabulary.keys.to_list() == keys


@pytest.mark.parametrize(
    "times",
    [
        ["1700000001", "1700000000"],
        ["1.5", "-2e3"],
        ["2024-03-01", "2024-02-29"],
        ["2024-03-01T10:00:00Z", "2024-03-01T11:00:00+02:00"],
        ["2024-03-01 10:00:00.5", "2024-03-01 10:00:00"],
    ],
)
def test_times_in_any_notation(tmp_path, times, caplog):
    path = tmp_path / "log.csv"
    path.write_text("user,item,time\n" + "".join(f"u,i{time},{time}\n" for time in times))
    with caplog.at_level(logging.WARNING, "widemax.data.reading.source"):
        source = read_source(path)
    assert source.vocabulary.decode(source.sequences.values) == [f"i{time}" for time in times[::-1]]
    assert "the rows of 1 of 1 users were not in time order; sorted by 'time'" in caplog.text


def test_categories_and_dates_of_parquet(tmp_path, caplog):
    path = tmp_path / "log"
    days = [date(2024, 1, 1), date(2025, 1, 1), date(2023, 1, 1)]
    table = pl.DataFrame({"user": ["u", "u", "v"], "item": [1, 2, 3], "date": days})
    table.cast({"user": pl.Categorical, "item": pl.UInt64}).write_parquet(path)
    source = read_source(path)
    assert as_dict(source.sequences, source.vocabulary) == {"u": [1, 2], "v": [3]}
    assert not caplog.records  # nothing was out of order
    table.cast({"date": pl.Datetime("ns")}).reverse().write_parquet(path)
    source = read_source(path)
    assert as_dict(source.sequences, source.vocabulary) == {"u": [1, 2], "v": [3]}
    assert "1 of 2 users" in caplog.text
