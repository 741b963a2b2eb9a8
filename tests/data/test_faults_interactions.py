"""Fault 21 in every kind of log, and readers of split and atomic files fed with anything."""

import logging
from datetime import datetime

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzzing import FUZZ
from widemax.data.reading.formats.atomic import atomic_types
from widemax.data.reading.source import read_source
from widemax.data.reading.tables import scan_table
from widemax.data.splitting.splits import read_split

EPOCH = 1_700_000_000
TABLES = ["parquet", "csv", "atomic"]
WORDS = ["pairs", "lists"]


def write_table(path, kind, columns):
    """Write columns of strings, numbers or None; in Parquet with their own types."""
    table = pl.DataFrame(columns, strict=False)
    if kind == "parquet":
        table.write_parquet(path)
        return
    types = {"time": "float"}
    if kind == "atomic":
        table = table.rename({name: f"{name}:{types.get(name, 'token')}" for name in table.columns})
    table.write_csv(path, separator="\t" if kind == "atomic" else ",")


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"user": [1], "thing": [2]}, "there are 'user', 'thing'"),
        ({"user": [1, 1], "item": [2, None]}, "column item, row 2: the id is missing"),
        ({"user": [1, None], "item": [2, 2]}, "column user, row 2: the id is missing"),
        ({"user": [1, 1], "item": [2.0, 2.5]}, "column item, row 1: an id must be a whole number"),
        (
            {"user": [1, 1], "item": pl.Series([1, 2**63], dtype=pl.UInt64)},
            "column item, row 2: an id must lie within int64, got 9223372036854775808",
        ),
        (
            {"user": [1, 1], "item": [2, 3], "time": [EPOCH, EPOCH * 1000]},
            "column time, row 2: the time 1700000000000 looks like milliseconds",
        ),
        (
            {"user": [1, 1], "item": [2, 3], "time": [EPOCH, None]},
            "column time, row 2: the time is missing",
        ),
        ({"user": [], "item": []}, "is empty: it has the columns 'user', 'item'"),
    ],
)
def test_fault_21_in_every_table(tmp_path, kind, columns, message):
    path = tmp_path / "log"
    write_table(path, kind, columns)
    with pytest.raises(ValueError, match=rf"log.*{message}"):
        read_source(path, kind=kind)


@pytest.mark.parametrize("kind", TABLES)
def test_fault_21_unsorted_times_are_sorted_and_it_says_so(tmp_path, kind, caplog):
    path = tmp_path / "log"
    columns = {"user": [1, 1, 2], "item": ["b", "a", "c"], "time": [EPOCH + 5, EPOCH, EPOCH]}
    write_table(path, kind, columns)
    with caplog.at_level(logging.WARNING, "widemax.data.reading.source"):
        source = read_source(path)
    assert source.vocabulary.decode(source.sequences.sequence(0)) == ["a", "b"]
    assert source.sequences.times.tolist() == [EPOCH, EPOCH + 5, EPOCH]
    assert "the rows of 1 of 2 users were not in time order; sorted by 'time'" in caplog.text


@pytest.mark.parametrize("kind", WORDS)
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"1 2\n3 \0\n", "line 2: holds a NUL byte"),
        (b"1 2\n3 \xff\n", "line 2: not UTF-8"),
        (b"1 2\n1 3.5\n", "column item, row 2: an id must be a whole number.*got 3.5"),
        (b"1 2\n1 9223372036854775808\n", "column item, row 2: an id must lie within int64"),
    ],
)
def test_fault_21_in_plain_words(tmp_path, kind, data, message):
    path = tmp_path / "log"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=f"log.*{message}"):
        read_source(path, kind=kind)
    path.write_text("1 2\n3 4\n")
    with pytest.raises(ValueError, match="no column 'time': there are 'user', 'item'"):
        read_source(path, kind=kind, time_column="time")


@pytest.mark.parametrize("kind", ["csv", "atomic"])
@pytest.mark.parametrize(("byte", "message"), [(b"\0", "a NUL byte"), (b"\xff", "not UTF-8")])
def test_fault_21_bytes_that_are_no_text(tmp_path, kind, byte, message):
    path = tmp_path / "log"
    write_table(path, kind, {"user": [1], "item": [2]})
    path.write_bytes(path.read_bytes() + b"3" + byte)
    with pytest.raises(ValueError, match=f"log, line 3: .*{message}"):
        read_source(path, kind=kind)


def test_dates_and_numbers_in_the_parts_of_a_log(tmp_path):
    for name, time in (("a", EPOCH), ("b", datetime(2024, 1, 1))):
        pl.DataFrame({"user": [1], "item": [2], "time": [time]}).write_parquet(tmp_path / name)
    with pytest.raises(ValueError, match=r"b: the columns are .*'time' Datetime"):
        read_source(tmp_path)


