"""Splits that others have made: files for training, validation and test."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from widemax.data.reading.classes import Coded, classes_of, numbered
from widemax.data.reading.files import files_of
from widemax.data.reading.logs import Columns, scan_log
from widemax.data.reading.tables import KINDS, TableKind, recognise
from widemax.data.splitting.log_split import LogSplit, split_by_parts
from widemax.kernels.data.grouping import MAX_ROWS, grouped
from widemax.validation import check_whole
from widemax.vocabulary import Vocabulary

_PARTS = 3


def read_split(
    train: str | Path,
    validation: str | Path,
    test: str | Path,
    *,
    kind: TableKind | None = None,
    user_column: str = "",
    item_column: str = "",
    time_column: str = "",
) -> tuple[LogSplit, Vocabulary]:
    """Read a log that is split already, in three files of the same kind.

    Formula: each user's items of ``train`` are his training sequence, those of ``validation`` and
    ``test`` the targets, each part in time order; the history of a test question has the items of
    the validation file too. The classes are the items of ``train``, counted there; targets that
    are none of them, and users without a history, are skipped and counted.

    Shapes: a row for each user of the three files, in order of appearance; users who are not in
    ``train`` have an empty one.

    Cost: that of ``read_interactions`` for the three together.

    Reference: He et al., "LightGCN", 2020, whose files (``user item item …``) many results are for.

    Use when: results are to be compared with published ones. Avoid when: the log is in one piece;
    then ``leave_one_out`` and ``split_by_time`` cut it.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> lists = {"train": "0 5 6\\n1 6", "valid": "0 7\\n1 5", "test": "0 6 5\\n1 5 8\\n2"}
    >>> files = [folder / name for name in lists]
    >>> _ = [path.write_text(text) for path, text in zip(files, lists.values())]
    >>> split, vocabulary = read_split(*files, kind="lists")
    >>> vocabulary.decode(split.test.targets.values), split.skipped_targets
    ([6, 5, 5], (1, 1))
    """
    given = [files_of(path) for path in (train, validation, test)]
    if kind is None:
        found = recognise(train)
        if found == "text":
            raise ValueError(f"{train} holds text, which is no log: name its format with kind")
        kind = found
    elif kind not in KINDS[1:]:
        raise ValueError(f"kind must be one of {', '.join(KINDS[1:])}, got {kind!r}")
    files = [path for part in given for path in part]
    log = scan_log(files, kind, Columns(user_column, item_column, time_column))
    (user_codes, users), (item_codes, items) = numbered(log.users()), numbered(log.items())
    times = log.times()
    numbers, per_second = (None, 1.0) if times is None else (times[0].to_numpy(), times[1])
    first_files = [0, len(given[0]), len(given[0]) + len(given[1])]
    starts = [log.starts[file] for file in first_files]
    rows = np.arange(len(user_codes), dtype=np.int32)
    parts = np.searchsorted(starts, rows, side="right") - 1
    # Within a user first by part: a file says what comes after what, even against the times.
    num_groups = check_whole("users", len(users) * _PARTS, 0, MAX_ROWS)
    groups = (user_codes.astype(np.int64) * _PARTS + parts).astype(np.int32)
    order, sorted_times, offsets, _ = grouped(groups, num_groups, rows, numbers)
    by_user = np.ascontiguousarray(offsets[::_PARTS])
    coded = Coded(item_codes[order], by_user, users, sorted_times, per_second)
    sequences, vocabulary, _ = classes_of(coded, items)
    split = split_by_parts(sequences, torch.from_numpy(parts[order].astype(np.uint8)))
    return split.with_training_classes(vocabulary)
