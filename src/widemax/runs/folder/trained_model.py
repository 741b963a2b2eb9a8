"""From the folder of a run to its trained model."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from widemax.config import Config
from widemax.data import Sequences
from widemax.data.summary import DataSummary
from widemax.models import Model
from widemax.models.building import UnknownProposal, build_model, min_parameter_count
from widemax.training.checkpoint_files import Checkpoint

_ALWAYS_ALLOWED = 2**22
"""Numbers that are allocated unasked: so few do no harm."""


def load_model(
    folder: Path,
    checkpoint: Checkpoint,
    config: Config,
    data: DataSummary,
    corpus: Sequences | None = None,
) -> Model:
    """Return the model of a checkpoint, ready to answer; one that does not fit is a ValueError.

    ``corpus`` is what it was trained on, for a sampler that is made from the data.
    """
    tensors = checkpoint.model_tensors()
    # Before anything is allocated: a config.toml may ask for more than there is.
    stored = sum(map(Tensor.numel, tensors.values()))
    needed = min_parameter_count(config, data)
    if needed > max(stored, _ALWAYS_ALLOWED):
        raise _not_fitting(checkpoint, f"it has {stored:,} numbers of {needed:,} or more")
    model = _untrained(folder, config, data, corpus)
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


def _untrained(folder: Path, config: Config, data: DataSummary, corpus: Sequences | None) -> Model:
    before = torch.get_rng_state()
    torch.manual_seed(config.seed)
    try:
        return build_model(config, data, corpus)
    except ValueError as error:
        raise ValueError(f"{folder / 'config.toml'}: {error}") from error
    finally:
        torch.set_rng_state(before)  # loading a run must not reseed the program around it
