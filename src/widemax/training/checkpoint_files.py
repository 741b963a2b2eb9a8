"""One checkpoint on disk: its files, and the manifest that proves them whole."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from widemax.storage.files import sync_folder
from widemax.storage.state_dicts import flatten_state, parse_json, unflatten_state
from widemax.storage.tensors import read_tensors, serialize_tensors

FORMAT_VERSION = 1
MANIFEST = "manifest.json"

_MODEL, _STATE_TENSORS, _STATE = "model.safetensors", "state.safetensors", "state.json"
_MAX_MANIFEST_BYTES = 2**20
_SLICE = 2**22


class DamagedCheckpointError(ValueError):
    """A checkpoint is not what was saved: a file is missing, cut short or changed.

    Formula: raised when the sha256 of a file is not the one in the manifest.

    Shapes: none; the message names the file and what to do.

    Cost: none.

    Reference: none.

    Use when: catching it, to go on from an earlier checkpoint. Avoid when:
    ``latest(skip_damaged=True)`` does.

    >>> str(DamagedCheckpointError(Path("run/checkpoints/step-00000007/state.json"), "is missing"))
    'run/checkpoints/step-00000007/state.json is missing; restore it from a copy, or remove
    step-00000007 to go on from the checkpoint before it'
    """

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(
            f"{path} {problem}; restore it from a copy, or remove {path.parent.name} "
            "to go on from the checkpoint before it"
        )


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """One saved moment of a run.

    Formula: every file has the sha256 that the manifest states, or reading it is an error.

    Shapes: ``state`` as it was given to ``save``; the tensors by name, on the CPU.

    Cost: opening reads the state; each call of ``model_tensors`` or ``state_tensors`` reads its
    file twice, once to check it.

    Reference: none.

    Use when: resuming or serving what ``CheckpointStore`` saved. Avoid when: the weights are to be
    shared beyond the run; ``model.safetensors`` in its folder can be copied as it is.

    >>> import tempfile, torch
    >>> from widemax.training.checkpoints import CheckpointStore
    >>> with CheckpointStore(tempfile.mkdtemp()) as store:
    ...     store.save(5, {"weight": torch.ones(2)}, {}, {"epoch": 1}, metric=0.25)
    ...     checkpoint = store.load()
    >>> checkpoint.step, checkpoint.metric, checkpoint.state, checkpoint.model_tensors()
    (5, 0.25, {'epoch': 1}, {'weight': tensor([1., 1.])})
    """

    folder: Path
    step: int
    metric: float | None
    state: dict[Any, Any]
    records: Mapping[str, Mapping[str, Any]]

    def model_tensors(self) -> dict[str, Tensor]:
        """Return the tensors of the model; names that were tied share one again."""
        return self._read(_MODEL)

    def state_tensors(self) -> dict[str, Tensor]:
        """Return the tensors of the optimiser and whatever else resumes the run."""
        return self._read(_STATE_TENSORS)

    def check(self) -> None:
        """Raise ``DamagedCheckpointError`` if any file is not what was saved."""
        for name, record in self.records.items():
            _check_file(self.folder / name, record)

    def _read(self, name: str) -> dict[str, Tensor]:
        _check_file(self.folder / name, self.records[name])
        return read_tensors(self.folder / name)


def write_checkpoint(
    folder: Path,
    step: int,
    model_tensors: Mapping[str, Tensor],
    state_tensors: Mapping[str, Tensor],
    state: Mapping[Any, Any],
    metric: float | None,
) -> None:
    """Make ``folder`` and put a whole checkpoint into it and on disk, the manifest last."""
    contents = {
        _MODEL: serialize_tensors(model_tensors),
        _STATE_TENSORS: serialize_tensors(state_tensors),
        _STATE: _serialize_state(state, metric),
    }
    folder.mkdir()
    records = {name: _write(folder / name, chunks) for name, chunks in contents.items()}
    manifest = {"format_version": FORMAT_VERSION, "step": step, "files": records}
    _write(folder / MANIFEST, [_json_bytes(manifest)])
    sync_folder(folder)


def open_checkpoint(folder: Path, step: int) -> Checkpoint:
    """Return the checkpoint in ``folder``; of its files only the state is read and checked yet."""
    records = _read_manifest(folder / MANIFEST, step)
    path = folder / _STATE
    _check_file(path, records[_STATE])
    with _reading(path):
        text = path.read_bytes()
    given = parse_json(str(path), text)
    try:
        content = unflatten_state({}, given)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if set(content) != {"metric", "state"} or not isinstance(content["state"], dict):
        raise ValueError(f"{path} must hold a metric and a state, got {list(content)}")
    if not isinstance(content["metric"], float | None):
        raise ValueError(f"{path} must hold a metric or null, got {content['metric']!r}")
    return Checkpoint(folder, step, content["metric"], content["state"], records)


def _serialize_state(state: Mapping[Any, Any], metric: float | None) -> list[memoryview]:
    tensors, content = flatten_state({"metric": metric, "state": dict(state)})
    for name in tensors:
        raise ValueError(
            f"state must hold no tensors, got one at {name.removeprefix('state.')}; "
            "flatten_state takes them out"
        )
    return [_json_bytes(content)]


def _json_bytes(content: Mapping[str, Any]) -> memoryview:
    return memoryview(json.dumps(content, allow_nan=False, indent=1).encode())


def _write(path: Path, chunks: Iterable[memoryview]) -> dict[str, Any]:
    """Write a file and wait until it is on disk; return its size and sha256."""
    digest = hashlib.sha256()
    with path.open("xb") as file:
        for chunk in chunks:
            # In slices, so that what is hashed is still in the cache when it is written.
            for start in range(0, len(chunk), _SLICE):
                digest.update(chunk[start : start + _SLICE])
                file.write(chunk[start : start + _SLICE])
        file.flush()
        os.fsync(file.fileno())
        return {"size": file.tell(), "sha256": digest.hexdigest()}


def _check_file(path: Path, record: Mapping[str, Any]) -> None:
    with _reading(path):
        size = path.stat().st_size
        if size != record.get("size"):
            raise DamagedCheckpointError(
                path, f"has {size:,} bytes where the manifest states {record.get('size')}"
            )
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != record.get("sha256"):
        raise DamagedCheckpointError(path, "was changed: its sha256 is not that of the manifest")


def _read_manifest(path: Path, step: int) -> dict[str, dict[str, Any]]:
    with _reading(path), path.open("rb") as file:
        data = file.read(_MAX_MANIFEST_BYTES)
    try:
        manifest = parse_json("it", data)
    except ValueError as error:
        raise DamagedCheckpointError(path, f"is no manifest: {error}") from error
    version = manifest.get("format_version") if isinstance(manifest, dict) else None
    if type(version) is int and version > FORMAT_VERSION:
        raise ValueError(
            f"{path}: its format is version {version} and this widemax reads up to "
            f"{FORMAT_VERSION}; a newer widemax is needed"
        )
    if type(version) is not int or version != FORMAT_VERSION:
        raise DamagedCheckpointError(path, f"is no manifest: its format_version is {version!r}")
    if manifest.get("step") != step:
        raise DamagedCheckpointError(path, f"is of step {manifest.get('step')!r}")
    files = manifest.get("files")
    if not isinstance(files, dict) or set(files) != {_MODEL, _STATE_TENSORS, _STATE}:
        raise DamagedCheckpointError(path, "must list the files of a checkpoint")
    if not all(isinstance(record, dict) for record in files.values()):
        raise DamagedCheckpointError(path, "must give size and sha256 of each file")
    return files


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Tell a file that is lost from one that only this process cannot read."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EIO):
            raise DamagedCheckpointError(path, f"cannot be read: {error.strerror}") from error
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
