"""A store of checkpoints: what is kept, what is found, who may write."""

import json
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.fuzzing import FUZZ
from widemax.storage.state_dicts import flatten_state, unflatten_state
from widemax.training.checkpoint_files import DamagedCheckpointError
from widemax.training.checkpoints import CheckpointStore

FILES = ["model.safetensors", "state.safetensors", "state.json", "manifest.json"]


def save(store, step, metric=None):
    """Save a checkpoint in which every file tells the step."""
    number = torch.full((5,), float(step))
    store.save(step, {"w": number}, {"m": number.double()}, {"step": step}, metric=metric)


def content(checkpoint):
    model, state = checkpoint.model_tensors(), checkpoint.state_tensors()
    return (
        checkpoint.step,
        checkpoint.metric,
        checkpoint.state,
        {name: (tensor.dtype, tensor.tolist()) for name, tensor in {**model, **state}.items()},
    )


def flip(path, place=-1):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


@pytest.fixture
def store(tmp_path):
    with CheckpointStore(tmp_path / "run") as store:
        yield store


def folder_of(store, step):
    return store.folder / "checkpoints" / f"step-{step:08d}"


def test_an_empty_store_has_nothing(tmp_path):
    store = CheckpointStore(tmp_path / "absent")
    assert (store.steps(), store.latest(), store.chosen()) == ([], None, None)
    with pytest.raises(ValueError, match="absent holds no checkpoint; saved steps: none"):
        store.load()
    assert not (tmp_path / "absent").exists(), "reading writes nothing"


def test_what_was_saved_is_loaded(store):
    save(store, 7, metric=0.5)
    floats = {"w": (torch.float32, [7.0] * 5), "m": (torch.float64, [7.0] * 5)}
    assert content(store.load()) == (7, 0.5, {"step": 7}, floats)
    assert content(store.load(7)) == content(store.latest()) == content(store.chosen())
    assert sorted(path.name for path in folder_of(store, 7).iterdir()) == sorted(FILES)


def test_newest_and_chosen_are_kept(tmp_path):
    metrics = [5.0, None, 1.0, None, None, 2.0, None, None, None]
    with CheckpointStore(tmp_path, keep_last=2) as store:
        kept = []
        for step, metric in enumerate(metrics):
            save(store, step, metric)
            kept.append(store.steps())
        assert kept[:5] == [[0], [0, 1], [1, 2], [2, 3], [2, 3, 4]]
        # The one that was chosen last, not the one with the smallest metric.
        assert kept[5:] == [[4, 5], [5, 6], [5, 6, 7], [5, 7, 8]]
        assert (store.chosen().step, store.latest().step) == (5, 8)
        left = {path.name for path in (tmp_path / "checkpoints").iterdir()}
        assert left == {"lock", *(f"step-{step:08d}" for step in (5, 7, 8))}


def test_infinite_metric_is_a_metric_and_nan_is_none(store):
    save(store, 1, metric=float("inf"))
    assert store.chosen().metric == float("inf")
    save(store, 2, metric=float("-inf"))
    assert store.chosen().step == 2
    save(store, 3, metric=np.float32(0.25))
    assert store.latest().metric == 0.25
    for metric in (float("nan"), "low", torch.tensor(float("nan"))):
        with pytest.raises(ValueError, match="metric must be a number or None"):
            save(store, 4, metric=metric)
    for name in FILES[2:]:
        for folder in (folder_of(store, 2), folder_of(store, 3)):
            json.loads((folder / name).read_text(), parse_constant=pytest.fail)


def test_a_run_resumes_to_the_bit(store):
    def make():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        model[2].weight.data = model[2].weight.data.t().contiguous().t()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        return model, optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)

    def train(model, optimizer, scheduler, generator, steps):
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.randn(6, 4, generator=generator)).square().mean().backward()
            optimizer.step()
            scheduler.step()

    run, generator = make(), torch.Generator().manual_seed(1)
    train(*run, generator, 5)
    parts = {"optimizer": run[1], "scheduler": run[2]}
    state = {name: part.state_dict() for name, part in parts.items()}
    tensors, rest = flatten_state({**state, "generator": generator.get_state(), "epoch": (1, 5)})
    store.save(5, run[0].state_dict(), tensors, rest)
    train(*run, generator, 5)

    resumed, saved = make(), store.load()
    state = unflatten_state(saved.state_tensors(), saved.state)
    resumed[0].load_state_dict(saved.model_tensors())
    resumed[1].load_state_dict(state["optimizer"])
    resumed[2].load_state_dict(state["scheduler"])
    assert state["epoch"] == (1, 5)
    train(*resumed, torch.Generator().set_state(state["generator"]), 5)
    for name, tensor in run[0].state_dict().items():
        assert torch.equal(resumed[0].state_dict()[name], tensor), name


