"""What is exported for serving answers as the run does, with onnxruntime and Faiss alone."""

import hashlib
import json
import sys

import faiss
import numpy as np
import onnxruntime
import polars as pl
import pytest
from typer.testing import CliRunner

import widemax as wm
from tests.runs.settings import config_with
from widemax.cli.app import app

ITEMS, USERS = 40, 30
CASES = {
    "youtube-dnn": {"similarity": "cosine", "temperature": 0.2, "bias": True},
    "two-tower": {},
    "sasrec": {"bias": True},
    "mind": {"bias": True, "temperature": 0.5},
    "sdm": {},
    "next-item": {"scorer": "differentiated"},
    "item2vec": {},
}


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A log, and what is known of users and items."""
    folder = tmp_path_factory.mktemp("shop")
    rows = [(user, (user + step) % ITEMS) for user in range(USERS) for step in range(9)]
    log = pl.DataFrame(rows, schema=["user", "item"], orient="row")
    log.with_columns(time=pl.int_range(pl.len()) * 60).write_parquet(folder / "log.parquet")
    towns = ["Ulm", "Bern", "Graz"] * (USERS // 3)
    pl.DataFrame({"user": range(USERS), "town": towns}).write_parquet(folder / "users.parquet")
    items = {"item": range(ITEMS), "price": [float(each % 5) for each in range(ITEMS)]}
    pl.DataFrame(items).write_parquet(folder / "items.parquet")
    return folder


def trained(shop, folder, model, **settings):
    given = {"epochs": 1, "dimension": 8, "num_samples": 9, "max_history": 5, **settings}
    given |= {"user_features": str(shop / "users.parquet")}
    given |= {"item_features": str(shop / "items.parquet")}
    return wm.train(shop / "log.parquet", config_with(model, **given), folder=folder)


def answer(folder, histories, columns, k):
    """Return the best keys and scores of some histories, as a server finds them."""
    manifest = json.loads((folder / "serving.json").read_text())
    for name, digest in manifest["files"].items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    encoder = onnxruntime.InferenceSession(folder / "encoder.onnx")
    about = encoder.get_modelmeta().custom_metadata_map
    assert about["vocabulary"] == manifest["vocabulary"]
    keys = pl.read_parquet(folder / "vocabulary.parquet")["key"].to_list()
    ids = {key: place for place, key in enumerate(keys)}
    widest = max(map(len, histories))
    before = [int(place) for place in manifest["before"].split()]
    context = [
        [*before, *(ids[key] for key in each)] + [-1] * (widest - len(each)) for each in histories
    ]
    wanted = {each.name for each in encoder.get_inputs()} - {"context"}
    (query,) = encoder.run(
        ["query"], {"context": np.array(context), **{name: columns[name] for name in wanted}}
    )
    index = faiss.read_index(str(folder / "index.faiss"))
    # Of several interests the best score counts.
    query = query.reshape(len(histories), -1, index.d)
    rows = index.reconstruct_n(0, index.ntotal)
    scores = (query @ rows.T).max(1)
    if query.shape[1] == 1:
        np.testing.assert_allclose(
            index.search(query[:, 0], k)[0], -np.sort(-scores, 1)[:, :k], rtol=1e-5, atol=1e-5
        )
    best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return [
        [(keys[place], row[place]) for place in found]
        for row, found in zip(scores, best, strict=True)
    ]


@pytest.mark.parametrize("model", CASES)
def test_a_served_run_answers_as_the_run(model, shop, tmp_path):
    run = trained(shop, tmp_path / "run", model, **CASES[model])
    run.export(tmp_path / "serving", to="serving")
    # Shorter and longer than what the model reads, and with features and without.
    users = [3, 17, None]
    histories = [[5, 6], [30, 2, 9, 11, 12, 13, 14, 15], [7]]
    towns = ["Ulm", "Graz", ""]
    found = answer(tmp_path / "serving", histories, {"user_town": np.array(towns)}, k=6)
    for user, history, best in zip(users, histories, found, strict=True):
        expected = run.recommend(history, user=user, k=6, include_seen=True, exact=True)
        assert [score for _, score in best] == pytest.approx(
            [each.score for each in expected], rel=1e-4, abs=1e-4
        )
        for (key, score), each in zip(best, expected, strict=True):
            assert key == each.key or score == pytest.approx(each.score, rel=1e-5, abs=1e-5)


def test_new_items_are_scored_as_old_ones(shop, tmp_path):
    run = trained(shop, tmp_path / "run", "two-tower")
    run.export(tmp_path / "serving", to="serving")
    items = onnxruntime.InferenceSession(tmp_path / "serving" / "items.onnx")
    prices = np.array([float(key % 5) for key in run.vocabulary.keys])
    (old,) = items.run(["vector"], {"item": np.arange(ITEMS), "item_price": prices})
    index = faiss.read_index(str(tmp_path / "serving" / "index.faiss"))
    np.testing.assert_allclose(old, index.reconstruct_n(0, ITEMS), atol=1e-5)
    (new,) = items.run(["vector"], {"item": np.array([-1]), "item_price": np.array([99.0])})
    assert np.linalg.norm(new) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("missing", ["onnx", "faiss"])
def test_without_its_packages_no_folder_is_left(missing, shop, tmp_path, monkeypatch):
    run = trained(shop, tmp_path / "run", "two-tower")
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ValueError, match=f"the package {missing} is not installed"):
        run.export(tmp_path / "serving", to="serving")
    assert not (tmp_path / "serving").exists()


def test_a_language_model_is_served_too(tmp_path):
    (tmp_path / "text").write_text("the cat sat on the mat\nthe dog lay on the rug\n" * 20)
    given = {"epochs": 1, "dimension": 8, "hidden_size": 7, "head": "full"}
    for model in ("nnlm", "lstm"):
        config = config_with(model, source="text", **given)
        run = wm.train(tmp_path / "text", config, folder=tmp_path / model)
        run.export(tmp_path / "serving", to="serving")
        (best,) = answer(tmp_path / "serving", [["on", "the"]], {}, k=5)
        expected = run.recommend(["on", "the"], k=5, include_seen=True)
        assert [key for key, _ in best] == [each.key for each in expected]
        assert [score for _, score in best] == pytest.approx([each.score for each in expected])


@pytest.mark.parametrize(
    ("settings", "to", "reason"),
    [
        ({"head": "hierarchical"}, "serving", r"^model next-item with head hierarchical cannot be"),
        ({"model": "popularity"}, "onnx", r"^model popularity cannot be exported to onnx: it has"),
        (
            {"model": "item-knn"},
            "serving",
            r"^model item-knn cannot be .*: it has no encoder; next",
        ),
        ({"model": "eges"}, "onnx", "EGES has no dense encoder to export"),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_line(settings, to, reason, shop, tmp_path):
    run = trained(shop, tmp_path / "run", **{"model": "next-item", **settings})
    out = tmp_path / "out"
    said = CliRunner().invoke(app, ["export", str(run.folder), str(out), "--to", to])
    assert said.exit_code != 0
    with pytest.raises(ValueError, match=reason):
        run.export(out, to=to)
    assert not out.exists()
