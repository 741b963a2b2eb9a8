"""What of a source is trained on, and what is held out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from widemax.data import Holdout, Sequences, Source, Windows
from widemax.registry import MODELS
from widemax.runs.config import Config

_HELD_OUT_SEED = 20_111


@dataclass(frozen=True, kw_only=True)
class Split:
    """The examples of a source: those trained on, and those held out."""

    sequences: Sequences
    """What is trained on."""
    training: Windows
    """Its examples."""
    validation: Windows | None
    holdout: Holdout | None = None
    """Of a log, the same questions as in ``validation``, with all that was seen before."""
    goals: Tensor | None = None
    """Where in ``sequences`` the goal was reached."""


def split_source(config: Config, source: Source) -> Split:
    """Hold out ``validation_size`` examples, never seen in training.

    Of a log, the last item of users, with all before it as history; of a text, whole sentences.
    """
    cut = partial(
        MODELS[config.model_for(source.kind)].windows,
        max_history=config.max_history,
        window=config.window,
    )
    sequences = source.sequences
    if not config.validation_size:
        return Split(
            sequences=sequences, training=cut(sequences), validation=None, goals=source.goals
        )
    if source.kind == "text":
        train, held = _split_sentences(sequences, config.validation_size)
        return Split(sequences=train, training=cut(train), validation=_some(cut(held), config))
    return _split_log(config, source, cut(source.sequences.split_last()[0]))


def _split_log(config: Config, source: Source, training: Windows) -> Split:
    sequences, train = source.sequences, training.sequences
    ends = sequences.offsets[1:] - 1
    asked = ends[sequences.lengths > train.lengths]
    # All models are asked for the last item from what came before it, whatever they train on.
    validation = _some(Windows(sequences, before=config.max_history, positions=asked), config)
    assert validation.positions is not None
    users = torch.searchsorted(sequences.offsets, validation.positions, right=True) - 1
    targets = torch.full((len(train),), -1)
    targets[users] = sequences.values[validation.positions]
    goals = source.goals
    if goals is not None:
        kept = torch.ones(len(goals), dtype=torch.bool)
        kept[asked] = False
        goals = goals[kept]
    return Split(
        sequences=train,
        training=training,
        validation=validation,
        holdout=Holdout.of_users(train, targets),
        goals=goals,
    )


def _split_sentences(sequences: Sequences, size: int) -> tuple[Sequences, Sequences]:
    """Hold out the last sentences that hold about ``size`` words, at most a tenth of all."""
    words = max(1, len(sequences.values))
    return sequences.split(min(0.1, size / words))


def _some(windows: Windows, config: Config) -> Windows:
    """Return ``validation_size`` examples, the same in every run."""
    positions = windows.positions
    if positions is None:
        positions = torch.arange(len(windows))
    if len(positions) > config.validation_size:
        seeded = torch.Generator().manual_seed(_HELD_OUT_SEED)
        chosen = torch.randperm(len(positions), generator=seeded)[: config.validation_size]
        positions = positions[chosen.sort().values]
    return Windows(windows.sequences, windows.before, windows.after, positions)
