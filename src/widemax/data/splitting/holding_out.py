"""How a run splits its data: what is trained on, what validates, what tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from widemax.data.reading.source import Source
from widemax.data.sequences import Sequences, Windows
from widemax.data.splitting.holdout import Holdout
from widemax.data.splitting.splits import split_by_time

_HELD_OUT_SEED = 20_111
_MOST_OF_A_TEXT = 0.1
_MOST_OF_ALL_USERS = 0.2


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


class Sizes(NamedTuple):
    """How many examples are held out."""

    validation: int
    test: int

    def within(self, most: int) -> Sizes:
        """Return the sizes where at most ``most`` examples can be held out.

        Where there are too few for both, validation has half.
        """
        half = -(-most // 2)
        validation = min(self.validation, most, max(half, most - self.test))
        return Sizes(validation, min(self.test, most - validation))


def split_text(sequences: Sequences, sizes: Sizes, cut: Callable[[Sequences], Windows]) -> Split:
    """Hold out the last sentences of a text, at most a tenth of it; ``cut`` makes examples.

    >>> text = Sequences.from_lists([[1, 2, 3, 4]] * 50)
    >>> split = split_text(text, Sizes(8, 8), lambda part: Windows(part, before=2))
    >>> len(split.sequences), len(split.validation), len(split.test)
    (46, 8, 8)
    """
    asked = sizes.within(int(_MOST_OF_A_TEXT * len(sequences.values)))
    rest, test = _split_words(sequences, asked.test)
    train, validation = _split_words(rest, asked.validation)
    return Split(
        sequences=train,
        validation=_some(cut(validation), sizes.validation),
        test=_some(cut(test), sizes.test),
    )


def split_log(source: Source, how: str, sizes: Sizes, *, max_history: int = 50) -> Split:
    """Hold out of a log what ``how`` says, and ask for the item that follows.

    "last": the last item of some users; "time": what users had after a moment, a fifth of the time;
    "user": all of some users, at most of a fifth of them. Whatever a model trains on, it is asked
    for the next item from the ``max_history`` before it.

    >>> from widemax.vocabulary import Vocabulary
    >>> log = Sequences.from_lists([[0, 1, 2]] * 9)
    >>> source = Source(kind="pairs", sequences=log, vocabulary=Vocabulary.count(["a", "b", "c"]))
    >>> split = split_log(source, "last", Sizes(2, 3))
    >>> len(split.validation), len(split.holdout), len(split.sequences.values)
    (2, 3, 22)
    """
    sequences = source.sequences
    train, *asked = _WAYS[how](sizes, sequences)
    validation, test = (
        Windows(sequences, before=max_history, positions=_following(sequences, part))
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


class _LogParts(NamedTuple):
    """A log cut in three; ``train`` has a row for each user, the beginning of theirs or nothing."""

    train: Sequences
    validation: Holdout
    test: Holdout


def _following(sequences: Sequences, asked: Holdout) -> Tensor:
    """Return where the item stands that comes right after the history of each question."""
    return sequences.offsets[asked.users] + asked.histories.lengths


def _beginnings(sequences: Sequences, train: Sequences) -> Tensor:
    """Return which values are trained on, bool [T]."""
    within = torch.arange(len(sequences.values)) - sequences.offsets[:-1].repeat_interleave(
        sequences.lengths
    )
    return within < train.lengths.repeat_interleave(sequences.lengths)


def _ask_last(sizes: Sizes, sequences: Sequences) -> _LogParts:
    return _ask_some(sequences, *_drawn_users(sizes, sequences))


def _ask_new_users(sizes: Sizes, sequences: Sequences) -> _LogParts:
    users = _drawn_users(sizes, sequences, _MOST_OF_ALL_USERS)
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


def _ask_later(sizes: Sizes, sequences: Sequences) -> _LogParts:
    if sequences.times is None:
        raise ValueError("split = 'time' needs a log with times: name its column in time_column")
    parts = split_by_time(sequences)
    return _LogParts(
        parts.train,
        _some_questions(parts.validation, sizes.validation),
        _some_questions(parts.test, sizes.test),
    )


_WAYS: Mapping[str, Callable[[Sizes, Sequences], _LogParts]] = MappingProxyType(
    {"last": _ask_last, "time": _ask_later, "user": _ask_new_users}
)
"""By the setting ``split``."""


def _drawn_users(sizes: Sizes, sequences: Sequences, most: float = 1.0) -> tuple[Tensor, Tensor]:
    """Return the users of the validation and others of the test, who have two items or more.

    Together they are at most the part ``most`` of all such users.
    """
    able = (sequences.lengths > 1).nonzero()[:, 0]
    order = torch.randperm(len(able), generator=torch.Generator().manual_seed(_HELD_OUT_SEED))
    for_validation, for_test = sizes.within(int(most * len(able)))
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


def _split_words(sequences: Sequences, words: int) -> tuple[Sequences, Sequences]:
    """Hold out the last sentences that have at most so many words together."""
    first = int(torch.searchsorted(sequences.offsets, len(sequences.values) - words))
    return sequences.between(0, first), sequences.between(first, len(sequences))


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
