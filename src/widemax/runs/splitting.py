"""What of a source is trained on, and what is held out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch

from widemax.data import Sequences, Source, Windows
from widemax.runs.building import model_class
from widemax.runs.config import Config

_HELD_OUT_SEED = 20_111


@dataclass(frozen=True, kw_only=True)
class Split:
    """The examples of a source: those trained on, and those held out."""

    training: Windows
    validation: Windows | None


def split_source(config: Config, source: Source) -> Split:
    """Hold out ``validation_size`` examples, never seen in training.

    Of a log, the last item of users, with all before it as history; of a text, whole sentences.
    """
    cut = partial(
        model_class(config, source.kind).windows,
        max_history=config.max_history,
        window=config.window,
    )
    sequences = source.sequences
    if not config.validation_size:
        return Split(training=cut(sequences), validation=None)
    if source.kind == "text":
        train, held = _split_sentences(sequences, config.validation_size)
        return Split(training=cut(train), validation=_some(cut(held), config))
    train, targets = sequences.split_last()
    last = (sequences.offsets[1:] - 1)[targets[:, 0] >= 0]
    validation = cut(sequences, positions=last)
    return Split(training=cut(train), validation=_some(validation, config))


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
