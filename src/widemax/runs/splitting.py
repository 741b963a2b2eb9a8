"""What of a source is trained on, what chooses the checkpoint, and what is asked at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from widemax.data import Holdout, Sequences, Source, Windows, split_by_time
from widemax.declarations.table import load
from widemax.models import Model
from widemax.runs.config import Config

_HELD_OUT_SEED = 20_111
_MOST_OF_A_TEXT = 0.1
_MOST_OF_ALL_USERS = 0.2
_USUAL_HISTORY = 50


@dataclass(frozen=True, kw_only=True)
class Split:
    """The examples of a source: those trained on, and two kinds that are held out."""

    sequences: Sequences
    """What is trained on."""
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

    Of a log, what ``split`` says: the last item of some users, what users had after a moment, or
    all of some users, at most of a fifth of them; of a text, whole sentences, at most a tenth of
    it. Where there are too few users or sentences, validation has half.
    """
    if source.kind == "text":
        model: type[Model] = load(config.parts["model"])
        return _split_text(config, source.sequences, lambda part: model.windows_of(part, config))
    return _split_log(config, source)


def max_history(config: Config) -> int:
    """Return how many earlier items a model of a log is asked with.

    >>> max_history(Config(model="mind", max_history=7)), max_history(Config(model="cbow"))
    (7, 50)
    """
    return int(config.get("max_history", _USUAL_HISTORY))


class _LogParts(NamedTuple):
    """A log cut in three; ``train`` has a row for each user, the beginning of theirs or nothing."""

    train: Sequences
    validation: Holdout
    test: Holdout


def _split_log(config: Config, source: Source) -> Split:
    sequences = source.sequences
    train, *asked = _WAYS[config.split](config, sequences)
    # All models are asked for the next item from what came before it, whatever they train on.
    validation, test = (
        Windows(sequences, before=max_history(config), positions=_following(sequences, part))
        if len(part)
        else None
        for part in asked
    )
    return Split(
        sequences=train,
        validation=validation,
        test=test,
        holdout=asked[1] if test else None,
        goals=None if source.goals is None else source.goals[_beginnings(sequences, train)],
    )


def _following(sequences: Sequences, asked: Holdout) -> Tensor:
    """Return where the item stands that comes right after the history of each question."""
    return sequences.offsets[asked.users] + asked.histories.lengths


def _beginnings(sequences: Sequences, train: Sequences) -> Tensor:
    """Return which values are trained on, bool [T]."""
    within = torch.arange(len(sequences.values)) - sequences.offsets[:-1].repeat_interleave(
        sequences.lengths
    )
    return within < train.lengths.repeat_interleave(sequences.lengths)


def _ask_last(config: Config, sequences: Sequences) -> _LogParts:
    return _ask_some(sequences, *_drawn_users(config, sequences))


def _ask_new_users(config: Config, sequences: Sequences) -> _LogParts:
    users = _drawn_users(config, sequences, _MOST_OF_ALL_USERS)
    known = torch.ones(len(sequences), dtype=torch.bool)
    known[torch.cat(users)] = False
    train = sequences.kept(known.repeat_interleave(sequences.lengths))
    return _ask_some(sequences, *users)._replace(train=train)


def _ask_some(sequences: Sequences, validation: Tensor, test: Tensor) -> _LogParts:
    """Ask some users for their last item; all that is not asked for can be trained on."""
    there = torch.ones(len(sequences.values), dtype=torch.bool)
    there[_ends(sequences, torch.cat([validation, test]))] = False
    before = sequences.kept(there)
    return _LogParts(
        before,
        _questions(before, sequences, validation),
        _questions(before, sequences, test),
    )


def _ask_later(config: Config, sequences: Sequences) -> _LogParts:
    if sequences.times is None:
        raise ValueError("split = 'time' needs a log with times: name its column in time_column")
    parts = split_by_time(sequences)
    return _LogParts(
        parts.train,
        _some_questions(parts.validation, config.validation_size),
        _some_questions(parts.test, config.test_size),
    )


_WAYS: Mapping[str, Callable[[Config, Sequences], _LogParts]] = MappingProxyType(
    {"last": _ask_last, "time": _ask_later, "user": _ask_new_users}
)
"""By the setting ``split``."""


def _drawn_users(config: Config, sequences: Sequences, most: float = 1.0) -> tuple[Tensor, Tensor]:
    """Return the users of the validation and others of the test, who have two items or more.

    Together they are at most the part ``most`` of all such users.
    """
    able = (sequences.lengths > 1).nonzero()[:, 0]
    order = torch.randperm(len(able), generator=torch.Generator().manual_seed(_HELD_OUT_SEED))
    for_validation, for_test = _sizes(config, int(most * len(able)))
    asked = able[order[: for_validation + for_test]]
    return asked[:for_validation].sort().values, asked[for_validation:].sort().values


def _ends(sequences: Sequences, users: Tensor) -> Tensor:
    """Return where the last value of each of some sequences stands."""
    return sequences.offsets[users + 1] - 1


def _questions(before: Sequences, whole: Sequences, users: Tensor) -> Holdout:
    targets = torch.full((len(before),), -1)
    targets[users] = whole.values[_ends(whole, users)]
    return Holdout.of_users(before, targets)


def _some_questions(asked: Holdout, count: int) -> Holdout:
    """Return at most ``count`` questions, the same in every run."""
    if len(asked) <= count:
        return asked
    seeded = torch.Generator().manual_seed(_HELD_OUT_SEED)
    rows = torch.randperm(len(asked), generator=seeded)[:count].sort().values
    return asked.chosen(rows)


def _split_text(config: Config, sequences: Sequences, cut: Callable[[Sequences], Windows]) -> Split:
    words = len(sequences.values)
    for_validation, for_test = _sizes(config, int(_MOST_OF_A_TEXT * words))
    rest, test = _split_words(sequences, for_test)
    train, validation = _split_words(rest, for_validation)
    return Split(
        sequences=train,
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