def test_state_keeps_its_types_and_holds_no_tensor(store):
    state = {"pair": (1, 2.0), 3: None, "$x": {"$tensor": "m"}, "best": float("-inf")}
    store.save(1, {}, {}, state)
    assert store.load().state == state
    with pytest.raises(ValueError, match=r"no tensors, got one at a\.0; flatten_state"):
        store.save(2, {}, {}, {"a": [torch.ones(1)]})
    with pytest.raises(ValueError, match="must be a tensor, got int"):
        store.save(2, {"w": 3}, {}, {})
    assert store.steps() == [1]
    assert len(list((store.folder / "checkpoints").iterdir())) == 2


@pytest.mark.parametrize(("name", "value"), [("step", -1), ("step", 1.5), ("step", True)])
def test_bad_step_is_refused(store, name, value):
    with pytest.raises(ValueError, match=f"{name} must be"):
        save(store, value)
    with pytest.raises(ValueError, match=f"{name} must be"):
        store.load(value)


def test_bad_keep_last_is_refused(tmp_path):
    with pytest.raises(ValueError, match="keep_last must be between 1 and"):
        CheckpointStore(tmp_path, keep_last=0)


def test_missing_step_names_those_that_are_there(store):
    save(store, 1)
    save(store, 2000)
    with pytest.raises(ValueError, match="no checkpoint of step 3; saved steps: 1, 2,000"):
        store.load(3)


def test_a_step_is_never_overwritten_by_an_earlier_one(store):
    """A new run started by mistake in the folder of an old one must not remove it."""
    save(store, 10)
    for step in (10, 9, 0):
        with pytest.raises(ValueError, match=rf"step must be above 10, .* got {step}; resume"):
            save(store, step)
    assert store.load().state == {"step": 10}


@pytest.mark.parametrize("name", FILES)
def test_damaged_newest_is_named_and_can_be_skipped(store, name):
    save(store, 1, metric=1.0)
    save(store, 2, metric=0.5)
    flip(folder_of(store, 2) / name, 12)
    if name in FILES[:2]:
        with pytest.raises(DamagedCheckpointError, match=name):
            {0: store._open(2).model_tensors, 1: store._open(2).state_tensors}[FILES.index(name)]()
    for load in (store.latest, store.load, store.chosen):
        with pytest.raises(DamagedCheckpointError, match=rf"step-00000002.{name} .*or remove"):
            load()
    with pytest.warns(UserWarning, match=rf"skipped a damaged checkpoint: .*{name}"):
        assert store.latest(skip_damaged=True).step == 1
    # Training goes on from step 1: what it saves takes the place of the damaged one.
    save(store, 2, metric=0.75)
    assert store.latest().metric == store.chosen().metric == 0.75
    flip(folder_of(store, 2) / name, 12)
    with pytest.warns(UserWarning, match="skipped"):
        store.latest(skip_damaged=True)
    save(store, 3, metric=0.8)
    assert store.steps() == [2, 3]


def test_a_run_that_goes_on_before_a_damaged_step_removes_it(store):
    save(store, 10)
    save(store, 20, metric=0.1)
    (folder_of(store, 20) / "model.safetensors").unlink()
    save(store, 15)
    assert store.steps() == [10, 15]


def test_with_nothing_whole_left_skipping_is_an_error(store):
    save(store, 1)
    flip(folder_of(store, 1) / "model.safetensors")
    with pytest.raises(DamagedCheckpointError, match=r"model\.safetensors was changed"):
        store.latest(skip_damaged=True)


