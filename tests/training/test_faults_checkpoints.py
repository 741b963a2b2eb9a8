"""Kills, full disks and hostile files: the last whole checkpoint loads, and nothing is executed."""

import errno
import hashlib
import json
import os
import pickle
import random
import re
import resource
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzzing import FUZZ
from tests.training.test_checkpoints import FILES, content, folder_of, save
from widemax.storage.tensors import read_tensors, serialize_tensors
from widemax.training.checkpoint_files import DamagedCheckpointError
from widemax.training.checkpoints import CheckpointStore

# Below the size from which torch works in threads, which a forked child does not have.
LENGTH = 20_000
ROOT = Path(__file__).parents[2]


def save_large(store, step):
    model = {f"w{index}": torch.full((LENGTH,), float(step)) for index in range(5)}
    store.save(step, model, {"m": torch.full((LENGTH,), step)}, {"step": step}, metric=-step)


def check_whole(checkpoint):
    """Every file must be of the step that the folder's name states."""
    step = checkpoint.step
    assert checkpoint.state == {"step": step}
    assert checkpoint.metric == -step
    model, state = checkpoint.model_tensors(), checkpoint.state_tensors()
    assert len(model) == 5
    for tensor in (*model.values(), *state.values()):
        assert torch.equal(tensor, torch.full((LENGTH,), step).to(tensor.dtype))


def check_usable(folder):
    """The next run must be able to go on, and find the folder clean."""
    with CheckpointStore(folder, keep_last=1) as store:
        save_large(store, store.latest().step + 1)
        names = {path.name for path in (folder / "checkpoints").iterdir()}
        assert names == {"lock", *(f"step-{step:08d}" for step in store.steps())}
        assert len(names) == 2


def fork(work):
    """Run ``work`` in a child that has all modules loaded already; return its process id."""
    child = os.fork()
    if child:
        return child
    try:
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def wait(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("seed", range(15))
def test_fault_15_kill_at_a_random_moment(tmp_path, seed):
    choose = random.Random(seed)
    with CheckpointStore(tmp_path) as store:
        save_large(store, 0)
    for _ in range(2):
        told, tell = os.pipe()

        def save_for_ever(tell=tell):
            with CheckpointStore(tmp_path, keep_last=1) as store:
                step = store.latest().step
                while True:
                    step += 1
                    save_large(store, step)
                    os.write(tell, step.to_bytes(8, "little"))

        child = fork(save_for_ever)
        os.close(tell)
        start, reported = time.perf_counter(), 0
        for saves in range(1, choose.randint(2, 4)):
            reported = int.from_bytes(os.read(told, 8), "little")
            one_save = (time.perf_counter() - start) / saves
        time.sleep(choose.uniform(0, one_save))
        os.kill(child, signal.SIGKILL)
        assert wait(child) == -signal.SIGKILL
        os.close(told)
        found = CheckpointStore(tmp_path).latest()
        check_whole(found)
        assert found.step >= reported > 0, "what was reported as saved is there"
    check_usable(tmp_path)


def die_at(number):
    """Kill this process just before the so-many-th file is opened, synced, renamed or removed."""
    seen = 0

    def count(event, _):
        nonlocal seen
        if event in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.fsync"):
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)
            seen += 1

    fsync = os.fsync
    os.fsync = lambda descriptor: (count("os.fsync", ()), fsync(descriptor))
    sys.addaudithook(count)


def test_fault_15_kill_at_every_single_file_operation(tmp_path):
    killed, steps = 0, set()
    for number in range(200):
        folder = tmp_path / str(number)
        with CheckpointStore(folder, keep_last=1) as store:
            save_large(store, 1)

        def save_once(number=number, folder=folder):
            with CheckpointStore(folder, keep_last=1) as store:
                die_at(number)
                save_large(store, 2)

        code = wait(fork(save_once))
        found = CheckpointStore(folder).latest()
        check_whole(found)
        check_usable(folder)
        if code == 0:
            break
        assert code == -signal.SIGKILL
        killed += 1
        steps.add(found.step)
    assert code == 0, "no end of operations"
    assert killed >= 20
    assert steps == {1, 2}


