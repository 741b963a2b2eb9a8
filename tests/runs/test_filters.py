"""Filters, what is left out and somebody new, asked of runs of every kind of answer."""

import sys
import types

import numpy as np
import polars as pl
import pytest

import widemax as wm
from tests.runs.settings import config_with
from widemax.runs.answering.table_answers import TableAnswers
from widemax.runs.folder.item_columns import ItemColumn
from widemax.runs.vectors.map import principal_plane

NUM_ITEMS = 30
CATEGORIES = ("tea", "rum", "gin")


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shop")
    rng = np.random.default_rng(0)
    rows = [f"u{user},{item}" for user in range(60) for item in rng.integers(0, NUM_ITEMS, 6)]
    rows += [f"u{item},{item}" for item in range(NUM_ITEMS)]
    (folder / "log.csv").write_text("user,item\n" + "\n".join(rows) + "\n")
    table = {
        "item": list(range(NUM_ITEMS)),
        "name": [f"Thing {item}" for item in range(NUM_ITEMS)],
        "kind": [CATEGORIES[item % 3] for item in range(NUM_ITEMS)],
        "price": [None if item == 7 else item / 2 for item in range(NUM_ITEMS)],
    }
    pl.DataFrame(table).write_csv(folder / "items.csv")
    return folder


def passes(item):
    return item % 3 != 1 and item != 7 and 2 <= item / 2 <= 9


MODELS = [
    {"model": "popularity"},
    {"model": "ease", "regularisation": 5.0},
    {"model": "next-item"},
    {"model": "next-item", "head": "hierarchical"},
    {"model": "mind", "num_interests": 2},
    {"model": "two-tower"},
]


@pytest.mark.parametrize("settings", MODELS, ids=str)
def test_answers_are_those_of_all_that_pass_in_the_same_order(shop, tmp_path, settings):
    config = config_with(**settings, epochs=1, dimension=4, titles=str(shop / "items.csv"))
    run = wm.train(shop / "log.csv", config, folder=tmp_path / "run")
    filters = {"kind": ["tea", "gin"], "price": ["2..9"]}
    everything = run.recommend([3, 5], k=NUM_ITEMS)
    expected = [each for each in everything if passes(each.key) and each.key not in (6, 8)]
    found = run.recommend([3, 5], filters=filters, leave_out=["6", "Thing 8"], k=NUM_ITEMS)
    assert [each.key for each in found] == [each.key for each in expected]
    assert [each.score for each in found] == pytest.approx([each.score for each in expected])
    assert (
        run.recommend([3, 5], filters=filters, k=2)
        == run.recommend([3, 5], filters=filters, k=NUM_ITEMS)[:2]
    )
    tables = TableAnswers.open(tmp_path / "run")
    if tables is not None:
        other = tables.recommend([3, 5], filters=filters, leave_out=[6, 8], k=NUM_ITEMS)
        assert {each.key for each in other} == {each.key for each in found}
    if run.has_vectors and not settings.get("head"):
        run.build_index("exact")
        again = wm.load(tmp_path / "run")
        searched = again.recommend([3, 5], filters=filters, leave_out=[6, 8], k=NUM_ITEMS)
        assert [each.key for each in searched] == [each.key for each in found]


def test_who_has_no_features_cannot_be_asked_for_by_them(shop, tmp_path):
    run = wm.train(shop / "log.csv", wm.Config(model="popularity"), folder=tmp_path / "run")
    with pytest.raises(ValueError, match="knows people by their history alone"):
        run.recommend(features={"age": 3})
    with pytest.raises(ValueError, match="is no feature of the items"):
        run.recommend([1], filters={"kind": ["tea"]})
    with pytest.raises(ValueError, match="give them or a user, not both"):
        run.recommend(user="u1", features={"age": 3})
    assert run.reasons([1, 2], [3]) == [None, None]
    assert not run.has_vectors


