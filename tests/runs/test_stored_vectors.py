"""What a run answers by its stored vectors, without torch, and that it is what the run answers."""

import subprocess
import sys

import numpy as np
import pytest

import widemax as wm
from widemax.runs.vectors.nearest import nearest
from widemax.runs.vectors.stored_vectors import StoredVectors


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "log.csv"
    rng = np.random.default_rng(0)
    rows = [f"u{user},i{item}" for user in range(60) for item in rng.integers(0, 30, 6)]
    path.write_text("user,item\n" + "\n".join(rows) + "\n")
    return path


def trained(log, folder, **settings):
    return wm.train(log, wm.Config(epochs=1, dimension=4, **settings), folder=folder)


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "item2vec"},
        {"model": "youtube-dnn"},
        {"model": "youtube-dnn", "similarity": "cosine", "temperature": 0.1},
        {"model": "youtube-dnn", "tied": False},
        {"model": "sasrec", "max_history": 5},
        {"model": "next-item", "head": "hierarchical"},
        {"model": "youtube-dnn", "head": "hierarchical"},
    ],
    ids=str,
)
def test_answers_are_those_of_the_run(log, tmp_path, settings):
    run = trained(log, tmp_path / "run", **settings)
    stored = StoredVectors.open(tmp_path / "run")
    assert (stored.step, stored.chosen) == (run.step, run.chosen)
    for key in ("i3", "i7"):
        assert [each.key for each in stored.similar(key, k=40)] == [
            each.key for each in run.similar(key, k=40)
        ]
        np.testing.assert_allclose(
            [each.score for each in stored.similar(key, k=40)],
            [each.score for each in run.similar(key, k=40)],
            atol=1e-6,
        )
    asked = ("i1", "i2", "i3")
    assert [each.key for each in stored.analogy(*asked, k=3)] == [
        each.key for each in run.analogy(*asked, k=3)
    ]


@pytest.mark.parametrize("settings", [{"model": "two-tower", "epochs": 1}, {"model": "popularity"}])
def test_vectors_that_are_computed_are_left_to_the_run(log, tmp_path, settings):
    wm.train(log, wm.Config(**settings), folder=tmp_path / "run")
    assert StoredVectors.open(tmp_path / "run") is None


def test_the_command_does_not_load_torch(log, tmp_path):
    run = trained(log, tmp_path / "run", model="item2vec")
    program = f"""
import sys
from contextlib import suppress
from widemax.cli import main
for verb in (["similar", {str(tmp_path / "run")!r}, "i3", "--k", "2"],
             ["analogy", {str(tmp_path / "run")!r}, "i1", "i2", "i3"],
             ["runs", {str(tmp_path)!r}]):
    with suppress(SystemExit):
        main(verb)
print([name for name in ("torch", "numba") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert lines[-1] == "[]", done.stderr
    assert [line.split()[1] for line in lines[:2]] == [each.key for each in run.similar("i3", k=2)]


def test_a_damaged_table_is_refused(log, tmp_path):
    trained(log, tmp_path / "run", model="item2vec")
    [file] = (tmp_path / "run").glob("checkpoints/*/model.safetensors")
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(ValueError, match="sha256"):
        StoredVectors.open(tmp_path / "run")


def test_nearest_is_the_whole_ranking_by_cosine():
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(50, 3)).astype(np.float32)
    rows[7] = rows[9]
    query = rows[4]
    ids, cosines = nearest(rows, query, 48, left_out=[4, 5])
    exact = (rows.astype(np.float64) @ query) / (
        np.linalg.norm(rows, axis=1) * np.linalg.norm(query)
    )
    expected = sorted(set(range(50)) - {4, 5}, key=lambda row: (-exact[row], row))
    assert set(ids.tolist()) == set(expected)
    np.testing.assert_allclose(cosines, exact[expected], atol=1e-6)
    assert ids.tolist().index(7) < ids.tolist().index(9)
    assert [len(part) for part in nearest(rows[:2], query, 5, left_out=[0, 1])] == [0, 0]
