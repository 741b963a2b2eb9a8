"""What tables recommend without torch, and that it is what the run recommends."""

import numpy as np
import polars as pl
import pytest

import widemax as wm
from widemax.data import FeatureTable
from widemax.models import YouTubeDNN
from widemax.runs.answering.table_answers import TableAnswers


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "log.csv"
    rng = np.random.default_rng(0)
    rows = [f"u{user},i{item}" for user in range(60) for item in rng.integers(0, 30, 6)]
    path.write_text("user,item\n" + "\n".join(rows) + "\n")
    return path


TABLES = [
    {"model": "popularity"},
    {"model": "item-knn", "num_neighbours": 4},
    {"model": "ease", "regularisation": 5.0},
    {"model": "ials", "dimension": 4, "num_sweeps": 2},
    {"model": "item2vec", "dimension": 4, "epochs": 2},
    {"model": "airbnb", "dimension": 4, "epochs": 1},
    {"model": "next-item", "dimension": 4, "epochs": 1},
    {"model": "next-item", "dimension": 4, "epochs": 1, "similarity": "dot", "bias": True},
    {"model": "next-item", "dimension": 4, "epochs": 1, "max_history": 2, "temperature": 0.5},
    {"model": "youtube-dnn", "dimension": 4, "epochs": 1},
    {"model": "youtube-dnn", "dimension": 4, "epochs": 1, "tied": False, "similarity": "dot"},
    {"model": "youtube-dnn", "dimension": 4, "epochs": 1, "max_history": 2, "temperature": 0.5},
    {"model": "youtube-dnn", "dimension": 4, "epochs": 1, "item_order": "ignored"},
    {"model": "skip-gram", "dimension": 4, "epochs": 1, "min_count": 1},
]


def same(ours, theirs):
    """Whether two lists are alike, but for the order of scores that rounding alone tells apart."""
    np.testing.assert_allclose(
        [each.score for each in ours], [each.score for each in theirs], rtol=2e-5, atol=2e-6
    )
    for mine in ours:
        (other,) = (each for each in theirs if each.key == mine.key)
        assert mine.score == pytest.approx(other.score, rel=2e-5, abs=2e-6)


@pytest.mark.parametrize("settings", TABLES, ids=str)
def test_answers_are_those_of_the_run(log, tmp_path, settings):
    run = wm.train(log, wm.Config(**settings), folder=tmp_path / "run")
    tables = TableAnswers.open(tmp_path / "run")
    assert (tables.step, tables.chosen) == (run.step, run.chosen)
    for user in ("u3", "u7"):
        same(tables.recommend(user=user, k=40), run.recommend(user=user, k=40))
    for history in (["i1"], ["i1", "i2", "i1", "i9"]):
        same(tables.recommend(history, k=40), run.recommend(history, k=40))
    assert len(tables.recommend(["i1"], k=3)) == 3
    asked = {"history": ["i1", "i2"], "leave_out": ["i3"], "include_seen": True, "k": 40}
    same(tables.recommend(**asked), run.recommend(**asked))
    assert {"i1", "i2"} <= {each.key for each in tables.recommend(**asked)}


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "two-tower"},
        {"model": "sasrec", "max_history": 5},
        {"model": "eges"},
        {"model": "next-item", "head": "hierarchical"},
        {"model": "youtube-dnn", "num_layers": 1, "hidden_size": 4},
        {"model": "youtube-dnn", "head": "hierarchical"},
    ],
    ids=str,
)
def test_what_is_computed_is_left_to_the_run(log, tmp_path, settings):
    config = wm.Config(**settings, epochs=1, dimension=4)
    wm.train(log, config, folder=tmp_path / "run")
    assert TableAnswers.open(tmp_path / "run") is None


def test_a_user_of_more_than_items_is_left_to_the_run():
    given = {"counts": [9, 5, 3, 1], "dimension": 4, "num_samples": 1}
    assert YouTubeDNN.create(**given).table_answers()["rule"] == "mean"
    aged = YouTubeDNN.create(**given, days=3.0, example_age="on")
    users = pl.DataFrame({"user": ["ann", "bob"], "sex": ["f", "m"]})
    features = FeatureTable.fit(users, ["ann", "bob"], key_column="user")
    known = YouTubeDNN.create(**given, user_features=features)
    layered = YouTubeDNN.create(**given, num_layers=1, hidden_size=4)
    assert [each.table_answers() for each in (aged, known, layered)] == [{}, {}, {}]


def test_mistakes_are_said_as_by_the_run(log, tmp_path):
    run = wm.train(log, wm.Config(model="popularity"), folder=tmp_path / "run")
    tables = TableAnswers.open(tmp_path / "run")
    for asked in ({"user": "nobody"}, {"history": ["i999"]}, {"history": ["i1"], "k": 0}):
        with pytest.raises(ValueError, match=r".") as theirs:
            run.recommend(**asked)
        with pytest.raises(ValueError, match=r".") as ours:
            tables.recommend(**asked)
        assert str(ours.value) == str(theirs.value)
