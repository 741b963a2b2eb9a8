"""A run that starts from another one knows what users had before: it is not recommended again."""

import polars as pl
import pytest

import widemax as wm
from widemax.runs.folder.kept_data import earlier_histories, joined_histories
from widemax.vocabulary import Vocabulary

CONFIG = wm.Config(
    model="next-item", epochs=2, dimension=4, head="full", validation_size=5, test_size=5
)


def write(path, rows):
    path.write_text("user,item\n" + "".join(f"{user},{item}\n" for user, item in rows))
    return path


@pytest.fixture
def runs(tmp_path):
    """Yesterday everybody had four items from their place on; today two more, bob none."""
    others = [(f"u{user}", f"i{(user + k) % 8}") for user in range(20) for k in range(4)]
    old = write(tmp_path / "old.csv", [*others, ("ann", "i1"), ("ann", "i2"), ("bob", "i5")])
    today = [(f"u{user}", f"i{(user + k) % 8}") for user in range(20) for k in range(4, 6)]
    new = write(tmp_path / "new.csv", [*today, ("ann", "i7"), ("ann", "new"), ("cyd", "i0")])
    first = wm.train(old, CONFIG, folder=tmp_path / "first")
    return first, wm.train(new, CONFIG, folder=tmp_path / "second", vectors=first)


def test_what_users_had_before_comes_first_and_is_left_out(runs):
    first, second = runs
    assert [each.key for each in second.history("ann")] == ["i1", "i2", "i7", "new"]
    assert [each.key for each in second.history("bob")] == ["i5"]  # not in the new log
    assert [each.key for each in second.history("cyd")] == ["i0"]
    recommended = {each.key for each in second.recommend(user="ann", k=20)}
    assert recommended == {f"i{k}" for k in range(8)} - {"i1", "i2", "i7"}
    table = pl.concat(second.recommend_all(k=20))
    assert table["user"].n_unique() == 23
    assert set(table.filter(user="ann")["item"]) == recommended
    third = wm.train(
        second.folder.parent / "new.csv", CONFIG, folder=first.folder.with_name("3"), vectors=second
    )
    assert [each.key for each in third.history("ann")][:4] == ["i1", "i2", "i7", "new"]


def test_a_log_that_was_continued_does_not_double_its_histories(runs):
    first, _ = runs
    whole = first.folder.parent / "whole.csv"
    whole.write_text((first.folder.parent / "old.csv").read_text() + "ann,i3\n")
    run = wm.train(whole, CONFIG, folder=first.folder.with_name("whole"), vectors=first)
    assert [each.key for each in run.history("ann")] == ["i1", "i2", "i3"]


def test_users_of_another_type_are_compared_as_text():
    earlier = pl.DataFrame({"user": [7], "items": [[1]]})
    later = pl.DataFrame({"user": ["7", "8"], "items": [[2], [3]]})
    joined = joined_histories(earlier, later).sort("user")
    assert joined["items"].to_list() == [[1, 2], [3]]


def test_classes_have_the_ids_of_the_new_run(runs):
    first, second = runs
    ids = earlier_histories(first.folder, first.vocabulary, second.vocabulary)
    (found,) = ids.filter(user="ann")["items"].to_list()
    assert second.vocabulary.decode(found) == ["i1", "i2"]
    (few,) = (
        earlier_histories(first.folder, first.vocabulary, Vocabulary.count(["i2"]))
        .filter(user="ann")["items"]
        .to_list()
    )
    assert few == [0]
