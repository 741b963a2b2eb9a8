"""Runs that are killed, stopped, starved of disk or lied to: nothing saved is lost."""

import os
import random
import shutil
import signal
import time

import polars as pl
import pytest

import widemax as wm
from tests.runs.run_processes import finish, start
from widemax.data import python_reference
from widemax.runs.training.preparing import prepare
from widemax.training.checkpoints import CheckpointStore

FLAGS = [
    "--steps", 100, "--dimension", 8, "--batch-size", 32, "--num-samples", 10, "--threads", 1,
    "--checkpoint-every", 3, "--validate-every", 20, "--validation-size", 200, "--patience", 0,
]  # fmt: skip


def kills():
    return int(os.environ.get("WIDEMAX_KILLS", "10"))


def write_source(kind, folder):
    """Write a log in which every user walks a ring of 30 items, or some real language."""
    path = folder / kind
    if kind == "text":
        path.write_text("\n".join(python_reference().split("\n")[:200]))
        return path
    choose, lines = random.Random(0), ["user,item,time"]
    for user in range(120):
        first = choose.randrange(30)
        lines += [f"u{user},i{(first + step) % 30},{step}" for step in range(8)]
    path.write_text("\n".join(lines) + "\n")
    return path


def outcome(folder):
    """What must not depend on how often a run was stopped."""
    weights = CheckpointStore(folder).load().model_tensors()
    metrics = [{**line, "seconds": 0} for line in wm.load(folder).metrics]
    return {name: tensor.tolist() for name, tensor in weights.items()}, metrics


class Whole:
    """A source, and what a run on it comes to when nothing stops it."""

    def __init__(self, kind, folder):
        self.source = write_source(kind, folder)
        finish(["--version"], folder / "output")  # starts the server of processes
        began = time.perf_counter()
        arguments = ["train", self.source, "--folder", folder / "run", *FLAGS]
        code, said = finish(arguments, folder / "output")
        assert code == 0, said
        self.seconds = time.perf_counter() - began
        self.outcome = outcome(folder / "run")


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return Whole("log", tmp_path_factory.mktemp("log"))


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return Whole("text", tmp_path_factory.mktemp("text"))


def check_readable(folder):
    """A run loads, or says what it has not got yet; return what to go on with."""
    saved = CheckpointStore(folder).steps()
    if not saved:
        begun = (folder / "run.json").exists()
        missing = "no checkpoint yet" if begun else "not the folder of a run"
        with pytest.raises(ValueError, match=missing):
            wm.load(folder)
        return ["--resume"] if begun else FLAGS
    assert CheckpointStore(folder).latest().step == saved[-1]
    assert wm.load(folder).similar(wm.load(folder).vocabulary.keys[0], k=1)
    return ["--resume"]


def kill(process, folder, choose, *, early, seconds):
    """Kill a run early or around a checkpoint; return whether it was still alive."""
    if early:
        # Reading, building, creating the folder, going back to a checkpoint.
        process.join(choose.uniform(0, seconds / 2))
    else:
        before = CheckpointStore(folder).steps()
        while process.exitcode is None and CheckpointStore(folder).steps() == before:
            time.sleep(0.001)
        process.join(choose.uniform(0, seconds / 10))
    process.kill()
    process.join()
    return process.exitcode == -signal.SIGKILL


@pytest.mark.parametrize("kind", ["log", "text"])
def test_fault_15_killed_at_any_moment_it_ends_bit_identical(kind, request, tmp_path):
    whole, output = request.getfixturevalue(kind), tmp_path / "output"
    choose, left, runs = random.Random(0), kills(), 0
    while left:
        runs += 1
        folder, going_on, early = tmp_path / f"run{runs}", FLAGS, True
        while True:
            process = start(["train", whole.source, "--folder", folder, *going_on], output)
            if not left or not kill(process, folder, choose, early=early, seconds=whole.seconds):
                break
            left -= 1
            going_on, early = check_readable(folder), choose.random() < 0.3
        process.join()
        assert process.exitcode == 0, output.read_text()
        assert outcome(folder) == whole.outcome
        assert not list(folder.rglob("*.part"))
    print(f"{kills()} kills in {runs} runs")


READING = ("widemax.runs.training.preparing", "read_configured", 1)
IN_A_STEP = ("widemax.training.gradients.steps", "check_finite", 8)
VALIDATING = ("widemax.runs.judging.validation", "evaluate_recommendations", 2)
SAVING = ("widemax.training.checkpoints", "write_checkpoint", 3)
TIDYING = ("widemax.training.checkpoints", "sync_folder", 5)


@pytest.mark.parametrize("moment", [READING, IN_A_STEP, VALIDATING, SAVING, TIDYING])
def test_fault_30_ctrl_c_saves_says_how_to_go_on_and_exits_130(moment, log, tmp_path):
    output, folder = tmp_path / "output", tmp_path / "run"
    code, said = finish(["train", log.source, "--folder", folder, *FLAGS], output, interrupt=moment)
    assert code == 130, said
    assert "Traceback" not in said
    if moment == READING:
        assert not folder.exists()
        return
    assert "--resume" in said
    stopped_at = CheckpointStore(folder).latest().step
    assert 0 < stopped_at < 100
    code, said = finish(["train", log.source, "--folder", folder, "--resume"], output)
    assert code == 0, said
    assert f"resumed at step {stopped_at}" in said
    assert outcome(folder) == log.outcome


