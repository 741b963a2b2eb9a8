"""Paths that are no plain files: refused at once by type and size, and never replaced."""

import json
import os
import shutil
import signal

import pytest
from typer.testing import CliRunner

from widemax.cli.answers import strict_json
from widemax.cli.app import app

FILES = ("word2vec", "word2vec-binary", "safetensors", "onnx")
FOLDERS = ("faiss", "numpy", "projector", "serving")


def call(*arguments):
    """Run a verb; return whether it succeeded, and what it said or raised."""
    done = CliRunner().invoke(app, [str(each) for each in arguments])
    said = str(done.exception) if done.exception is not None else done.output
    return done.exit_code == 0, said


@pytest.fixture(autouse=True)
def impatient():
    """Raise in a test that waits for a pipe."""

    def too_late(*_):
        raise TimeoutError("waited for what never comes")

    before = signal.signal(signal.SIGALRM, too_late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A small run on text, with the folder it lies in."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "text").write_text("the cat sat on the mat\nthe dog lay on the rug\n" * 20)
    flags = ("--epochs", "1", "--dimension", "4", "--head", "full", "--validation-size", "9")
    assert call("train", folder / "text", "--folder", folder / "runs" / "run", *flags)[0]
    return folder


@pytest.fixture
def run(trained, tmp_path):
    """A copy of the run that may be spoilt."""
    shutil.copytree(trained / "runs" / "run", tmp_path / "runs" / "run")
    return tmp_path / "runs" / "run"


@pytest.mark.parametrize("to", [*FILES, *FOLDERS])
def test_fault_32_an_export_onto_a_pipe_is_refused(to, run, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    succeeded, said = call("export", run, pipe, "--to", to)
    assert not succeeded
    assert f"{pipe} is no " in said
    assert pipe.is_fifo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pipe", "runs"]


@pytest.mark.parametrize("to", FILES)
def test_fault_32_an_export_onto_a_folder_is_refused(to, run, tmp_path):
    (tmp_path / "taken").mkdir()
    succeeded, said = call("export", run, tmp_path / "taken", "--to", to)
    assert not succeeded
    assert "taken is a folder: name a file to write" in said


@pytest.mark.parametrize("to", FOLDERS)
def test_fault_32_a_folder_of_pipes_is_not_written(to, run, tmp_path):
    """Each file of an export that is a folder is written like any other."""
    folder = tmp_path / "export"
    assert call("export", run, folder, "--to", to)[0]
    for path in list(folder.iterdir()):
        content = path.read_bytes()
        path.unlink()
        os.mkfifo(path)
        succeeded, said = call("export", run, folder, "--to", to)
        assert not succeeded
        assert f"{path} is no regular file" in said
        assert path.is_fifo()
        path.unlink()
        path.write_bytes(content)


@pytest.mark.parametrize("to", [*FILES, *FOLDERS])
def test_fault_32_an_export_through_a_link_leaves_the_link(to, run, tmp_path):
    target, link = tmp_path / "elsewhere" / "target", tmp_path / "link"
    target.parent.mkdir()
    if to in FOLDERS:
        target.mkdir()
    else:
        target.write_text("old")
    link.symlink_to(target)
    assert call("export", run, link, "--to", to)[0]
    assert link.is_symlink()
    assert any(target.iterdir()) if to in FOLDERS else target.read_bytes() != b"old"


def test_fault_32_an_index_through_a_link_leaves_the_link(run, tmp_path):
    assert call("index", run)[0]
    index = next(path for path in run.rglob("*") if path.is_dir() and "index" in path.name)
    shutil.move(index, tmp_path / "elsewhere")
    index.symlink_to(tmp_path / "elsewhere")
    assert call("index", run)[0]
    assert index.is_symlink()


PIPES = {
    "config.toml": ("similar", "cat"),
    "keys.safetensors": ("similar", "cat"),
    "vocabulary.parquet": ("evaluate",),
    "state.json": ("similar", "cat"),
    "model.safetensors": ("similar", "cat"),
}


@pytest.mark.parametrize("name", PIPES)
def test_fault_33_a_pipe_within_a_run_is_refused(name, run):
    path = next(run.rglob(name))
    path.unlink()
    os.mkfifo(path)
    verb, *words = PIPES[name]
    succeeded, said = call(verb, run, *words)
    assert not succeeded
    assert f"{path} is no regular file" in said


@pytest.mark.filterwarnings("ignore:skipped a damaged checkpoint")
@pytest.mark.parametrize("name", ["run.json", "manifest.json", "state.json", "model.safetensors"])
def test_fault_33_a_file_of_8_gigabytes_within_a_run_is_refused(name, run):
    path = next(run.rglob(name))
    sparse(path)
    succeeded, said = call("similar", run, "cat")
    assert not succeeded
    assert str(path) in said
    assert "bytes" in said


@pytest.mark.parametrize("spoil", [os.mkfifo, lambda path: sparse(path)])
def test_fault_33_runs_leaves_out_what_has_no_metrics_file(spoil, run):
    (run / "metrics.jsonl").unlink()
    spoil(run / "metrics.jsonl")
    succeeded, said = call("runs", run.parent)
    assert succeeded
    assert f"left out: {run / 'metrics.jsonl'}" in said


def sparse(path):
    with path.open("wb") as file:
        file.truncate(8 * 2**30)


def inputs(run, pipe, text):
    return {
        "source": ("train", pipe, "--folder", run / "new"),
        "vectors": ("train", text, "--folder", run / "new", "--vectors", pipe),
        "config": ("train", text, "--folder", run / "new", "--config", pipe),
        "analogies": ("evaluate", run, "--analogies", pipe),
        "similarity": ("evaluate", run, "--similarity", pipe),
    }


@pytest.mark.parametrize("what", ["source", "vectors", "config", "analogies", "similarity"])
def test_fault_33_a_pipe_is_no_input(what, run, trained, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    succeeded, said = call(*inputs(run, pipe, trained / "text")[what])
    assert not succeeded
    assert f"{pipe} is no regular file" in said


def test_a_lock_that_is_a_pipe_is_refused(run, trained):
    lock = next(path for path in run.rglob("lock"))
    lock.unlink()
    os.mkfifo(lock)
    succeeded, said = call("train", trained / "text", "--folder", run, "--resume")
    assert not succeeded
    assert "lock is no regular file" in said


def refuse_constants(name):
    raise ValueError(f"{name} is no JSON")


@pytest.mark.parametrize(
    "arguments",
    [
        ("runs", "FOLDER"),
        ("evaluate", "RUN"),
        ("similar", "RUN", "cat"),
        ("similar", "RUN", "cat", "dog"),
        ("analogy", "RUN", "cat", "dog", "mat"),
        ("index", "RUN"),
        ("train", "TEXT", "--print-config"),
    ],
)
def test_all_json_is_strict(arguments, run, trained):
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 9, "loss": NaN, "mrr": Infinity, "nested": {"a": [NaN]}}\n')
    known = {"FOLDER": run.parent, "RUN": run, "TEXT": trained / "text"}
    given = [str(known.get(each, each)) for each in arguments]
    done = CliRunner().invoke(app, [*given, "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout, parse_constant=refuse_constants)


def test_what_is_not_finite_is_null_at_any_depth():
    assert strict_json({"a": [float("nan"), {"b": float("-inf")}, 1.0]}) == (
        '{"a": [null, {"b": null}, 1.0]}'
    )


@pytest.mark.parametrize("verb", ["export", "index"])
def test_fault_16_a_full_disk_is_named_with_the_path(verb, run, tmp_path, monkeypatch):
    """The system's own error names no file."""

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("widemax.storage.files.os.fsync", full)
    arguments = (run, tmp_path / "out") if verb == "export" else (run,)
    succeeded, said = call(verb, *arguments)
    assert not succeeded
    assert "No space left on device" in said
    assert str(tmp_path) in said
    assert not list(tmp_path.rglob("*.part"))
