"""How a run splits its data: what is trained on, what validates, what tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from widemax.data.reading.tables import TEXT
from widemax.data.sequences import Sequences, Windows
from widemax.data.source import Source
from widemax.data.splitting.holdout import Holdout
from widemax.data.splitting.log_split import split_by_lengths, split_by_parts
from widemax.data.splitting.splits import split_by_time

_HELD_OUT_SEED = 20_111
_MOST_OF_A_TEXT = 0.1
_MOST_OF_ALL_USERS = 0.2
_LAST_ITEMS = ("last", "last-of-some", "user")


@dataclass(frozen=True, kw_only=True)
class Split:
    """The examples of a source: those trained on, and two kinds that are held out."""

    sequences: Sequences
    """What is trained on: of a log a row for each user, who may have nothing in it."""
    validation: Windows | Holdout | None = None
    """What says which checkpoint is best, and when to stop: words of a text, users of a log."""
    test: Windows | Holdout | None = None
    """What has had no say in anything."""
    final: Sequences | None = None
    """What is trained on and what validates: for a last fit, its length decided."""
    goals: Tensor | None = None
    """Where in ``sequences`` the goal was reached."""
    final_goals: Tensor | None = None
    """The same for ``final``."""
    skipped_users: int = 0
    """How many users of the test have no history to ask them from."""


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


def split_files(source: Source, sizes: Sizes, cut: Callable[[Sequences], Windows]) -> Split:
    """Split a source as its files do; without a file for it, the last of the training validates.

    Of the validation at most so many questions are asked as ``sizes`` says, of the test all.
    """
    assert source.parts is not None
    sequences, parts = source.sequences, source.parts
    if not bool((parts == 1).any()):
        parts = _with_validation(sequences, parts, sizes, of_log=source.kind != TEXT)
    if source.kind != TEXT:
        cut_log = split_by_parts(sequences, parts)
        return Split(
            sequences=cut_log.train,
            validation=_some_questions(cut_log.validation, sizes.validation),
            test=cut_log.test,
            final=cut_log.final,
            skipped_users=cut_log.skipped_users[1],
        )
    of_line = parts[sequences.offsets[:-1].clamp(max=len(parts) - 1)]
    train, validation, test = (
        sequences.chosen((of_line == part).nonzero()[:, 0]) for part in range(3)
    )
    return Split(
        sequences=train,
        validation=_some(cut(validation), sizes.validation),
        test=_some(cut(test), len(test.values)),
        final=sequences.chosen((of_line < 2).nonzero()[:, 0]),
    )


def _with_validation(sequences: Sequences, parts: Tensor, sizes: Sizes, *, of_log: bool) -> Tensor:
    """Mark the last of the training part of each user, or of the text, as validation."""
    parts = parts.clone()
    if not of_log:
        lines = int((parts == 0).sum())
        words = min(sizes.validation, int(_MOST_OF_A_TEXT * lines))
        first = int(torch.searchsorted(sequences.offsets, lines - words))
        parts[sequences.offsets[first] : lines] = 1
        return parts
    rows = torch.arange(len(sequences)).repeat_interleave(sequences.lengths)
    trained = torch.bincount(rows[parts == 0], minlength=len(sequences))
    able = (trained > 1).nonzero()[:, 0]
    seeded = torch.Generator().manual_seed(_HELD_OUT_SEED)
    drawn = able[torch.randperm(len(able), generator=seeded)[: sizes.validation]]
    parts[sequences.offsets[drawn] + trained[drawn] - 1] = 1
    return parts


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
        final=rest,
    )


def split_log(source: Source, how: str, sizes: Sizes) -> Split:
    """Hold out of a log what ``how`` says, and ask users for what they chose then.

    "last": the last item of every user is the test, the one before it the validation;
    "last-of-some": the last item of some users validates, that of others tests; "time": what users
    had after a moment, a fifth of the time; "user": all of some users, at most of a fifth of them.
    Of more questions than ``sizes`` says, some are asked, the same in every run.

    >>> from widemax.vocabulary import Vocabulary
    >>> log = Sequences.from_lists([[0, 1, 2]] * 9)
    >>> source = Source(kind="pairs", sequences=log, vocabulary=Vocabulary.count(["a", "b", "c"]))
    >>> split = split_log(source, "last", Sizes(2, 3))
    >>> len(split.validation), len(split.test), len(split.sequences.values)
    (2, 3, 9)
    """
    sequences = source.sequences
    parts = _WAYS[how](sizes, sequences)
    goals, final_goals = (
        None if source.goals is None else source.goals[_beginnings(sequences, part)]
        for part in (parts.train, parts.final)
    )
    return Split(
        sequences=parts.train,
        validation=_some_questions(parts.validation, sizes.validation),
        test=_some_questions(parts.test, sizes.test),
        final=parts.final,
        goals=goals,
        final_goals=final_goals,
        skipped_users=parts.skipped_users,
    )


def later_than_asked(whole: Sequences, split: Split, how: str) -> tuple[float, float] | None:
    """Return how many of the test's last items have later training, and how much is, on average.

    Both are shares; None where the test asks for no last items, or nothing has a time.

    >>> values = torch.tensor([0, 1, 2, 0, 1, 2])
    >>> log = Sequences(values, torch.tensor([0, 3, 6]), times=torch.arange(6.0))
    >>> train, test = Holdout.of_last(log)
    >>> later_than_asked(log, Split(sequences=train, test=test), "last")
    (0.5, 0.25)
    """
    asked, trained = split.test, split.sequences.times
    if how not in _LAST_ITEMS or not isinstance(asked, Holdout) or whole.times is None:
        return None
    assert trained is not None
    moments = whole.times[_ends(whole, asked.users)]
    earlier = torch.searchsorted(trained.sort().values, moments, right=True)
    later = 1 - earlier.double() / len(trained)
    return float((later > 0).double().mean()), float(later.mean())


class _LogParts(NamedTuple):
    """A log cut in three; ``train`` has a row for each user, the beginning of theirs or nothing."""

    train: Sequences
    validation: Holdout
    test: Holdout
    final: Sequences
    skipped_users: int = 0


def _beginnings(sequences: Sequences, train: Sequences) -> Tensor:
    """Return which values are trained on, bool [T]."""
    within = torch.arange(len(sequences.values)) - sequences.offsets[:-1].repeat_interleave(
        sequences.lengths
    )
    return within < train.lengths.repeat_interleave(sequences.lengths)


def _ask_every_last(sizes: Sizes, sequences: Sequences) -> _LogParts:
    lengths = sequences.lengths
    test = (lengths > 1) & (sizes.test > 0)
    validation = (lengths > 1 + test.long()) & (sizes.validation > 0)
    numbers = (each.long().numpy() for each in (validation, test))
    held = [*numbers]
    parts = split_by_lengths(sequences, lengths.numpy() - held[0] - held[1], *held)
    return _LogParts(parts.train, parts.validation, parts.test, parts.final)


def _ask_last(sizes: Sizes, sequences: Sequences) -> _LogParts:
    return _ask_some(sequences, *_drawn_users(sizes, sequences))


def _ask_new_users(sizes: Sizes, sequences: Sequences) -> _LogParts:
    users = _drawn_users(sizes, sequences, _MOST_OF_ALL_USERS)
    known = torch.ones(len(sequences), dtype=torch.bool)
    known[torch.cat(users)] = False
    asked = _ask_some(sequences, *users)
    train = sequences.kept(known.repeat_interleave(sequences.lengths))
    known[users[0]] = True
    final = sequences.kept(known.repeat_interleave(sequences.lengths))
    return asked._replace(train=train, final=final)


def _ask_some(sequences: Sequences, validation: Tensor, test: Tensor) -> _LogParts:
    """Ask some users for their last item; all that is not asked for can be trained on."""
    there = torch.ones(len(sequences.values), dtype=torch.bool)
    there[_ends(sequences, test)] = False
    final = sequences.kept(there)
    there[_ends(sequences, validation)] = False
    before = sequences.kept(there)
    return _LogParts(
        before,
        _questions(before, sequences, validation),
        _questions(before, sequences, test),
        final,
    )


def _ask_later(sizes: Sizes, sequences: Sequences) -> _LogParts:
    if sequences.times is None:
        raise ValueError("split = 'time' needs a log with times: name its column in time_column")
    parts = split_by_time(sequences)
    return _LogParts(parts.train, parts.validation, parts.test, parts.final, parts.skipped_users[1])


_WAYS: Mapping[str, Callable[[Sizes, Sequences], _LogParts]] = MappingProxyType(
    {
        "last": _ask_every_last,
        "last-of-some": _ask_last,
        "time": _ask_later,
        "user": _ask_new_users,
    }
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


def _some_questions(asked: Holdout, count: int) -> Holdout | None:
    """Return at most ``count`` questions, the same in every run; None for none."""
    if not min(len(asked), count):
        return None
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