@pytest.mark.parametrize(
    ("wanted", "rows"),
    [
        (["..2"], [0, 1]),
        (["2.."], [1, 3]),
        ([2], [1]),
        (["1.5..2.5", 1.0], [0, 1]),
        (["-1e3..0"], []),
    ],
)
def test_ranges_of_numbers(wanted, rows):
    column = ItemColumn("price", "number", pl.Series([1.0, 2.0, None, 7.0]))
    assert np.flatnonzero(column.allowed(wanted)).tolist() == rows


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [("taa", "; nearest: 'tea'"), ("TEA", "; nearest: 'tea'"), ("x", ", such as 'tea', 'rum'")],
)
def test_a_value_that_no_item_has_is_answered_with_those_that_there_are(wrong, hint):
    column = ItemColumn("kind", "category", pl.Series(["tea", "rum", "tea"]))
    with pytest.raises(ValueError, match=rf"'{wrong}', which is none of its 2 values{hint}$"):
        column.allowed([wrong])


@pytest.mark.parametrize("wrong", ["", "..", "5..1", "x", "1..x", "nan", "nan..", True])
def test_what_is_no_range_is_refused(wrong):
    column = ItemColumn("price", "number", pl.Series([1.0]))
    with pytest.raises(ValueError, match="must hold numbers, or ranges"):
        column.allowed([wrong])


def test_a_map_is_kept_until_the_vectors_change(shop, tmp_path):
    config = wm.Config(model="next-item", dimension=4, epochs=1)
    run = wm.train(shop / "log.csv", config, folder=tmp_path / "run")
    first = run.map()
    path = tmp_path / "run" / "map.safetensors"
    written = path.stat().st_mtime_ns
    assert np.array_equal(wm.load(tmp_path / "run").map(), first)
    assert path.stat().st_mtime_ns == written
    # A damaged file, and one of other vectors, is replaced.
    path.write_bytes(path.read_bytes()[:-5])
    assert np.array_equal(run.map(), first)
    run.model.head.scorer.weight.data.mul_(-1).add_(0.5)
    run.model.head.scorer.weight.data[0] = 9
    assert not np.array_equal(run.map(), first)


def test_a_map_by_umap_is_that_of_the_package_and_kept_beside_the_other(
    shop, tmp_path, monkeypatch
):
    config = wm.Config(model="next-item", dimension=4, epochs=1)
    run = wm.train(shop / "log.csv", config, folder=tmp_path / "run")
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(ValueError, match="umap-learn, which is not installed"):
        run.map("umap")
    with pytest.raises(ValueError, match="map must be pca or umap, got 'tsne'"):
        run.map("tsne")
    calls = []

    class UMAP:
        def __init__(self, **options):
            calls.append(options)

        def fit_transform(self, vectors):
            return 7 + 3 * vectors[:, :2]

    monkeypatch.setitem(sys.modules, "umap", types.SimpleNamespace(UMAP=UMAP))
    plane, flat = run.map("umap"), run.map()
    vectors = run.vectors().vectors.numpy()[:, :2].astype(float)
    low, high = vectors.min(axis=0), vectors.max(axis=0)
    assert np.allclose(plane, (2 * vectors - low - high) / (high - low), atol=1e-5)
    assert np.array_equal(wm.load(tmp_path / "run").map("umap"), plane)
    assert np.array_equal(run.map(), flat)
    assert not np.array_equal(plane, flat)
    assert len(calls) == 1
    assert calls[0]["random_state"] == 0


@pytest.mark.parametrize("shape", [(1, 3), (5, 1), (2, 2), (70_000, 3)])
def test_a_plane_of_any_vectors_lies_within_one(shape):
    plane = principal_plane(np.random.default_rng(0).normal(size=shape).astype(np.float32))
    assert plane.shape == (shape[0], 2)
    assert plane.dtype == np.float32
    assert np.isfinite(plane).all()
    assert np.abs(plane).max() <= 1