def test_fault_16_disk_full_is_one_line_and_keeps_the_run(log, tmp_path):
    """No file may grow beyond the limit: less than a checkpoint, more than the message."""
    limit = 2000
    output, folder = tmp_path / "output", tmp_path / "run"
    finish(["train", log.source, "--folder", folder, *FLAGS], output, interrupt=VALIDATING)
    before = outcome(folder)
    code, said = finish(["train", log.source, "--folder", folder, "--resume"], output, limit=limit)
    assert code == 2, said
    assert outcome(folder) == before
    code, said = finish(
        ["train", log.source, "--folder", tmp_path / "new", *FLAGS], output, limit=limit
    )
    assert code == 2, said
    assert not list((tmp_path / "new").glob(".*.part"))
    going_on = check_readable(tmp_path / "new")
    code, said = finish(["train", log.source, "--folder", tmp_path / "new", *going_on], output)
    assert code == 0, said


def written(folder):
    """What tells a file that was written from one that was only read."""
    found = {path: path.stat() for path in folder.rglob("*")}
    return {path: (each.st_ino, each.st_size, each.st_mtime_ns) for path, each in found.items()}


def test_a_second_process_is_refused_before_it_touches_anything(log, tmp_path):
    folder = tmp_path / "run"
    training = prepare(log.source, wm.Config(epochs=1, dimension=4), folder)
    before = written(folder)
    for resume in (True, False):
        with pytest.raises(ValueError, match=r"another run|holds a run already"):
            wm.train(log.source, wm.Config(epochs=1), folder=folder, resume=resume)
    assert written(folder) == before
    training.run()
    wm.train(log.source, folder=folder, resume=True)


def test_fault_36_a_source_with_other_names_is_not_resumed(log, tmp_path):
    folder, renamed = tmp_path / "run", tmp_path / "renamed"
    renamed.write_text(log.source.read_text().replace("i7,", "j7,"))
    wm.train(log.source, wm.Config(epochs=1, dimension=4), folder=folder)
    with pytest.raises(ValueError, match="content differs"):
        wm.train(renamed, folder=folder, resume=True)


def test_an_edited_configuration_is_not_used(log, tmp_path):
    folder = tmp_path / "run"
    wm.train(log.source, wm.Config(epochs=1, dimension=4), folder=folder)
    path = folder / "config.toml"
    path.write_text(path.read_text().replace("seed = 0", "seed = 1"))
    for use in (wm.load, lambda each: wm.train(log.source, folder=each, resume=True)):
        with pytest.raises(ValueError, match=r"config\.toml was changed"):
            use(folder)


def test_a_checkpoint_of_another_run_does_not_fit(log, tmp_path):
    for dimension in (4, 5):
        config = wm.Config(epochs=1, dimension=dimension)
        wm.train(log.source, config, folder=tmp_path / str(dimension))
    shutil.rmtree(tmp_path / "5" / "checkpoints")
    shutil.copytree(tmp_path / "4" / "checkpoints", tmp_path / "5" / "checkpoints")
    for use in (wm.load, lambda each: wm.train(log.source, folder=each, resume=True)):
        with pytest.raises(ValueError, match=r"does not fit.*config\.toml.*\[30, 4\]"):
            use(tmp_path / "5")


def test_a_damaged_best_checkpoint_leaves_the_others(log, tmp_path):
    folder = tmp_path / "run"
    config = wm.Config(steps=9, dimension=4, validate_every=3, checkpoint_every=3, patience=0)
    best = wm.train(log.source, config, folder=folder).step
    (folder / "checkpoints" / f"step-{best:08d}" / "model.safetensors").write_bytes(b"")
    with pytest.warns(UserWarning, match=f"skipped a damaged checkpoint.*{best}"):
        run = wm.load(folder)
    assert run.step != best
    with pytest.raises(ValueError, match=r"model\.safetensors was changed: it has 0 bytes"):
        CheckpointStore(folder).chosen()


def test_fault_36_a_changed_vocabulary_never_reaches_the_parser(log, tmp_path, monkeypatch):
    """Polars aborts the process on some damaged files: no exception to catch."""
    folder = tmp_path / "run"
    wm.train(log.source, wm.Config(epochs=1, dimension=4), folder=folder)
    path = folder / "vocabulary.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:40] + bytes([whole[40] ^ 1]) + whole[41:])
    monkeypatch.setattr("widemax.vocabulary.vocabulary.read_table", None)
    for use in (wm.load, lambda each: wm.train(log.source, folder=each, resume=True)):
        with pytest.raises(ValueError, match=r"vocabulary\.parquet was changed"):
            use(folder)


@pytest.mark.parametrize("key", ["9223372036854775808", "\u0663", "1.0", "", "\udc80"])
def test_a_key_that_is_no_number_is_refused_by_a_run_of_numbers(key, tmp_path):
    rows = [f"{user},{(user + step) % 5 + 2**63 - 6}" for user in range(20) for step in range(4)]
    (tmp_path / "log").write_text("user,item\n" + "\n".join(rows) + "\n")
    run = wm.train(tmp_path / "log", wm.Config(epochs=1, dimension=4), folder=tmp_path / "run")
    assert run.similar(str(2**63 - 3), k=1)
    with pytest.raises(ValueError, match="keys must"):
        run.similar(key)


def test_a_table_in_memory_and_a_table_of_settings_are_refused_by_name(log, tmp_path):
    with pytest.raises(ValueError, match=r"source must be the path .*type DataFrame: .*write_parq"):
        wm.train(pl.DataFrame({"user": [1], "item": [2]}), folder=tmp_path / "run")
    with pytest.raises(ValueError, match=r"config must be a wm\.Config, .*got a table"):
        wm.train(log.source, {"epochs": 1}, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()
