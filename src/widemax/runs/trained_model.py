"""From the folder of a run to its trained model."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from widemax.config import Config
from widemax.data.summary import DataSummary
from widemax.declarations.options import shown
from widemax.models import Model
from widemax.models.building import UnknownProposal, build_model, min_parameter_count
from widemax.training.checkpoint_files import Checkpoint
from widemax.training.checkpoints import CheckpointStore

BEST, LAST = "best", "last"

_REFIT = "refit-"

_ALWAYS_ALLOWED = 2**22
"""Numbers that are allocated unasked: so few do no harm."""


def trained_checkpoint(folder: Path, wanted: str | int = BEST) -> Checkpoint:
    """Return a checkpoint of a run: "best" by validation, "last", or that of a step.

    Where nothing was validated, the last is the best. Where the best was refitted, that is what the
    refit has made of it; the last, and that of a step, are those of the training that validated.
    """
    store = CheckpointStore(folder)
    if wanted not in (BEST, LAST):
        if not str(wanted).isascii() or not str(wanted).isdigit():
            raise ValueError(f"checkpoint must be best, last or a step, got {shown(wanted)}")
        return store.load(int(wanted))
    # In one expression, so that a damaged checkpoint is reported once.
    best = store.best(skip_damaged=True) if wanted == BEST else None
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
    progress = CheckpointStore(folder).state().get("progress", {})
    chosen = progress.get("best_step") or progress.get("step", 0)
    return bool(refit_store(folder, chosen).state().get("progress", {}).get("finished"))


def refitted_by(folder: Path, found: Checkpoint) -> int | None:
    """Return the step by which the length of a last fit was chosen; None if it is no last fit."""
    kept_in = found.folder.parents[1]
    return None if kept_in == folder else int(kept_in.name.removeprefix(_REFIT))


def chosen_because(folder: Path, found: Checkpoint, wanted: str | int, metric: str) -> str:
    """Return in words why a checkpoint was taken."""
    if (step := refitted_by(folder, found)) is not None:
        return (
            "refitted on training and validation data together, for as long as was best by "
            f"{metric} (step {step:,})"
        )
    if wanted == BEST and found.metric is not None:
        return f"best by {metric}"
    return "last" if wanted in (BEST, LAST) else "asked for"


def load_model(folder: Path, checkpoint: Checkpoint, config: Config, data: DataSummary) -> Model:
    """Return the model of a checkpoint, ready to answer; one that does not fit is a ValueError."""
    tensors = checkpoint.model_tensors()
    # Before anything is allocated: a config.toml may ask for more than there is.
    stored = sum(map(Tensor.numel, tensors.values()))
    needed = min_parameter_count(config, data)
    if needed > max(stored, _ALWAYS_ALLOWED):
        raise _not_fitting(checkpoint, f"it has {stored:,} numbers of {needed:,} or more")
    model = _untrained(folder, config, data)
    tensors = _without_proposals(model, tensors)
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise _not_fitting(checkpoint, " ".join(str(error).split())) from error
    model.vocabulary = data.vocabulary
    return model.eval()


def _without_proposals(model: Model, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors but those of samplers that are made from the data."""
    unknown = tuple(
        f"{name}." for name, each in model.named_modules() if isinstance(each, UnknownProposal)
    )
    return {name: each for name, each in tensors.items() if not name.startswith(unknown)}


def _not_fitting(checkpoint: Checkpoint, reason: str) -> ValueError:
    return ValueError(
        f"{checkpoint.folder / 'model.safetensors'} does not fit the config.toml and "
        f"vocabulary.parquet of its run: {reason}"
    )


def _untrained(folder: Path, config: Config, data: DataSummary) -> Model:
    before = torch.get_rng_state()
    torch.manual_seed(config.seed)
    try:
        return build_model(config, data)
    except ValueError as error:
        raise ValueError(f"{folder / 'config.toml'}: {error}") from error
    finally:
        torch.set_rng_state(before)  # loading a run must not reseed the program around it