def test_a_renamed_folder_is_noticed(store):
    save(store, 1)
    folder_of(store, 1).rename(folder_of(store, 9))
    with pytest.raises(DamagedCheckpointError, match=r"manifest\.json is of step 1"):
        store.load()


def test_debris_is_ignored_by_readers_and_removed_by_the_next_writer(tmp_path):
    with CheckpointStore(tmp_path) as store:
        save(store, 1)
        root = tmp_path / "checkpoints"
        shutil.copytree(folder_of(store, 1), root / f".{'a' * 16}.part")
        shutil.copytree(folder_of(store, 1), folder_of(store, 2))
        (folder_of(store, 2) / "manifest.json").unlink()
        (root / "notes.txt").write_text("mine")
        (root / "step-x").mkdir()
    reader = CheckpointStore(tmp_path)
    assert reader.latest().step == 1
    assert len(list(root.iterdir())) == 6
    with CheckpointStore(tmp_path):
        left = {path.name for path in root.iterdir()}
    assert left == {"lock", "notes.txt", "step-x", "step-00000001"}


def test_two_writers_are_refused_and_readers_are_not(tmp_path):
    with CheckpointStore(tmp_path) as store:
        save(store, 1)
        with (
            pytest.raises(ValueError, match=rf"another run \(process \d+\) saves to {tmp_path}"),
            CheckpointStore(tmp_path),
        ):
            pass
        with pytest.raises(ValueError, match="wait until it has ended"):
            save(CheckpointStore(tmp_path), 2)
        assert CheckpointStore(tmp_path).load().step == 1
    with CheckpointStore(tmp_path) as store:
        save(store, 2)


def test_a_dead_writer_holds_no_lock(tmp_path):
    script = (
        "import fcntl, os, sys, time; file = open(sys.argv[1], 'w');"
        "fcntl.flock(file, fcntl.LOCK_EX);"
        "print(os.getpid(), file=file, flush=True); print('locked', flush=True); time.sleep(60)"
    )
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    command = [sys.executable, "-c", script, str(folder / "lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(ValueError, match=f"process {process.pid}"):
            save(CheckpointStore(tmp_path), 1)
        process.kill()
        process.wait()
        with CheckpointStore(tmp_path) as store:
            save(store, 1)


def test_a_reader_keeps_up_with_a_writer(tmp_path):
    """Checkpoints vanish while the reader looks at them; what it gets is whole all the same."""
    done, seen, reader = threading.Event(), set(), CheckpointStore(tmp_path)

    def write():
        with CheckpointStore(tmp_path, keep_last=1) as store:
            for step in range(2000):
                save(store, step, metric=float(step % 7))
                # On a busy machine the reader may be asleep for many steps.
                if step >= 40 and len(seen) > 3:
                    break
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not done.is_set():
        for found in (reader.latest(), reader.chosen()):
            if found is not None:
                assert found.state == {"step": found.step}
                seen.add(found.step)
    writer.join()
    assert len(seen) > 3


@pytest.fixture(scope="module")
def valid(tmp_path_factory):
    folder = tmp_path_factory.mktemp("valid")
    with CheckpointStore(folder) as store:
        save(store, 3, metric=0.5)
    return store


@FUZZ
@given(data=st.data())
def test_fuzzed_files_are_refused_or_mean_the_same(valid, data):
    path = folder_of(valid, 3) / data.draw(st.sampled_from(FILES))
    whole = path.read_bytes()
    expected = content(valid.load())
    place = data.draw(st.integers(0, len(whole) - 1))
    piece = data.draw(st.binary(min_size=1, max_size=9))
    kind = data.draw(st.sampled_from(["change", "cut", "insert"]))
    changed = {
        "change": whole[:place] + piece + whole[place + len(piece) :],
        "cut": whole[:place],
        "insert": whole[:place] + piece + whole[place:],
    }[kind]
    path.write_bytes(changed)
    try:
        found, problem = content(valid.load()), None
    except ValueError as error:
        found, problem = None, str(error)
    finally:
        path.write_bytes(whole)
    if problem is None:
        assert found == expected
        assert changed == whole or path.name == "manifest.json"
    else:
        assert path.parent.name in problem
