"""How much rows of a log count: a column of weights, types of events, and what faults are said."""

import logging

import polars as pl
import pytest
import torch

from widemax.data import Sequences, Windows, encoded_again, read_source
from widemax.data.reading.logs import Columns
from widemax.data.reading.parts import PartFiles, read_log_parts
from widemax.data.splitting.log_split import split_by_parts
from widemax.vocabulary import Vocabulary

ROWS = [  # user, item, time, event, stars
    ("ann", "tea", 3, "view", 5.0),
    ("bob", "rum", 1, "cart", 2.0),
    ("ann", "rum", 1, "buy", 4.0),
    ("ann", "gin", 2, "hover", 1.0),
    ("bob", "tea", 2, "view", 3.0),
]


@pytest.fixture(params=["csv", "parquet"])
def log(request, tmp_path):
    frame = pl.DataFrame(ROWS, ["user", "item", "time", "event", "stars"], orient="row")
    path = tmp_path / f"log.{request.param}"
    frame.write_csv(path) if request.param == "csv" else frame.write_parquet(path)
    return path


def test_weights_move_with_their_rows(log):
    source = read_source(log, weight_column="stars")
    assert source.vocabulary.decode(source.sequences.sequence(0)) == ["rum", "gin", "tea"]
    assert source.sequences.weights.tolist() == [4, 1, 5, 2, 3]
    fewer = encoded_again(source, Vocabulary.count(["tea", "rum"]))
    assert fewer.sequences.weights.tolist() == [4, 5, 2, 3]
    often = read_source(log, weight_column="stars", min_count=2)
    assert often.sequences.weights.tolist() == [4, 5, 2, 3]


def test_types_of_events_weigh_and_others_are_left_out(log, caplog):
    weights = "view=1, buy = 10,cart=0"
    with caplog.at_level(logging.WARNING):
        source = read_source(log, event_column="event", event_weights=weights)
    assert source.sequences.weights.tolist() == [10, 1, 0, 1]
    assert "gin" not in source.vocabulary
    assert "1 of 5 rows are left out: event_weights does not list 'hover'" in caplog.text
    both = read_source(log, event_column="event", event_weights=weights, weight_column="stars")
    assert both.sequences.weights.tolist() == [40, 5, 0, 3]


def test_a_type_that_no_row_has_is_said(log, caplog):
    with caplog.at_level(logging.WARNING):
        read_source(log, event_column="event", event_weights="view=1, by=2")
    assert "event_weights lists 'by', which no row has" in caplog.text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"event_column": "event"}, "give event_weights, such as view=1, cart=3 too"),
        ({"event_weights": "view=1"}, "give event_column too"),
        ({"event_column": "event", "event_weights": "view"}, "such as view=1, .* got 'view'"),
        ({"event_column": "event", "event_weights": "view=-1"}, "at least 0.* got 'view=-1'"),
        ({"event_column": "event", "event_weights": "view=nan"}, "got 'view=nan'"),
        ({"event_column": "event", "event_weights": "view=1,view=2"}, "got 'view=2' twice"),
        ({"event_column": "event", "event_weights": "by=1"}, "no row is of a type .* 'buy', 'cart"),
        ({"event_column": "evnt", "event_weights": "by=1"}, "has no column 'evnt'"),
        ({"weight_column": "event"}, "column event, row 1: a weight must be .* got 'view'"),
        ({"weight_column": "item"}, "must be different columns"),
    ],
)
def test_faults_are_named(log, options, message):
    with pytest.raises(ValueError, match=message):
        read_source(log, **options)


@pytest.mark.parametrize("value", ["-1", "inf", ""])
def test_a_weight_is_a_number_of_at_least_0(tmp_path, value):
    (tmp_path / "log.csv").write_text(f"user,item,w\n1,2,3\n1,3,{value}\n")
    with pytest.raises(ValueError, match=r"column w, row 2: (a weight must be|the weight is)"):
        read_source(tmp_path / "log.csv", weight_column="w")


def test_a_condition_on_an_id_leaves_it_an_id(tmp_path):
    (tmp_path / "log.csv").write_text("userId,movieId,rating\n1,2,3\n1,3,4\n9,3,5\n")
    source = read_source(tmp_path / "log.csv", where="userId < 5 AND rating > 3")
    assert source.vocabulary.keys.to_list() == [3]


def test_files_of_a_split_have_weights(tmp_path):
    for name, rows in {"train": "1,2,3\n1,3,4\n", "test": "1,4,9\n"}.items():
        (tmp_path / f"{name}.csv").write_text("user,item,w\n" + rows)
    files = PartFiles(tmp_path / "train.csv", None, tmp_path / "test.csv")
    source = read_log_parts(files, "csv", Columns("", "", weight="w"))
    assert source.sequences.weights.tolist() == [3, 4, 9]
    assert split_by_parts(source.sequences, source.parts).train.weights.tolist() == [3, 4]


def test_weights_are_relative_and_equal_ones_are_none():
    log = Sequences.from_lists([[4, 0], [2]])
    assert log.relative_weights() is None
    assert log.weighed_by(torch.full((3,), 5.0)).relative_weights() is None
    assert log.weighed_by(torch.tensor([1.0, 3.0, 0.0])).relative_weights().tolist() == [
        0.5,
        1.5,
        0,
    ]
    with pytest.raises(ValueError, match="weights must not all be 0"):
        log.weighed_by(torch.zeros(3)).relative_weights()
    for wrong in ([1.0, 2.0], [1.0, -1.0, 0.0], [1.0, float("inf"), 0.0]):
        with pytest.raises(ValueError, match="weights must be"):
            Sequences(log.values, log.offsets, weights=torch.tensor(wrong))


def test_what_weighs_nothing_is_no_target_but_stays_in_histories():
    log = Sequences.from_lists([[4, 0, 2, 7]]).weighed_by(torch.tensor([1.0, 0.0, 2.0, 1.0]))
    windows = Windows(log, before=3, require_context=True)
    batch = windows.batch(torch.arange(len(windows)))
    assert batch.targets.tolist() == [2, 7]
    assert batch.context.tolist() == [[-1, 4, 0], [4, 0, 2]]
    assert windows.places(torch.arange(2)).tolist() == [2, 3]
