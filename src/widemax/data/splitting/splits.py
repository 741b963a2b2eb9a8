"""Ways to split a log: by the last items, by time, by user, or as its files do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from widemax.data.reading.logs import Columns
from widemax.data.reading.parts import PartFiles, read_log_parts
from widemax.data.reading.tables import TEXT, check_kind, formats, recognise
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
from widemax.vocabulary import Vocabulary


def leave_one_out(sequences: Sequences) -> LogSplit:
    """Ask for the last item of each user in the test, for the one before it in the validation.

    Of n items, the last is the target of the test, with the n − 1 before it as history; the last
    but one that of the validation, with n − 2; those are the training sequence. A user with two
    items is asked about in the test only, one with a single item not at all.

    This is the custom of sequential recommendation. The parts overlap in time, so that a question
    about an early user may be answered with what others did later: see ``split_by_time``.

    >>> split = leave_one_out(Sequences.from_lists([[4, 0, 2], [1], [3, 5]]))
    >>> split.test.users.tolist(), split.validation.users.tolist(), len(split.train)
    ([0, 2], [0], 3)
    """
    lengths = sequences.lengths.numpy()
    test, validation = (lengths > 1).astype(np.int64), (lengths > 2).astype(np.int64)
    return split_by_lengths(sequences, lengths - validation - test, validation, test)


def split_by_time(sequences: Sequences, *, validation: float = 0.1, test: float = 0.1) -> LogSplit:
    """Hold out the last ``test`` of all interactions, and before them ``validation`` of them.

    As ``split_at_times``, at the moments after which these fractions follow; what has the very time
    of a moment follows it, so that ties make a part larger, and are never divided. It predicts the
    future from the past, as will be asked of the model: Ji et al., "A Critical Study on Data
    Leakage in Recommender System Offline Evaluation", 2023.

    >>> times = torch.tensor([10.0, 20, 30, 15, 40])
    >>> log = Sequences(torch.tensor([4, 0, 2, 1, 3]), torch.tensor([0, 3, 5]), times=times)
    >>> split = split_by_time(log, validation=0.2, test=0.2)
    >>> split.train.values.tolist(), split.test.targets.values.tolist(), split.test.users.tolist()
    ([4, 0, 1], [3], [1])
    """
    _check_fractions(validation, test)
    times = _times_of(sequences)
    ordered = times.sort().values
    total = len(ordered)
    # Beyond the last moment of all nothing follows.
    moments = torch.cat([ordered, times.new_full((1,), torch.inf)])
    first = moments[round((1 - validation - test) * total)]
    second = moments[round((1 - test) * total)]
    return _split_at(sequences, first, second)


def split_at_times(sequences: Sequences, *, validation: float, test: float) -> LogSplit:
    """Hold out what follows two moments, in seconds: from ``validation`` on, and from ``test`` on.

    Training is what has time < validation; the targets of the validation are the items of
    validation ≤ time < test, those of the test the items of test ≤ time; histories are all that
    came before the moment in question. A user without a history is skipped, and counted.

    >>> times = torch.tensor([10.0, 20, 30, 15, 40])
    >>> log = Sequences(torch.tensor([4, 0, 2, 1, 3]), torch.tensor([0, 3, 5]), times=times)
    >>> split = split_at_times(log, validation=20, test=40)
    >>> split.validation.targets.values.tolist(), split.test.histories.values.tolist()
    ([0, 2], [1])
    """
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

    Of the users with two items or more, a random ``validation`` and a random ``test`` are held out,
    rounded to whole users. The last round(last · n) of their n items are the targets, but at least
    one, and never all; the rest is the history. Liang et al., "Variational Autoencoders for
    Collaborative Filtering", 2018, hold out a fifth of the items (``last=0.2``).

    ``train`` has a row for each user who is not held out, in their order; the ``users`` of both
    holdouts are -1: a model with a vector for each user has none for these. ``final`` has the users
    of the validation with all their items after the rows of ``train``.

    >>> log = Sequences.from_lists([[4, 0, 2], [1], [3, 5]])
    >>> split = split_by_user(log, validation=0.0, test=0.5, generator=torch.Generator())
    >>> len(split.train), split.test.users.tolist(), split.test.histories.lengths.tolist()
    (2, [-1], [2])
    """
    _check_fractions(validation, test)
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


def read_split(
    train: str | Path,
    validation: str | Path,
    test: str | Path,
    *,
    kind: str | None = None,
    user_column: str = "",
    item_column: str = "",
    time_column: str = "",
    vocabulary: Vocabulary | None = None,
) -> tuple[LogSplit, Vocabulary]:
    """Read a log that is split already, in three files (or folders, or patterns) of the same kind.

    Each user's items of ``train`` are their training sequence, those of ``validation`` and ``test``
    the targets, each part in time order; the history of a test question has the items of the
    validation file too. The classes are the items of ``train``, counted there; targets that are
    none of them, and users without a history, are skipped and counted. There is a row for each user
    of the three files, in order of appearance, empty for those who are not in ``train``. With a
    ``vocabulary``, that of a run that is to be evaluated, its classes are taken instead.

    Many results are for the files of He et al., "LightGCN", 2020 (``user item item …``).

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> lists = {"train": "0 5 6\\n1 6", "valid": "0 7\\n1 5", "test": "0 6 5\\n1 5 8\\n2"}
    >>> files = [folder / name for name in lists]
    >>> _ = [path.write_text(text) for path, text in zip(files, lists.values())]
    >>> split, vocabulary = read_split(*files, kind="lists")
    >>> vocabulary.decode(split.test.targets.values), split.skipped_targets
    ([6, 5, 5], (1, 1))
    """
    if kind is None:
        found = recognise(train)
        if found == TEXT:
            raise ValueError(f"{train} holds text, which is no log: name its format with kind")
        kind = found
    else:
        check_kind(kind, tuple(each for each in formats() if each != TEXT))
    files = PartFiles(Path(train), Path(validation), Path(test))
    source = read_log_parts(files, kind, Columns(user_column, item_column, time_column))
    assert source.parts is not None
    split = split_by_parts(source.sequences, source.parts)
    if vocabulary is not None:
        return split.with_classes_of(vocabulary, source.vocabulary), vocabulary
    return split.with_training_classes(source.vocabulary)


def _check_fractions(validation: float, test: float) -> None:
    check_fraction("validation", validation)
    check_fraction("test", test)
    check_fraction("validation + test", validation + test)


def _split_at(sequences: Sequences, first: Tensor, second: Tensor) -> LogSplit:
    times = _times_of(sequences)
    parts = (times >= first).to(torch.uint8) + (times >= second).to(torch.uint8)
    return split_by_parts(sequences, parts)


def _times_of(sequences: Sequences) -> Tensor:
    if sequences.times is None:
        raise ValueError("sequences must have times to be split by them: times is None")
    return sequences.times


def _last_of(sequences: Sequences, fraction: float) -> Holdout:
    """Ask for the last of each sequence; the users are not known."""
    lengths = sequences.lengths
    held = (lengths * fraction).round().long().clamp(min=1).minimum(lengths - 1)
    cuts = (sequences.offsets[1:] - held).repeat_interleave(lengths)
    is_target = torch.arange(len(sequences.values)) >= cuts
    targets = distinct_targets(sequences.kept(is_target))
    return Holdout(sequences.kept(~is_target), targets, torch.full_like(lengths, ABSENT))
