"""Ways to split a log: by the last items, by time, by user."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from widemax.data.sequences import Sequences
from widemax.data.splitting.holdout import Holdout
from widemax.data.splitting.log_split import (
    LogSplit,
    check_something_left,
    distinct_targets,
    split_by_lengths,
    split_by_parts,
)
from widemax.validation import ABSENT, check_fraction


def leave_one_out(sequences: Sequences) -> LogSplit:
    """Ask for the last item of each user in the test, for the one before it in the validation.

    Formula: of n items, the last is the target of the test, with the n − 1 before it as history;
    the last but one that of the validation, with n − 2; those are the training sequence. A user
    with two items is asked about in the test only, one with a single item not at all.

    Shapes: ``sequences`` of N users → a split with N rows.

    Cost: a few passes over the values.

    Reference: none; the custom of sequential recommendation.

    Use when: results are to be compared with published ones. Avoid when: a question about an early
    user may be answered with what others did later: the parts overlap in time (``split_by_time``).

    >>> split = leave_one_out(Sequences.from_lists([[4, 0, 2], [1], [3, 5]]))
    >>> split.test.users.tolist(), split.validation.users.tolist(), len(split.train)
    ([0, 2], [0], 3)
    """
    lengths = sequences.lengths.numpy()
    test, validation = (lengths > 1).astype(np.int64), (lengths > 2).astype(np.int64)
    return split_by_lengths(sequences, lengths - validation - test, validation, test)


def split_by_time(sequences: Sequences, *, validation: float = 0.1, test: float = 0.1) -> LogSplit:
    """Hold out the last ``test`` of all interactions, and before them ``validation`` of them.

    Formula: see ``split_at_times``, at the moments after which these fractions follow; what has the
    very time of a moment follows it, so that ties make a part larger, never divided.

    Shapes: fractions of the interactions, at least 0, together below 1.

    Cost: a sort of the times.

    Reference: Ji et al., "A Critical Study on Data Leakage in Recommender System Offline
    Evaluation", 2023.

    Use when: the future is to be told from the past, as it will have to be. Avoid when: the log has
    no times.

    >>> times = torch.tensor([10.0, 20, 30, 15, 40])
    >>> log = Sequences(torch.tensor([4, 0, 2, 1, 3]), torch.tensor([0, 3, 5]), times=times)
    >>> split = split_by_time(log, validation=0.2, test=0.2)
    >>> split.train.values.tolist(), split.test.targets.values.tolist(), split.test.users.tolist()
    ([4, 0, 1], [3], [1])
    """
    check_fraction("validation", validation)
    check_fraction("test", test)
    check_fraction("validation + test", validation + test)
    times = _times_of(sequences)
    ordered = times.sort().values
    total = len(ordered)
    # Beyond the last moment of all nothing follows.
    moments = torch.cat([ordered, times.new_full((1,), torch.inf)])
    first = moments[round((1 - validation - test) * total)]
    second = moments[round((1 - test) * total)]
    return _split_at(sequences, first, second)


def split_at_times(sequences: Sequences, *, validation: float, test: float) -> LogSplit:
    """Hold out what follows two moments: from ``validation`` on, and from ``test`` on.

    Formula: training is what has time < validation; the targets of the validation are the items of
    validation ≤ time < test, those of the test the items of test ≤ time; histories are all that
    came before the moment in question. A user without a history is skipped, and counted.

    Shapes: ``sequences`` of N users with times → a split with N rows, of which those may be empty
    who came after the first moment. Moments are seconds, validation ≤ test.

    Cost: a few passes over the values.

    Reference: see ``split_by_time``.

    Use when: the days are known at which a model would have been trained. Avoid when: any moment
    will do (``split_by_time``).

    >>> times = torch.tensor([10.0, 20, 30, 15, 40])
    >>> log = Sequences(torch.tensor([4, 0, 2, 1, 3]), torch.tensor([0, 3, 5]), times=times)
    >>> split = split_at_times(log, validation=20, test=40)
    >>> split.validation.targets.values.tolist(), split.test.histories.values.tolist()
    ([0, 2], [1])
    """
    _times_of(sequences)
    moments = torch.tensor([validation, test], dtype=torch.float64)
    if not bool(moments.isfinite().all()) or validation > test:
        raise ValueError(
            f"validation and test must be finite, the first not later, got {validation}, {test}"
        )
    return _split_at(sequences, moments[0], moments[1])


def split_by_user(
    sequences: Sequences,
    *,
    validation: float = 0.1,
    test: float = 0.1,
    last: float = 0.0,
    generator: torch.Generator | None = None,
) -> LogSplit:
    """Hold out whole users: a model is asked what comes last in sequences of which it saw nothing.

    Formula: of the users with two items or more, a random ``validation`` and a random ``test`` are
    held out, rounded to whole users. The last round(last · n) of their n items are the targets, but
    at least one, and never all; the rest is the history.

    Shapes: ``sequences`` of N users → ``train`` with a row for each user who is not held out, in
    their order; the ``users`` of both holdouts are -1. ``final`` has the users of the validation
    with all their items after the rows of ``train``.

    Cost: a few passes over the values.

    Reference: Liang et al., "Variational Autoencoders for Collaborative Filtering", 2018, who hold
    out a fifth of the items (``last=0.2``).

    Use when: users who are not known yet are to be served. Avoid when: a model has a vector for
    each user: it has none for these.

    >>> log = Sequences.from_lists([[4, 0, 2], [1], [3, 5]])
    >>> split = split_by_user(log, validation=0.0, test=0.5, generator=torch.Generator())
    >>> len(split.train), split.test.users.tolist(), split.test.histories.lengths.tolist()
    (2, [-1], [2])
    """
    check_fraction("validation", validation)
    check_fraction("test", test)
    check_fraction("validation + test", validation + test)
    check_fraction("last", last)
    able = (sequences.lengths > 1).nonzero()[:, 0]
    drawn = able[torch.randperm(len(able), generator=generator)]
    num_test, num_validation = round(test * len(able)), round(validation * len(able))
    test_rows = drawn[:num_test].sort().values
    validation_rows = drawn[num_test : num_test + num_validation].sort().values
    stays = torch.ones(len(sequences), dtype=torch.bool)
    stays[drawn[: num_test + num_validation]] = False
    train_rows = stays.nonzero()[:, 0]
    train = sequences.chosen(train_rows)
    check_something_left(train)
    return LogSplit(
        train=train,
        validation=_last_of(sequences.chosen(validation_rows), last),
        test=_last_of(sequences.chosen(test_rows), last),
        final=sequences.chosen(torch.cat([train_rows, validation_rows])),
    )


def _split_at(sequences: Sequences, first: Tensor, second: Tensor) -> LogSplit:
    times = _times_of(sequences)
    parts = (times >= first).to(torch.uint8) + (times >= second).to(torch.uint8)
    return split_by_parts(sequences, parts)


def _last_of(sequences: Sequences, fraction: float) -> Holdout:
    """Ask for the last of each sequence; the users are not known."""
    lengths = sequences.lengths
    held = (lengths * fraction).round().long().clamp(min=1).minimum(lengths - 1)
    cuts = (sequences.offsets[1:] - held).repeat_interleave(lengths)
    is_target = torch.arange(len(sequences.values)) >= cuts
    targets = distinct_targets(sequences.kept(is_target))
    return Holdout(sequences.kept(~is_target), targets, torch.full_like(lengths, ABSENT))


def _times_of(sequences: Sequences) -> Tensor:
    if sequences.times is None:
        raise ValueError("sequences must have times to be split by them: times is None")
    return sequences.times
