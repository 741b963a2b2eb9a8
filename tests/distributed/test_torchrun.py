"""``torchrun -m widemax train``: the run of one process, whoever fails and however many go on."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from tests import forked
from tests.distributed.processes import free_port
from widemax.config import Config
from widemax.runs.api import load, train

SETTINGS = {
    "dimension": 8,
    "batch_size": 25,
    "sampler": "mixture",
    "mixture": "in-batch=1, uniform=1",
    "num_samples": 40,
    "objective": "corrected-log-q",
    "checkpoint_every": 10,
    "validate_every": 20,
    "patience": 0,
    "seed": 3,
}
STEPS = 40


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    drawn = random.Random(1)
    rows = ["user,item,time"]
    for user in range(90):
        first = drawn.randrange(20)
        rows += [f"u{user},i{(first + drawn.randrange(8)) % 40},{t}" for t in range(9)]
    path = tmp_path_factory.mktemp("log") / "log.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture(scope="module")
def alone(log, tmp_path_factory):
    """Train in this process, once for all: also compiles what the others then find compiled."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    train(log, Config(steps=STEPS, **SETTINGS), folder=folder)
    return folder


def command(log, folder, steps, **more):
    words = ["train", str(log), "--folder", str(folder)]
    for name, value in {**SETTINGS, "steps": steps, **more}.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return words


def torchrun(processes, words, *flags):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    address = ["--master-addr", "127.0.0.1", "--master-port", str(free_port())]
    return subprocess.Popen(
        [*launcher, *address, *flags, "-m", "widemax", *words],
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )


def ranks(processes, words):
    """Start the processes that torchrun would start, each told its rank as torchrun tells it."""
    port = str(free_port())
    return [
        forked.Program(
            ["-m", "widemax", *words],
            env=environment(RANK=str(rank), WORLD_SIZE=str(processes), MASTER_PORT=port),
        )
        for rank in range(processes)
    ]


def all_finished(started):
    """Return the exit codes of processes, and all that they said."""
    found = [finished(each) for each in started]
    return [code for code, _ in found], "".join(text for _, text in found)


def environment(**more):
    return {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", **more}


def finished(process, seconds=500):
    try:
        _, text = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        for each in [*psutil.Process(process.pid).children(recursive=True), process]:
            each.kill()
        raise
    return process.returncode, text


def tensors(folder, step=STEPS):
    return load_file(folder / "checkpoints" / f"step-{step:08d}" / "model.safetensors")


def assert_same(folder, other):
    found, wanted = tensors(folder), tensors(other)
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=1e-5)


def wait_for(path: Path, process):
    end = time.monotonic() + 400
    while not path.exists():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < end
        time.sleep(0.02)


def worker_of(launcher, rank):
    """Return the process id of a rank that a launcher started."""
    for each in psutil.Process(launcher.pid).children(recursive=True):
        if each.environ().get("RANK") == str(rank):
            return each.pid
    raise AssertionError(f"no rank {rank}")


def test_three_processes_then_two_then_one_end_as_one_process_does(log, alone, tmp_path):
    folder = tmp_path / "run"
    code, text = finished(torchrun(3, command(log, folder, 15)))
    assert code == 0, text
    assert text.count("to train on") == 1  # one of them speaks
    codes, text = all_finished(ranks(2, [*command(log, folder, 30), "--resume"]))
    assert codes == [0, 0], text
    assert "resumed at step 15" in text
    train(log, Config(steps=STEPS, **SETTINGS), folder=folder, resume=True)
    assert_same(folder, alone)
    asked = ["i1", "i2"]
    assert [each.key for each in load(folder).recommend(asked, k=5)] == [
        each.key for each in load(alone).recommend(asked, k=5)
    ]


def test_a_killed_process_is_started_anew_and_goes_on_from_the_last_checkpoint(
    log, alone, tmp_path
):
    folder = tmp_path / "run"
    process = torchrun(2, command(log, folder, STEPS), "--max-restarts", "1")
    wait_for(folder / "checkpoints" / "step-00000010", process)
    os.kill(worker_of(process, 1), signal.SIGKILL)
    code, text = finished(process)
    assert code == 0, text
    assert "resumed at step" in text
    assert_same(folder, alone)


def test_fault_14_a_process_that_dies_ends_the_others_and_is_named(log, alone, tmp_path):
    folder = tmp_path / "run"
    started = ranks(2, command(log, folder, 10**6, checkpoint_every=5))
    wait_for(folder / "checkpoints" / "step-00000005", started[0])
    started[1].kill()
    code, text = finished(started[0], 60)
    finished(started[1])
    assert code == 2
    lines = [line for line in text.splitlines() if "has ended" in line]
    assert len(lines) == 1, text
    assert lines[0].startswith("widemax: rank 0 stops, for rank 1 of 2 has ended")
    assert "Traceback" not in text
    assert load(folder).recommend(["i1"], k=1)


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ("--model popularity", "several processes train models by gradients (trainer torch)"),
        ("--model airbnb --sampler learned-unigram", "how often a batch asks its head depends"),
    ],
)
def test_what_cannot_be_divided_is_refused_in_one_line(log, tmp_path, flags, why):
    words = ["train", str(log), "--folder", str(tmp_path / "run"), *flags.split()]
    codes, text = all_finished(ranks(2, words))
    assert all(codes)
    assert text.count(why) == 2  # each of them says it
