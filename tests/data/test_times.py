"""Times become seconds, goals stay beside their items, whatever is filtered."""

from datetime import UTC, date, datetime

import polars as pl
import pytest
import torch

from widemax.data.reading.columns import as_flags
from widemax.data.reading.source import encoded_again, read_source
from widemax.vocabulary import Vocabulary

EPOCH = 1_700_000_000


def times_of(folder, column):
    path = folder / "log"
    column = pl.Series(column)
    pl.DataFrame(
        {"user": [1] * len(column), "item": [5] * len(column), "ts": column}
    ).write_parquet(path)
    return read_source(path).sequences.times.tolist()


@pytest.mark.parametrize(
    ("column", "seconds"),
    [
        ([3, 7], [3.0, 7.0]),
        ([-2.5, 7.25], [-2.5, 7.25]),
        ([EPOCH, EPOCH + 1], [EPOCH, EPOCH + 1]),
        ([EPOCH * 1000 + 250], [EPOCH + 0.25]),
        ([0, EPOCH * 1000], [0.0, EPOCH]),
        ([EPOCH * 10**6 + 500_000], [EPOCH + 0.5]),
        ([EPOCH * 10**9 + 500_000_000], [EPOCH + 0.5]),
        ([EPOCH * 1000.0 + 0.5], [EPOCH + 0.0005]),
        ([date(1970, 1, 3)], [2 * 86_400.0]),
        ([datetime(2023, 11, 14, 22, 13, 20)], [EPOCH]),
        (["1970-01-02", "1970-01-03"], [86_400.0, 2 * 86_400.0]),
        (["2023-11-14T22:13:20.500Z"], [EPOCH + 0.5]),
        (["2023-11-15T00:13:20+02:00"], [EPOCH]),
        (["1700000000250"], [EPOCH + 0.25]),
        (["02.01.1970", "03.01.1970"], [86_400.0, 2 * 86_400.0]),
        (["14.11.2023 22:13:20"], [EPOCH]),
    ],
)
def test_times_are_seconds(tmp_path, column, seconds):
    assert times_of(tmp_path, column) == pytest.approx(seconds, rel=1e-15)


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_every_unit_of_a_date(tmp_path, unit, zone):
    column = pl.Series([datetime(2023, 11, 14, 22, 13, 20, 250_000, tzinfo=UTC)])
    column = column.dt.cast_time_unit(unit).dt.replace_time_zone(zone)
    assert times_of(tmp_path, column) == [EPOCH + 0.25]


def test_nanoseconds_are_sorted_though_seconds_cannot_tell_them_apart(tmp_path):
    path = tmp_path / "log"
    times = [EPOCH * 10**9 + 2, EPOCH * 10**9 + 1]
    pl.DataFrame({"user": [1, 1], "item": ["b", "a"], "ts": times}).write_parquet(path)
    source = read_source(path)
    assert source.vocabulary.decode(source.sequences.values) == ["a", "b"]


LOG = (
    "user,item,time,booked\n"
    "7,rum,3,1\n8,tea,2,0\n7,gin,1,0\n7,rum,4,0\n8,rum,1,true\n9,ale,5,False\n9,rum,6,2.5\n"
)


def as_rows(sequences, vocabulary, goals):
    users = sequences.names.gather(
        torch.arange(len(sequences)).repeat_interleave(sequences.lengths).numpy()
    )
    items = vocabulary.decode(sequences.values)
    return list(zip(users, items, sequences.times.tolist(), goals.tolist(), strict=True))


WHOLE = [
    (7, "gin", 1.0, False), (7, "rum", 3.0, True), (7, "rum", 4.0, False),
    (8, "rum", 1.0, True), (8, "tea", 2.0, False), (9, "ale", 5.0, False), (9, "rum", 6.0, True),
]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, range(7)),
        ({"min_count": 2}, [1, 2, 3, 6]),
        ({"min_length": 3}, [0, 1, 2]),
        ({"min_count": 2, "min_length": 2}, [1, 2]),
        ({"core": 2}, [1, 2]),
        ({"core": 1}, range(7)),
        ({"max_size": 1}, [1, 2, 3, 6]),
    ],
)
def test_times_and_goals_follow_every_filter(tmp_path, options, kept):
    path = tmp_path / "log.csv"
    path.write_text(LOG)
    read = read_source(path, kind="csv", goal_column="booked", **options)
    found = as_rows(read.sequences, read.vocabulary, read.goals)
    assert found == [WHOLE[place] for place in kept]
    assert read.vocabulary.total == len(found)
    assert read.columns.goal == "booked"


def test_an_unknown_key_keeps_the_goal_of_what_it_stands_for(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(LOG)
    source = read_source(path, goal_column="booked", min_count=2, unknown="?")
    expected = [(user, item if item == "rum" else "?", *rest) for user, item, *rest in WHOLE]
    assert as_rows(source.sequences, source.vocabulary, source.goals) == expected


def test_another_vocabulary_leaves_times_and_goals_in_their_places(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(LOG)
    source = read_source(path, goal_column="booked")
    again = encoded_again(source, Vocabulary.count(["tea", "gin", "new"]))
    expected = [WHOLE[0], WHOLE[4]]
    assert as_rows(again.sequences, again.vocabulary, again.goals) == expected
    with pytest.raises(ValueError, match="the source has none of the 1 keys in it"):
        encoded_again(source, Vocabulary.count(["new"]))


def test_without_a_goal_column_there_are_no_goals(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(LOG)
    assert read_source(path).goals is None


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pl.Series([True, None]), "row 2: the goal is missing"),
        (pl.Series(["1", ""]), "row 2: the goal is missing"),
        (
            pl.Series(["1", "perhaps"]),
            "row 2: a goal must be true, false or a number, got 'perhaps'",
        ),
        (pl.Series(["nan"]), "row 1: a goal must be"),
        (pl.Series([0.0, float("nan")]), "row 2: a goal must be .* got nan"),
        (pl.Series([date(2024, 1, 1)]), "row 1: a goal must be .* got Date"),
    ],
)
def test_bad_goals_name_the_row(tmp_path, column, message):
    path = tmp_path / "log"
    rows = [1] * len(column)
    pl.DataFrame({"user": rows, "item": rows, "booked": column}).write_parquet(path)
    with pytest.raises(ValueError, match=rf"log, column booked, {message}"):
        read_source(path, goal_column="booked")


def test_flags_of_every_type():
    for column in ([True, False], [3, 0], [0.5, 0.0], ["TRUE", "false"], ["-1", "0.0"]):
        assert as_flags(pl.Series(column), ValueError).to_list() == [True, False]


def test_columns_and_core_are_for_logs(tmp_path):
    path = tmp_path / "text"
    path.write_text("good morning to you\n")
    with pytest.raises(ValueError, match="holds text, which has no column 'booked'"):
        read_source(path, goal_column="booked")
    with pytest.raises(ValueError, match="core is for logs, got 5"):
        read_source(path, core=5)
    path.write_text("user,item\n1,2\n")
    with pytest.raises(ValueError, match="has no column 'booked': there are 'user', 'item'"):
        read_source(path, goal_column="booked")
