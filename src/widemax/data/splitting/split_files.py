"""Splits that others have made: files for training, validation and test."""

from __future__ import annotations

from pathlib import Path

import torch

from widemax.data.reading.classes import Coded, classes_of
from widemax.data.reading.columns import as_array
from widemax.data.reading.encoding import Encoder
from widemax.data.reading.inputs import files_of
from widemax.data.reading.interactions import in_time_order
from widemax.data.reading.logs import Columns, read_log
from widemax.data.reading.source import KINDS, recognise
from widemax.data.reading.tables import TableKind
from widemax.data.splitting.log_split import LogSplit, split_by_parts
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
    log = read_log(files, kind, Columns(user_column, item_column, time_column))
    users, items, times = log.users(), log.items(), log.times()
    user_encoder, item_encoder = Encoder(users.dtype), Encoder(items.dtype)
    user_codes, item_codes = user_encoder.encode(users), item_encoder.encode(items)
    first_files = [0, len(given[0]), len(given[0]) + len(given[1])]
    starts = torch.tensor([log.starts[file] for file in first_files])
    parts = torch.searchsorted(starts, torch.arange(len(users)), right=True) - 1
    numbers, per_second = (None, 1.0) if times is None else (as_array(times[0]), times[1])
    # Within a user first by part: a file says what comes after what, even against the times.
    order, offsets, _ = in_time_order(
        user_codes * _PARTS + parts, len(user_encoder.keys) * _PARTS, numbers
    )
    coded = Coded(
        item_codes[order].numpy(),
        offsets[::_PARTS].contiguous().numpy(),
        user_encoder.keys,
        None if numbers is None else numbers[order.numpy()],
        per_second,
    )
    sequences, vocabulary, _ = classes_of(coded, item_encoder.keys)
    split = split_by_parts(sequences, parts[order].to(torch.uint8))
    return split.with_training_classes(vocabulary)
