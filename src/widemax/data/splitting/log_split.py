"""A log cut in three: for training, for validation, for the test."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from widemax.data.reading.numbering import recoded, recounted
from widemax.data.sequences import Sequences, offsets_of
from widemax.data.splitting.holdout import Holdout
from widemax.kernels.data.slices import joined_slices, part_lengths
from widemax.validation import check_tensor
from widemax.vocabulary import Vocabulary

Lengths = NDArray[np.int64]

TEST = 2
"""The last of the parts of a log; 0 is for training, 1 for validation."""


@dataclass(frozen=True, eq=False, kw_only=True)
class LogSplit:
    """A log cut in three: for training, for validation, for the test.

    The history of a validation question lies in the training part; that of a test question in the
    training and validation parts; no target lies in a part that its history comes from. The targets
    of one question are distinct. Fit on ``train`` and choose by ``validation``, then fit on
    ``final`` and judge by ``test``, once.

    Each part is copied once; histories share memory with ``train`` and ``final`` where every user
    is asked about. ``final`` and all times are copied when they are first asked for, which may be
    never; they hold on to the log.

    >>> log = Sequences.from_lists([[4, 0, 2], [1], [3, 5]])
    >>> parts = torch.tensor([0, 1, 2, 0, 0, 2], dtype=torch.uint8)
    >>> split = split_by_parts(log, parts)
    >>> split.train.values.tolist(), split.validation.targets.values.tolist()
    ([4, 1, 3], [0])
    >>> split.test.histories.values.tolist(), split.test.targets.values.tolist()
    ([4, 0, 3], [2, 5])
    """

    train: Sequences
    """One sequence for each user, who may have none in it."""
    validation: Holdout
    """Its ``users`` are rows of ``train``, or -1 for users who have no row."""
    test: Holdout
    """The same for the last part."""
    final: Sequences
    """Train and validation in the rows of ``train``, then users who are for validation alone."""
    skipped_users: tuple[int, int] = (0, 0)
    """How many users of validation and test have no history to ask from."""
    skipped_targets: tuple[int, int] = (0, 0)
    """How many targets there are no class."""

    def with_training_classes(self, vocabulary: Vocabulary) -> tuple[LogSplit, Vocabulary]:
        """Return the split with the items of ``train`` as its classes, counted there alone.

        The vocabulary of a whole log knows what is in the test: its counts, from which negatives
        are drawn, and its last classes, which nothing was learned about. Here values of no other
        class are left; questions that lose all their targets or history are counted as skipped.
        """
        counts = torch.bincount(self.train.values, minlength=len(vocabulary))
        own, class_of = recounted(vocabulary.keys, counts, vocabulary.unknown)
        return self._renumbered(class_of, own), own

    def with_classes_of(self, known: Vocabulary, vocabulary: Vocabulary) -> LogSplit:
        """Return the split with the classes of a ``known`` vocabulary, such as that of a run.

        ``vocabulary`` is what the split is numbered by. What has no class is left out, and counted
        as in ``with_training_classes``.
        """
        return self._renumbered(known.encode(vocabulary.keys, missing="mark"), known)

    def _renumbered(self, class_of: Tensor, own: Vocabulary) -> LogSplit:
        validation, validation_users, validation_targets = _recoded(self.validation, class_of)
        test, test_users, test_targets = _recoded(self.test, class_of)
        users, targets = self.skipped_users, self.skipped_targets
        return replace(
            self,
            train=recoded(self.train, class_of)[0].numbered_by(own),
            validation=validation.numbered_by(own),
            test=test.numbered_by(own),
            final=recoded(self.final, class_of)[0].numbered_by(own),
            skipped_users=(users[0] + validation_users, users[1] + test_users),
            skipped_targets=(targets[0] + validation_targets, targets[1] + test_targets),
        )


def split_by_parts(sequences: Sequences, parts: Tensor) -> LogSplit:
    """Cut a log by a mark at each interaction: 0 for training, 1 for validation, 2 for the test.

    ``parts`` is uint8 [T]. A user's marks must never fall: what is asked for comes last.

    >>> log = Sequences.from_lists([[4, 0, 2], [3]])
    >>> split = split_by_parts(log, torch.tensor([0, 2, 2, 2], dtype=torch.uint8))
    >>> split.test.targets.values.tolist(), split.skipped_users
    ([0, 2], (0, 1))
    """
    _check_parts(sequences, parts)
    lengths = part_lengths(parts.numpy(), sequences.offsets.numpy(), TEST + 1)
    # Marks never fall: each part of a sequence is one run of values.
    return split_by_lengths(sequences, *lengths)


def split_by_lengths(
    sequences: Sequences, train: Lengths, validation: Lengths, test: Lengths
) -> LogSplit:
    """Cut each sequence into its first ``train``, next ``validation`` and last ``test`` values."""
    starts, before_test = sequences.offsets.numpy()[:-1], train + validation
    learned = _Runs(sequences, starts, train)
    check_something_left(learned)
    final = _Runs(sequences, starts, before_test)
    asked, skipped = _asked(learned, _Runs(sequences, starts + train, validation))
    asked_in_test, skipped_in_test = _asked(final, _Runs(sequences, starts + before_test, test))
    return LogSplit(
        train=learned,
        validation=asked,
        test=asked_in_test,
        final=final,
        skipped_users=(skipped, skipped_in_test),
    )


class _Runs(Sequences):
    """Of each sequence the run that starts there and is that long, copied when it is asked for."""

    _whole: Sequences
    _starts: Lengths

    def __init__(self, sequences: Sequences, starts: Lengths, lengths: Lengths) -> None:
        offsets = offsets_of(torch.from_numpy(lengths))
        # Past the frozen fields, of which values and times are made when they are asked for.
        vars(self).update(
            offsets=offsets,
            names=sequences.names,
            vocabulary=sequences.vocabulary,
            _whole=sequences,
            _starts=starts,
        )

    @cached_property
    def values(self) -> Tensor:
        return self._copied(self._whole.values)

    @cached_property
    def times(self) -> Tensor | None:
        return None if self._whole.times is None else self._copied(self._whole.times)

    @cached_property
    def weights(self) -> Tensor | None:
        return None if self._whole.weights is None else self._copied(self._whole.weights)

    def _copied(self, whole: Tensor) -> Tensor:
        lengths = self.lengths.numpy()
        return torch.from_numpy(joined_slices(whole.numpy(), self._starts, lengths))


def _asked(known: Sequences, coming: Sequences) -> tuple[Holdout, int]:
    """Return the questions from what is known to what comes, and how many had nothing known."""
    wanted = coming.lengths.numpy() > 0
    users = torch.from_numpy(np.flatnonzero(wanted & (known.lengths.numpy() > 0)))
    skipped = int(wanted.sum()) - len(users)
    if len(users) < len(known):
        known, coming = known.chosen(users), coming.chosen(users)
    return Holdout(known, distinct_targets(coming), users), skipped


def distinct_targets(targets: Sequences) -> Sequences:
    """Return each sequence without what it has had before: what is found once is found."""
    if not len(targets.values) or int(targets.lengths.numpy().max()) < 2:
        return targets
    num_classes = int(targets.values.max()) + 1
    rows = torch.arange(len(targets)).repeat_interleave(targets.lengths)
    first = pl.Series((rows * num_classes + targets.values).numpy()).is_first_distinct()
    return targets if first.all() else targets.kept(torch.from_numpy(first.to_numpy().copy()))


def _recoded(holdout: Holdout, class_of: Tensor) -> tuple[Holdout, int, int]:
    """Return the questions in other classes, and how many users and targets are skipped."""
    histories, _ = recoded(holdout.histories, class_of)
    targets, has_class = recoded(holdout.targets, class_of)
    left = (targets.lengths > 0) & (histories.lengths > 0)
    rows = left.nonzero()[:, 0]
    skipped = len(left) - len(rows)
    if skipped:
        histories, targets = histories.chosen(rows), targets.chosen(rows)
    # With an unknown key, several items have become one.
    asked = Holdout(histories, distinct_targets(targets), holdout.users[rows])
    return asked, skipped, int((~has_class).sum())


def _check_parts(sequences: Sequences, parts: Tensor) -> None:
    if check_tensor("parts", parts).dtype != torch.uint8 or parts.shape != sequences.values.shape:
        raise ValueError(
            f"parts must be uint8 [{len(sequences.values):,}], got {parts.dtype} "
            f"{list(parts.shape)}"
        )
    if len(parts) and int(parts.max()) > TEST:
        raise ValueError(f"parts must lie between 0 and {TEST}, got {int(parts.max())}")
    falls = (parts[1:] < parts[:-1]) & sequences.continues()
    if bool(falls.any()):
        place = int(falls.nonzero()[0]) + 1
        raise ValueError(f"parts must not fall within a sequence, they do at value {place:,}")


def check_something_left(train: Sequences) -> None:
    """Raise if nothing is left to learn from."""
    if not len(train.values):
        raise ValueError("the split leaves nothing for training: hold out less, or later")
