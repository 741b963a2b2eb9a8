"""What of a source is trained on, what chooses the checkpoint, and what is asked at the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from widemax.data import Holdout, Sequences, Source, Windows
from widemax.registry import MODELS
from widemax.runs.config import Config

_HELD_OUT_SEED = 20_111
_MOST_OF_A_TEXT = 0.1


@dataclass(frozen=True, kw_only=True)
class Split:
    """The examples of a source: those trained on, and two kinds that are held out."""

    sequences: Sequences
    """What is trained on."""
    training: Windows
    """Its examples."""
    validation: Windows | None = None
    """What says which checkpoint is best, and when to stop."""
    test: Windows | None = None
    """What has had no say in anything."""
    holdout: Holdout | None = None
    """Of a log, the same questions as in ``test``, with all that was seen before."""
    goals: Tensor | None = None
    """Where in ``sequences`` the goal was reached."""


def split_source(config: Config, source: Source) -> Split:
    """Hold out ``validation_size`` examples, and ``test_size`` others, never seen in training.

    Of a log, the last item of some users, with all before it as history; of a text, whole
    sentences, at most a tenth of it. Where there are too few, validation has half.
    """
    cut = partial(
        MODELS[config.model_for(source.kind)].windows,
        max_history=config.max_history,
        window=config.window,
    )
    if source.kind == "text":
        return _split_text(config, source.sequences, cut)
    return _split_log(config, source, cut)


def _split_log(config: Config, source: Source, cut: Callable[[Sequences], Windows]) -> Split:
    sequences = source.sequences
    able = (sequences.lengths > 1).nonzero()[:, 0]
    order = torch.randperm(len(able), generator=torch.Generator().manual_seed(_HELD_OUT_SEED))
    for_validation, for_test = _sizes(config, len(able))
    asked = able[order[: for_validation + for_test]]
    parts = asked[:for_validation].sort().values, asked[for_validation:].sort().values
    trained_on = torch.ones(len(sequences.values), dtype=torch.bool)
    trained_on[_ends(sequences, asked)] = False
    train = sequences.kept(trained_on)
    # All models are asked for the last item from what came before it, whatever they train on.
    validation, test = (
        Windows(sequences, before=config.max_history, positions=_ends(sequences, users))
        if len(users)
        else None
        for users in parts
    )
    return Split(
        sequences=train,
        training=cut(train),
        validation=validation,
        test=test,
        holdout=_questions(train, sequences, parts[1]) if test else None,
        goals=None if source.goals is None else source.goals[trained_on],
    )


def _ends(sequences: Sequences, users: Tensor) -> Tensor:
    """Return where the last value of each of some sequences stands."""
    return sequences.offsets[users + 1] - 1


def _questions(train: Sequences, whole: Sequences, users: Tensor) -> Holdout:
    targets = torch.full((len(train),), -1)
    targets[users] = whole.values[_ends(whole, users)]
    return Holdout.of_users(train, targets)


def _split_text(config: Config, sequences: Sequences, cut: Callable[[Sequences], Windows]) -> Split:
    words = len(sequences.values)
    for_validation, for_test = _sizes(config, int(_MOST_OF_A_TEXT * words))
    rest, test = _split_words(sequences, for_test)
    train, validation = _split_words(rest, for_validation)
    return Split(
        sequences=train,
        training=cut(train),
        validation=_some(cut(validation), config.validation_size),
        test=_some(cut(test), config.test_size),
    )


def _split_words(sequences: Sequences, words: int) -> tuple[Sequences, Sequences]:
    """Hold out the last sentences that have at most so many words together."""
    first = int(torch.searchsorted(sequences.offsets, len(sequences.values) - words))
    return sequences.between(0, first), sequences.between(first, len(sequences))


def _sizes(config: Config, most: int) -> tuple[int, int]:
    """Return how many of at most ``most`` examples are for validation, and for the test."""
    half = -(-most // 2)
    for_validation = min(config.validation_size, most, max(half, most - config.test_size))
    return for_validation, min(config.test_size, most - for_validation)


def _some(windows: Windows, count: int) -> Windows | None:
    """Return at most ``count`` examples, the same in every run; None for none."""
    positions = windows.positions
    if positions is None:
        positions = torch.arange(len(windows))
    if len(positions) > count:
        seeded = torch.Generator().manual_seed(_HELD_OUT_SEED)
        chosen = torch.randperm(len(positions), generator=seeded)[:count]
        positions = positions[chosen.sort().values]
    if not len(positions):
        return None
    return Windows(windows.sequences, windows.before, windows.after, positions)