@pytest.mark.parametrize("function", ["fsync", "mkdir", "rename"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_fault_16_failing_disk_keeps_what_was_saved(tmp_path, monkeypatch, function, number):
    real = getattr(os, function)
    failures = []
    with CheckpointStore(tmp_path) as store:
        save_large(store, 0)
        for fail_at in range(7):
            calls = 0

            def failing(*arguments, fail_at=fail_at, **options):
                nonlocal calls
                calls += 1
                if calls > fail_at:
                    raise OSError(number, os.strerror(number))
                return real(*arguments, **options)

            before = store.latest().step
            monkeypatch.setattr(os, function, failing)
            try:
                save_large(store, before + 1)
            except OSError as error:
                failures.append(error)
            monkeypatch.setattr(os, function, real)
            check_whole(store.load(before))
            check_whole(store.latest())
            assert not list((tmp_path / "checkpoints").glob(".*"))
    assert len(failures) >= {"fsync": 6, "mkdir": 1, "rename": 1}[function]
    for error in failures:
        assert error.errno == number
        assert re.search(f"what was saved before is intact: '{tmp_path}'", str(error))


@pytest.mark.parametrize("limit", [0, 1, 100, 4096, 100_000, 4 * 5 * LENGTH - 1])
def test_fault_16_file_too_large_keeps_what_was_saved(tmp_path, limit):
    def save_with_limit():
        with CheckpointStore(tmp_path) as store:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            with pytest.raises(OSError, match=f"cannot save step 2: File too large.*{tmp_path}"):
                save_large(store, 2)

    with CheckpointStore(tmp_path) as store:
        save_large(store, 1)
    assert wait(fork(save_with_limit)) == 0
    assert not list((tmp_path / "checkpoints").glob(".*"))
    check_whole(CheckpointStore(tmp_path).latest())
    check_usable(tmp_path)


FULL_DISK = """
import errno, subprocess, sys
from pathlib import Path
import torch
from tests.training.test_faults_checkpoints import (
    CheckpointStore, check_usable, check_whole, save_large)

def refused(number, store, tensor):
    try:
        store.save(2, {"w": tensor}, {}, {})
    except OSError as error:
        return error.errno == number and sys.argv[1] in str(error)

folder = Path(sys.argv[1])
with CheckpointStore(folder, keep_last=1) as store:
    save_large(store, 1)
    assert refused(errno.ENOSPC, store, torch.zeros(10**6))
check_whole(store.latest())
check_usable(folder)
subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
assert refused(errno.EROFS, CheckpointStore(folder), torch.zeros(1))
check_whole(CheckpointStore(folder).latest())
print("intact")
"""


def test_fault_16_really_full_and_really_read_only(tmp_path):
    """On a file system of 2 MB of its own, which ends with the process."""
    mount = 'mount -t tmpfs -o size=2m tmpfs "$1"'
    inside = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    try:
        subprocess.run([*inside, mount, "sh", tmp_path], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this machine lets nobody mount a file system")
    run = subprocess.run(
        [*inside, f'{mount} && exec "$2" -c "$3" "$1"', "sh", tmp_path, sys.executable, FULL_DISK],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert run.stdout == "intact\n", run.stderr


@pytest.fixture
def store(tmp_path):
    with CheckpointStore(tmp_path / "run") as store:
        save(store, 1)
        yield store


def forge(store, name, data):
    """Replace a file and make the manifest agree, as only an attacker would."""
    folder = folder_of(store, 1)
    (folder / name).write_bytes(data)
    manifest = json.loads((folder / "manifest.json").read_text())
    record = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    manifest["files"][name] = record
    (folder / "manifest.json").write_text(json.dumps(manifest))


def tensor_file(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(shape, start, end, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


HOSTILE = {
    "length 2^63": tensor_file(b"{}", length=2**63),
    "length beyond the file": tensor_file(b"{}", length=3),
    "overlap": tensor_file({"a": entry([2], 0, 8), "b": entry([2], 4, 12)}, bytes(12)),
    "gap": tensor_file({"a": entry([1], 0, 4), "b": entry([1], 8, 12)}, bytes(12)),
    "backwards": tensor_file({"a": entry([1], 4, 0)}, bytes(4)),
    "data too short": tensor_file({"a": entry([2], 0, 8)}, bytes(4)),
    "data too long": tensor_file({"a": entry([1], 0, 4)}, bytes(8)),
    "shape and bytes differ": tensor_file({"a": entry([3], 0, 8)}, bytes(8)),
    "shape overflows": tensor_file({"a": entry([2**32, 2**32], 0, 0)}),
    "empty, but endless": tensor_file({"a": entry([0, 2**64 - 1], 0, 0)}),
    "negative shape": tensor_file({"a": entry([-1], 0, 4)}, bytes(4)),
    "unknown type": tensor_file({"a": entry([1], 0, 4, "PICKLE")}, bytes(4)),
    "halves of bytes": tensor_file({"a": entry([2], 0, 1, "F4")}, bytes(1)),
    "no JSON": tensor_file(b"\x80\x04."),
    "nested without end": tensor_file(b'{"a":' * 100_000),
    "nothing": b"",
    "three bytes": b"abc",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_fault_17_hostile_tensor_file_is_refused(store, name):
    for file in FILES[:2]:
        forge(store, file, HOSTILE[name])
        checkpoint = store.load()
        read = checkpoint.model_tensors if file == FILES[0] else checkpoint.state_tensors
        with pytest.raises(ValueError, match=rf"{file} is not a whole safetensors file"):
            read()


def test_fault_17_a_header_over_100_mb_is_refused_unread(tmp_path, monkeypatch):
    path = tmp_path / "a.safetensors"
    with path.open("wb") as file:
        file.write((100_000_001).to_bytes(8, "little"))
        file.truncate(200_000_000)  # a hole: it takes no space
    with pytest.raises(ValueError, match="header too large"):
        read_tensors(path)
    monkeypatch.setattr("widemax.storage.tensors.MAX_HEADER_BYTES", 1000)
    with pytest.raises(ValueError, match="may take 1,000 bytes, got 1,"):
        serialize_tensors({"x" * 1000: torch.ones(1)})


def test_fault_17_any_flipped_header_byte_is_an_error(store):
    path = folder_of(store, 1) / "model.safetensors"
    whole = path.read_bytes()
    for place in range(8 + int.from_bytes(whole[:8], "little")):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(DamagedCheckpointError, match=r"model\.safetensors was changed"):
            store.load()


@FUZZ
@given(data=st.data())
def test_fault_17_fuzzed_tensor_file_is_read_or_refused(tmp_path, data):
    """Without a manifest to compare, any answer but a ValueError must be made of tensors."""
    tensors = {"a": torch.ones(3), "b": torch.ones(2, 2).bool(), "c": torch.empty(0)}
    whole = b"".join(serialize_tensors({**tensors, "tied": tensors["a"]}))
    place = data.draw(st.integers(0, len(whole)))
    piece = data.draw(st.binary(max_size=8) | st.sampled_from([b"9", b"{", b'"', b"[", b","]))
    rest = data.draw(st.sampled_from([place, place + len(piece), len(whole)]))
    path = tmp_path / "a.safetensors"
    path.write_bytes(whole[:place] + piece + whole[rest:])
    try:
        found, problem = read_tensors(path), str(path)
    except ValueError as error:
        found, problem = {}, str(error)
    assert str(path) in problem
    assert all(isinstance(tensor, torch.Tensor) for tensor in found.values())


class Payload:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (self.marker,)


def test_fault_18_renamed_pickles_never_run(store, tmp_path):
    marker = tmp_path / "executed"
    torch.save(Payload(marker), tmp_path / "a.pt")
    np.save(tmp_path / "a.npy", np.array([Payload(marker)], dtype=object), allow_pickle=True)
    payloads = [
        pickle.dumps(Payload(marker)),
        (tmp_path / "a.pt").read_bytes(),
        (tmp_path / "a.npy").read_bytes(),
    ]
    for data in payloads:
        forge(store, "model.safetensors", data)
        forge(store, "state.safetensors", data)
        for read in (store.load().model_tensors, store.load().state_tensors):
            with pytest.raises(ValueError, match="is not a whole safetensors file"):
                read()
        forge(store, "state.json", data)
        with pytest.raises(ValueError, match=r"state\.json is not whole JSON"):
            store.load()
        forge(store, "state.json", b'{"metric": null, "state": {}}')
    assert not marker.exists()
    pickle.loads(payloads[0])
    assert marker.exists(), "the payload itself works"


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "3",
        "{}",
        '{"metric": 1, "state": {}}',
        '{"metric": null, "state": []}',
        '{"metric": null, "state": NaN}',
        '{"metric": null, "state": {"$tensor": "w"}}',
        "[" * 10**5,
    ],
)
def test_forged_state_is_refused(store, text):
    forge(store, "state.json", text.encode())
    with pytest.raises(ValueError, match="state"):
        store.load()


@pytest.mark.parametrize(
    "change",
    [
        {"files": {}},
        {"files": None},
        {"files": dict.fromkeys(FILES[:3], 3)},
        {"files": {name: {} for name in FILES[:3]}},
        {"files": {"../../secret": {}}},
        {"step": "1"},
        {"step": None},
        {"format_version": 0},
        {"format_version": True},
        {"format_version": "1"},
        {"format_version": None},
    ],
)
def test_forged_manifest_is_refused(store, change):
    path = folder_of(store, 1) / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(DamagedCheckpointError, match="step-00000001"):
        store.load()


def test_fault_22_newer_format_says_which_version_is_needed(store):
    save(store, 2)
    before = content(store.load(1))
    path = folder_of(store, 2) / "manifest.json"
    path.write_text(json.dumps({"format_version": 2, "layout": "unknown to us"}))
    message = "has format version 2 and this widemax reads 1: a newer widemax is needed"
    for read in (store.latest, store.chosen, store.load, lambda: store.latest(skip_damaged=True)):
        with pytest.raises(ValueError, match=message):
            read()
    for step in (2, 3):
        with pytest.raises(ValueError, match=message):
            save(store, step)
    assert store.steps() == [1, 2], "what a newer widemax saved is not removed"
    assert content(store.load(1)) == before
