"""Checkpoints: a run's folder that no failure can tear."""

from __future__ import annotations

import math
import re
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from widemax.limits import check_whole
from widemax.storage.files import is_temporary, sync_folder, temporary_name
from widemax.storage.locks import lock_for_writing
from widemax.training.checkpoint_files import (
    MANIFEST,
    Checkpoint,
    DamagedCheckpointError,
    open_checkpoint,
    write_checkpoint,
)

if TYPE_CHECKING:
    from torch import Tensor

MAX_STEP = 2**63 - 1

_NAME = re.compile(r"step-([0-9]{8,})")

_T = TypeVar("_T")


class CheckpointStore:
    """The checkpoints of one run, in the folder ``checkpoints`` of its folder.

    Each is a folder ``step-00001234`` of model and state tensors (safetensors), state (JSON), and a
    manifest with the size and sha256 of each. It is written under another name, put on disk, and
    renamed once it is whole; only then are older ones removed, except the ``keep_last`` newest and
    the chosen one, which is the last that was saved with a metric. So a run survives a crash, a
    full disk or a kill at any moment. One process writes at a time, from ``with`` or the first
    ``save`` until ``close``; any number may read meanwhile. Saving copies no tensor that lies
    contiguous on the CPU.

    >>> import tempfile, torch
    >>> with CheckpointStore(tempfile.mkdtemp(), keep_last=1) as store:
    ...     for step, loss in enumerate([3.0, 1.0, None]):
    ...         store.save(step, {"weight": torch.ones(2)}, {}, {}, metric=loss)
    ...     store.steps(), store.chosen().step
    ([1, 2], 1)
    """

    def __init__(self, folder: str | Path, *, keep_last: int = 2) -> None:
        self.folder = Path(folder)
        self.keep_last = check_whole("keep_last", keep_last, 1, MAX_STEP)
        self.root = self.folder / "checkpoints"
        self._lock: IO[bytes] | None = None

    def __enter__(self) -> CheckpointStore:
        self._begin_writing()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let another process write."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def steps(self) -> list[int]:
        """Return the steps that are saved, in rising order."""
        found = []
        for path in self.root.iterdir() if self.root.is_dir() else ():
            match = _NAME.fullmatch(path.name)
            if match and path.name == _folder_name(int(match[1])) and (path / MANIFEST).is_file():
                found.append(int(match[1]))
        return sorted(found)

    def latest(self, *, skip_damaged: bool = False) -> Checkpoint | None:
        """Return the newest checkpoint, every file checked, or None if there is none yet.

        With ``skip_damaged`` a damaged one gives a warning and the one before it is returned; the
        next ``save`` then removes it.
        """
        return self._read(lambda steps: self._newest(steps, skip_damaged))

    def chosen(self, *, skip_damaged: bool = False) -> Checkpoint | None:
        """Return the newest checkpoint that has a metric, every file checked, or None.

        With ``skip_damaged`` a damaged one gives a warning and the one chosen before is returned.
        """
        return self._read(lambda steps: self._chosen(steps, skip_damaged))

    def load(self, step: int | None = None) -> Checkpoint:
        """Return the checkpoint of ``step``, or the newest, every file checked."""
        if step is None:
            found, wanted = self.latest(), "checkpoint"
        else:
            at = check_whole("step", step, 0, MAX_STEP)
            found = self._read(lambda steps: self._at(steps, at))
            wanted = f"checkpoint of step {at:,}"
        if found is None:
            saved = ", ".join(f"{other:,}" for other in self.steps()) or "none"
            raise ValueError(f"{self.folder} holds no {wanted}; saved steps: {saved}")
        return found

    def state(self) -> dict[Any, Any]:
        """Return the state of the newest checkpoint without its tensors, which stay unread."""
        return self._read(lambda steps: self._open(steps[-1]).state if steps else {})

    def save(
        self,
        step: int,
        model_tensors: Mapping[str, Tensor],
        state_tensors: Mapping[str, Tensor],
        state: Mapping[Any, Any],
        *,
        metric: float | None = None,
        vectors: str = "",
        answers: Mapping[str, str | float] | None = None,
    ) -> None:
        """Save the checkpoint of a step, with a ``metric`` if it is to be the chosen one.

        ``vectors`` names the tensor that has the vectors of the classes, if there is one;
        ``answers`` says how tensors answer without the model, if they do.
        ``state`` nests what ``flatten_state`` takes, except tensors. When this raises, all that
        was saved before is there as before.
        """
        step = check_whole("step", step, 0, MAX_STEP)
        metric = _check_metric(metric)
        self._begin_writing()
        overtaken = self._overtaken(step)
        metrics = {**self._metrics(overtaken), step: metric}
        temporary = self.root / temporary_name()
        with self._naming_the_folder(f"save step {step:,}"):
            try:
                write_checkpoint(
                    temporary,
                    step,
                    model_tensors,
                    state_tensors,
                    state,
                    metric,
                    vectors,
                    answers or {},
                )
                if step in overtaken:
                    self._remove(step)
                temporary.rename(self._path(step))
            except BaseException:
                shutil.rmtree(temporary, ignore_errors=True)
                raise
            sync_folder(self.root)
            self._keep({*sorted(metrics)[-self.keep_last :], *_last_with_a_metric(metrics)})

    def _keep(self, kept: set[int]) -> None:
        for step in self.steps():
            if step not in kept:
                self._remove(step)

    def _remove(self, step: int) -> None:
        """Remove a checkpoint so that no half of it ever has the name of a checkpoint."""
        temporary = self.root / temporary_name()
        self._path(step).rename(temporary)
        # What cannot be removed now is removed when the next writer begins.
        shutil.rmtree(temporary, ignore_errors=True)

    def _begin_writing(self) -> None:
        """Take the lock, and remove what a killed writer left behind."""
        if self._lock is not None:
            return
        with self._naming_the_folder("write"):
            if not self.root.is_dir():
                self.root.mkdir(parents=True, exist_ok=True)
                sync_folder(self.folder)
                sync_folder(self.folder.parent)
            self._lock = lock_for_writing(self.root / "lock", self.folder)
            for path in self.root.iterdir():
                torn = _NAME.fullmatch(path.name) and not (path / MANIFEST).exists()
                if torn or is_temporary(path):
                    shutil.rmtree(path, ignore_errors=True)

    @contextmanager
    def _naming_the_folder(self, deed: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error)
            message = f"cannot {deed}: {reason}; what was saved before is intact"
            raise OSError(error.errno, message, str(self.folder)) from error

    def _overtaken(self, step: int) -> list[int]:
        """Return the damaged checkpoints from ``step`` on; one that is whole is an error."""
        later = [old for old in self.steps() if old >= step]
        for old in later:
            try:
                self._open(old).check()
            except DamagedCheckpointError:
                continue
            raise ValueError(
                f"step must be above {old:,}, which {self.folder} has already, got {step:,}; "
                "resume from it or save to another folder"
            )
        return later

    def _metrics(self, overtaken: list[int]) -> dict[int, float | None]:
        metrics: dict[int, float | None] = {}
        for step in self.steps():
            if step in overtaken:
                continue
            try:
                metrics[step] = self._open(step).metric
            except DamagedCheckpointError:
                metrics[step] = None
        return metrics

    def _read(self, read: Callable[[list[int]], _T]) -> _T:
        """Return what ``read`` finds among the steps, again if a writer changes them meanwhile."""
        while True:
            steps = self.steps()
            try:
                return read(steps)
            except DamagedCheckpointError:
                if self.steps() == steps:
                    raise

    def _newest(self, steps: list[int], skip_damaged: bool) -> Checkpoint | None:
        for step in reversed(steps):
            try:
                return self._at(steps, step)
            except DamagedCheckpointError as error:
                # With none left, starting from nothing would be no fallback.
                self._skip(step, error, skip_damaged and step != steps[0])
        return None

    def _chosen(self, steps: list[int], skip_damaged: bool) -> Checkpoint | None:
        metrics: dict[int, float | None] = {}
        for step in steps:
            try:
                metrics[step] = self._open(step).metric
            except DamagedCheckpointError as error:
                self._skip(step, error, skip_damaged)
        while chosen := _last_with_a_metric(metrics):
            try:
                return self._at(steps, chosen[0])
            except DamagedCheckpointError as error:
                self._skip(chosen[0], error, skip_damaged)
                del metrics[chosen[0]]
        return None

    def _skip(self, step: int, error: DamagedCheckpointError, allowed: bool) -> None:
        # One that is gone is not damaged: a writer removed it, and all is read again.
        if not allowed or step not in self.steps():
            raise error
        warnings.warn(f"skipped a damaged checkpoint: {error}", stacklevel=6)

    def _at(self, steps: list[int], step: int) -> Checkpoint | None:
        if step not in steps:
            return None
        found = self._open(step)
        found.check()
        return found

    def _open(self, step: int) -> Checkpoint:
        return open_checkpoint(self._path(step), step)

    def _path(self, step: int) -> Path:
        return self.root / _folder_name(step)


def _folder_name(step: int) -> str:
    return f"step-{step:08d}"


def _last_with_a_metric(metrics: Mapping[int, float | None]) -> list[int]:
    """Return the newest step that has a metric; none if none has one."""
    return sorted(step for step, metric in metrics.items() if metric is not None)[-1:]


def _check_metric(metric: float | None) -> float | None:
    if metric is None:
        return None
    if not hasattr(metric, "__float__") or math.isnan(metric):
        raise ValueError(f"metric must be a number or None, got {metric!r}")
    return float(metric)
