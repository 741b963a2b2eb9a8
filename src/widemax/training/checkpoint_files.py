"""One checkpoint on disk: its files, and the manifest that proves them whole."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from widemax.storage.json_text import parse_json
from widemax.storage.manifest import (
    DamagedFileError,
    FileRecord,
    HashingWriter,
    check_file,
    read_manifest,
    reading,
    write_manifest,
)
from widemax.storage.state_dicts import flatten_state, unflatten_state

# Checkpoints are looked at without torch; it is loaded with their tensors.
if TYPE_CHECKING:
    from torch import Tensor

RowsOf = Callable[[str, list[int]], range | None]
"""Says which rows of a tensor are wanted, by its name and shape; None: all."""

FORMAT_VERSION = 1
MANIFEST = "manifest.json"

MODEL, _STATE_TENSORS, _STATE = "model.safetensors", "state.safetensors", "state.json"


class DamagedCheckpointError(DamagedFileError):
    """A checkpoint is not what was saved: a file is missing, cut short or changed."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(
            path,
            problem,
            f"restore it from a copy, or remove {path.parent.name} to continue from the "
            "checkpoint before it",
        )


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """One saved moment of a run, as ``CheckpointStore`` returns it.

    >>> import tempfile, torch
    >>> from widemax.training.checkpoints import CheckpointStore
    >>> with CheckpointStore(tempfile.mkdtemp()) as store:
    ...     store.save(5, {"weight": torch.ones(2)}, {}, {"epoch": 1}, metric=0.25)
    ...     checkpoint = store.load()
    >>> checkpoint.step, checkpoint.metric, checkpoint.state, checkpoint.model_tensors()
    (5, 0.25, {'epoch': 1}, {'weight': tensor([1., 1.])})
    """

    folder: Path
    """Where it is; ``model.safetensors`` in it can be copied as it is."""
    step: int
    """The number of steps taken before it was saved."""
    metric: float | None
    """What the model was judged by at this step, smaller being better; None: it was not chosen."""
    state: dict[Any, Any]
    """What resumes the run, except tensors; ``unflatten_state`` puts those back."""
    records: Mapping[str, Mapping[str, Any]]
    """Size and sha256 of each file."""
    vectors: str = ""
    """The tensor of the model whose rows are the vectors of the classes; empty: none is."""
    answers: Mapping[str, str | float] = field(default_factory=dict)
    """How tensors of the model answer without it; empty: they do not."""

    def model_tensors(self, rows_of: RowsOf | None = None) -> dict[str, Tensor]:
        """Return the tensors of the model; names that were tied share one again.

        Where ``rows_of`` returns rows for a name and a shape, these are read and no others.
        """
        return self._read(MODEL, rows_of)

    def state_tensors(self, rows_of: RowsOf | None = None) -> dict[str, Tensor]:
        """Return the tensors of the optimiser and whatever else resumes the run."""
        return self._read(_STATE_TENSORS, rows_of)

    def model_file(self) -> Path:
        """Return the file of the model's tensors, which the store has compared with its sha256."""
        return self.folder / MODEL

    def check(self) -> None:
        """Raise ``DamagedCheckpointError`` if any file is not what was saved."""
        for name in self.records:
            self._check(name)

    def _read(self, name: str, rows_of: RowsOf | None) -> dict[str, Tensor]:
        from widemax.storage.tensors import read_tensors

        self._check(name)
        return read_tensors(self.folder / name, rows_of)

    def _check(self, name: str) -> None:
        record = self.records[name]
        with _as_damaged_checkpoint():
            check_file(self.folder / name, size=record.get("size"), sha256=record.get("sha256"))


def write_checkpoint(
    folder: Path,
    step: int,
    model_tensors: Mapping[str, Tensor],
    state_tensors: Mapping[str, Tensor],
    state: Mapping[Any, Any],
    metric: float | None,
    vectors: str = "",
    answers: Mapping[str, str | float] | None = None,
) -> None:
    """Make ``folder`` and put a whole checkpoint into it and on disk, the manifest last."""
    from widemax.storage.tensors import serialize_tensors

    contents = {
        MODEL: serialize_tensors(model_tensors),
        _STATE_TENSORS: serialize_tensors(state_tensors),
        _STATE: _serialize_state(state, metric),
    }
    folder.mkdir()
    records = {name: _write(folder / name, chunks) for name, chunks in contents.items()}
    content = {"step": step, "files": records, "vectors": vectors, "answers": dict(answers or {})}
    write_manifest(folder / MANIFEST, FORMAT_VERSION, content)


def _serialize_state(state: Mapping[Any, Any], metric: float | None) -> list[memoryview]:
    tensors, content = flatten_state({"metric": metric, "state": dict(state)})
    for name in tensors:
        raise ValueError(
            f"state must hold no tensors, got one at {name.removeprefix('state.')}; "
            "flatten_state takes them out"
        )
    return [memoryview(json.dumps(content, allow_nan=False, indent=1).encode())]


def _write(path: Path, chunks: Iterable[memoryview]) -> FileRecord:
    """Write a file and wait until it is on disk."""
    with path.open("xb") as file:
        writer = HashingWriter(file)
        for chunk in chunks:
            writer.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    return writer.record()


def open_checkpoint(folder: Path, step: int) -> Checkpoint:
    """Return the checkpoint in ``folder``; of its files only the state is read and checked yet."""
    checkpoint = Checkpoint(folder, step, None, {}, *_read_records(folder / MANIFEST, step))
    checkpoint._check(_STATE)
    path = folder / _STATE
    with _as_damaged_checkpoint(), reading(path):
        data = path.read_bytes()
    given = parse_json(str(path), data)
    try:
        content = unflatten_state({}, given)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if set(content) != {"metric", "state"} or not isinstance(content["state"], dict):
        raise ValueError(f"{path} must hold a metric and a state, got {list(content)}")
    if not isinstance(content["metric"], float | None):
        raise ValueError(f"{path} must hold a metric or null, got {content['metric']!r}")
    return replace(checkpoint, **content)


def _read_records(
    path: Path, step: int
) -> tuple[dict[str, dict[str, Any]], str, dict[str, str | float]]:
    """Return size and sha256 of each file, which tensor holds the vectors, and what answers."""
    with _as_damaged_checkpoint():
        manifest = read_manifest(path, FORMAT_VERSION)
    if manifest.get("step") != step:
        raise DamagedCheckpointError(path, f"is of step {manifest.get('step')!r}")
    files = manifest.get("files")
    if not isinstance(files, dict) or set(files) != {MODEL, _STATE_TENSORS, _STATE}:
        raise DamagedCheckpointError(path, "must list the files of a checkpoint")
    if not all(isinstance(record, dict) for record in files.values()):
        raise DamagedCheckpointError(path, "must give size and sha256 of each file")
    vectors, answers = manifest.get("vectors", ""), manifest.get("answers", {})
    if not isinstance(vectors, str):
        raise DamagedCheckpointError(path, "must name a tensor as vectors")
    kinds = {type(value) for value in answers.values()} if isinstance(answers, dict) else {None}
    if not kinds <= {str, int, float}:
        raise DamagedCheckpointError(path, "must say by names and numbers how tensors answer")
    return files, vectors, answers


@contextmanager
def _as_damaged_checkpoint() -> Iterator[None]:
    try:
        yield
    except DamagedFileError as error:
        raise DamagedCheckpointError(error.path, error.problem) from error