def test_types_of_atomic_files(tmp_path):
    path = tmp_path / "films.item"
    path.write_text(
        "item_id:token\tyear:float\tgenres:token_seq\tvector:float_seq\n1\t\tx y\t1 2\n"
    )
    types = atomic_types(path)
    assert types == {
        "item_id": "token", "year": "float", "genres": "token_seq", "vector": "float_seq",
    }  # fmt: skip
    table = scan_table(path, "atomic").collect()
    assert table.columns == list(types)
    assert set(table.dtypes) == {pl.String}
    path.write_text("item_id\tyear\n")
    with pytest.raises(ValueError, match="line 1: an atomic file types its columns"):
        atomic_types(path)


@FUZZ
@given(st.binary(max_size=100) | st.from_regex(rb"[a-z:_]{0,6}:(token|float)(_seq)?(\t.*)?"))
def test_any_header_of_an_atomic_file(tmp_path, data):
    path = tmp_path / "file"
    path.write_bytes(data)
    try:
        types = atomic_types(path)
    except ValueError:
        return
    assert set(types.values()) <= {"token", "float", "token_seq", "float_seq"}


PIECES = st.lists(st.sampled_from(["1", "2", "3", "10", " ", " ", "\n", "\n", "\t", ",", "x"]))


@FUZZ
@given(st.tuples(PIECES, PIECES, PIECES), st.sampled_from([None, "lists", "pairs", "csv"]))
def test_any_three_files(tmp_path, texts, kind):
    paths = [tmp_path / name for name in ("train", "valid", "test")]
    for path, pieces in zip(paths, texts, strict=True):
        path.write_text("".join(pieces))
    try:
        split, vocabulary = read_split(*paths, kind=kind)
    except ValueError:
        return
    assert vocabulary.total == len(split.train.values)
    for holdout in (split.validation, split.test):
        assert (holdout.histories.lengths > 0).all()
        assert (holdout.targets.values < len(vocabulary)).all()
        named = split.train.names.gather(holdout.users.numpy()).to_list()
        assert named == holdout.histories.names.to_list()


GOALS = st.lists(st.sampled_from(["1", "0", "true", "", "x", "nan", "-1e9", " 1", "٣"]), min_size=1)


@FUZZ
@given(GOALS, st.integers(0, 3))
def test_any_goals_and_core(tmp_path, goals, core):
    path = tmp_path / "log.csv"
    rows = [f"{place % 2},{place % 3},{goal}\n" for place, goal in enumerate(goals)]
    path.write_text("user,item,goal\n" + "".join(rows))
    try:
        source = read_source(path, kind="csv", goal_column="goal", core=core)
    except ValueError:
        return
    assert source.goals.shape == source.sequences.values.shape


RIGHT = "user,item,time\nu1,tea,1\nu1,rum,2\nu2,tea,3\n"


@pytest.mark.parametrize(
    "text",
    [
        RIGHT.replace("\n", "\r"),
        RIGHT.replace("\n", "\r\n"),
        RIGHT.replace(",", ", "),
        RIGHT.replace(",", " ,"),
        RIGHT.replace("user,item", " user , item "),
        RIGHT.replace("tea", '"tea"').replace(",", ", "),
    ],
    ids=["CR", "CRLF", "blanks after", "blanks before", "spaced header", "quotes after blanks"],
)
def test_fault_41_a_log_is_read_right_whatever_surrounds_its_fields(text, tmp_path):
    (tmp_path / "log").write_bytes(text.encode())
    source = read_source(tmp_path / "log")
    assert source.kind == "csv"
    assert (source.columns.user, source.columns.item, source.columns.time) == (
        "user", "item", "time"
    )  # fmt: skip
    found = source.vocabulary.keys.str.strip_chars().to_list()
    assert found == ["tea", "rum"]
    assert source.sequences.values.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("user,item,time\nu1,tea,1\nu1,rum\n", "log, column time, row 2: the time is missing"),
        ("user,item,time\nu1,tea,1\nu1,rum,2,9\n", "log, row 2: 4 fields, but 3 in the first"),
        ('user,item,time\nu1,tea,1\nu1,"rum,2\nu2,tea,3\n', "log, row 2: a quote is opened"),
        ('user,item,time\nu1,"tea"s,1\nu1,rum,2\n', "log, row 1: quotes are wrong"),
        ("1,2,3\n1,2,3,4\n", "log, row 2: 4 fields, but 3 in the first"),
        ('1,2,3\n1,"2,3\n', "log, row 2: a quote is opened"),
    ],
)
def test_fault_41_a_broken_row_is_named_and_never_taken_for_text(text, message, tmp_path):
    (tmp_path / "log").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_source(tmp_path / "log")


@pytest.mark.parametrize(
    "text",
    ["well, then\nso it is\n", "Dear user, take an item.\nor not\n", "one, two\nthree, four\n"],
)
def test_sentences_with_commas_stay_text(text, tmp_path):
    (tmp_path / "log").write_text(text)
    assert read_source(tmp_path / "log").kind == "text"
