"""Which checkpoint of a run answers, and why that one; read without torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from widemax.declarations.options import shown
from widemax.runs.folder.description import DESCRIPTION
from widemax.storage.manifest import file_sha256
from widemax.training.checkpoint_files import MODEL, Checkpoint
from widemax.training.checkpoints import CheckpointStore

BEST, LAST = "best", "last"

_REFIT = "refit-"


def trained_checkpoint(folder: Path, wanted: str | int = BEST) -> Checkpoint:
    """Return a checkpoint of a run: "best" by validation, "last", or that of a step.

    Of those that may be as good as the best, within the error of their difference, the latest is
    meant. Where nothing was validated, the last is the best. Where the best was refitted, that is
    what the refit has made of it; the last, and that of a step, are those of the training that
    validated.
    """
    store = CheckpointStore(folder)
    if wanted not in (BEST, LAST):
        if not str(wanted).isascii() or not str(wanted).isdigit():
            raise ValueError(f"checkpoint must be best, last or a step, got {shown(wanted)}")
        return store.load(int(wanted))
    # In one expression, so that a damaged checkpoint is reported once.
    best = store.chosen(skip_damaged=True) if wanted == BEST else None
    found = best or store.latest(skip_damaged=True)
    if found is None:
        raise ValueError(f"{folder} has no checkpoint yet: it has not been trained")
    return (finished_refit(folder, found.step) if wanted == BEST else None) or found


def refit_store(folder: Path, chosen: int, *, keep_last: int = 1) -> CheckpointStore:
    """Return where the last fit is kept that is as long as the training was at a chosen step."""
    return CheckpointStore(folder / f"{_REFIT}{chosen:08d}", keep_last=keep_last)


def finished_refit(folder: Path, chosen: int) -> Checkpoint | None:
    """Return the end of the last fit of a run that was chosen by this step; None if there is none.

    One that is of another step is of an earlier choice, and one that is not done is no model yet.
    """
    found = refit_store(folder, chosen).latest()
    if found is None or not found.state.get("progress", {}).get("finished"):
        return None
    return found


def is_refitted(folder: Path) -> bool:
    """Return whether a last fit is the model of a run; no tensor is read for that."""
    refit = refit_store(folder, chosen_step(folder))
    return bool(refit.state().get("progress", {}).get("finished"))


def chosen_step(folder: Path) -> int:
    """Return the step whose model answers, or whose length a last fit has; no tensor is read."""
    return step_chosen_by(CheckpointStore(folder).state().get("progress", {}))


def step_chosen_by(progress: Mapping[str, Any]) -> int:
    """Return the step that a training has chosen; the last one if it has not validated.

    >>> step_chosen_by({"step": 9, "best_step": 3, "chosen_step": 6})
    6
    """
    # Runs of an earlier version know only the best.
    steps = (progress.get(name, 0) for name in ("chosen_step", "best_step", "step"))
    return next((step for step in steps if step), 0)


def refitted_by(folder: Path, found: Checkpoint) -> int | None:
    """Return the step by which the length of a last fit was chosen; None if it is no last fit."""
    kept_in = found.folder.parents[1]
    return None if kept_in == folder else int(kept_in.name.removeprefix(_REFIT))


def identity_of(folder: Path, found: Checkpoint) -> tuple[str, str]:
    """Return the sha256 of ``run.json``, and that of the parameters of a checkpoint.

    Together they name a model, its classes and its data, wherever its folder is.
    """
    return file_sha256(folder / DESCRIPTION), str(found.records[MODEL]["sha256"])


def chosen_because(folder: Path, found: Checkpoint, wanted: str | int, metric: str) -> str:
    """Return in words why a checkpoint was taken."""
    if (step := refitted_by(folder, found)) is not None:
        return (
            "refitted on training and validation data together, for as long as was best by "
            f"{metric} (step {step:,})"
        )
    if wanted == BEST and found.metric is not None:
        best = found.state.get("progress", {}).get("best_step", found.step)
        if best == found.step:
            return f"best by {metric}"
        return (
            f"as good as the best by {metric} (step {best:,}), within the error of the difference"
        )
    return "last" if wanted in (BEST, LAST) else "asked for"
