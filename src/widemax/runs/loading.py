"""From the folder of a run to its trained model."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from widemax.data import Sequences, Source
from widemax.data.reading import SourceKind
from widemax.models import Model
from widemax.runs.building import build_model, least_numbers
from widemax.runs.config.config import Config
from widemax.runs.features import ITEMS, USERS, stored_features
from widemax.training.checkpoint_files import Checkpoint
from widemax.training.checkpoints import CheckpointStore
from widemax.vocabulary import Vocabulary

_ALWAYS_ALLOWED = 2**22
"""Numbers that are allocated unasked: so few do no harm."""


def trained_checkpoint(folder: Path, *, best: bool) -> Checkpoint:
    """Return the best checkpoint of a run, or the newest."""
    store = CheckpointStore(folder)
    # On one line, so that a damaged checkpoint is told of once.
    found = (store.best(skip_damaged=True) if best else None) or store.latest(skip_damaged=True)
    if found is None:
        raise ValueError(f"{folder} has no checkpoint yet: it has not been trained")
    return found


def load_model(
    folder: Path, checkpoint: Checkpoint, config: Config, kind: SourceKind, vocabulary: Vocabulary
) -> Model:
    """Return the model of a checkpoint, ready to answer; one that does not fit is a ValueError."""
    tensors = checkpoint.model_tensors()
    # Before anything is allocated: a config.toml may ask for more than there is.
    stored = sum(map(Tensor.numel, tensors.values()))
    needed = least_numbers(config, kind, len(vocabulary))
    if needed > max(stored, _ALWAYS_ALLOWED):
        raise _not_fitting(checkpoint, f"it has {stored:,} numbers of {needed:,} or more")
    model = _untrained(folder, config, kind, vocabulary)
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise _not_fitting(checkpoint, " ".join(str(error).split())) from error
    return model.eval()


def _not_fitting(checkpoint: Checkpoint, reason: str) -> ValueError:
    return ValueError(
        f"{checkpoint.folder / 'model.safetensors'} does not fit the config.toml and "
        f"vocabulary.parquet of its run: {reason}"
    )


def _untrained(folder: Path, config: Config, kind: SourceKind, vocabulary: Vocabulary) -> Model:
    source = Source(
        kind=kind,
        sequences=Sequences.from_lists([]),
        vocabulary=vocabulary,
        item_features=stored_features(folder, ITEMS),
        user_features=stored_features(folder, USERS),
    )
    before = torch.get_rng_state()
    try:
        return build_model(config, source)
    except ValueError as error:
        raise ValueError(f"{folder / 'config.toml'}: {error}") from error
    finally:
        torch.set_rng_state(before)  # loading a run must not reseed the program around it
