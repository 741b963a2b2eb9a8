"""Who chose what, and when: from a table of interactions to one sequence for each user."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widemax.data.columns import seconds_of
from widemax.data.core import MAX_CORE, core_of
from widemax.data.encoding import Encoder, classes_of
from widemax.data.inputs import files_of
from widemax.data.logs import Columns, read_log
from widemax.data.sequences import Sequences, offsets_of
from widemax.data.tables import TableKind
from widemax.kernels.grouping import grouped, sort_within
from widemax.kernels.slices import part_lengths
from widemax.keys import Key, show
from widemax.validation import check_whole
from widemax.vocabulary import Vocabulary

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, eq=False)
class Interactions:
    """What was read of a log: each user's items in time order, the items as classes.

    Formula: vocabulary.counts[y] = the number of y in sequences.values.

    Shapes: ``sequences.names`` holds the users, ``sequences.times`` the seconds if the log has
    times; ``goals`` is bool [T], beside ``sequences.values``, if a goal column was named.

    Cost: it only holds what was read.

    Reference: none.

    Use when: reading what ``read_interactions`` returns. Avoid when: nothing else makes one.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "log.csv"
    >>> _ = path.write_text("user,item,booked\\n7,rum,0\\n7,tea,1\\n")
    >>> read_interactions(path, "csv", goal_column="booked").goals.tolist()
    [False, True]
    """

    sequences: Sequences
    vocabulary: Vocabulary
    columns: Columns
    goals: Tensor | None = None


def read_interactions(
    path: str | Path,
    kind: TableKind,
    *,
    user_column: str = "",
    item_column: str = "",
    time_column: str = "",
    goal_column: str = "",
    core: int = 0,
    min_count: int = 1,
    max_size: int | None = None,
    unknown: Key | None = None,
    min_length: int = 1,
) -> Interactions:
    """Read a log: each user's items in time order, the items as classes, and the columns used.

    Formula: rows are sorted by user (in order of appearance), then by time; rows of equal time, and
    logs without times, keep the order of the file. Repeated interactions stay. First goes what is
    not in the ``core`` (``core_of``), then items seen fewer than ``min_count`` times, then
    sequences of fewer than ``min_length``.

    Shapes: see ``Interactions``.

    Cost: the columns in memory, and counting sorts: O(T) if users' rows are in time order;
    ``benchmarks/interactions.py`` measures it.

    Reference: none.

    Use when: one row is one interaction, or one line a user and his items (``kind="lists"``). A
    column not named is guessed from the usual names (user_id, itemId, timestamp, …), but for the
    goal (booked, bought), which must be named; the files of a folder are read as one table. Avoid
    when: one line is a whole sequence (``read_corpus``).

    Ids are whole numbers or strings in Parquet; elsewhere whole numbers if every one is written
    like one of 64 bits, strings otherwise. Times are numbers, dates, or ISO 8601 text, and become
    seconds since 1970: see ``as_times`` for the units. Goals are true, false or numbers. A missing
    column, a missing or fractional id, a time that is missing or of another unit than the rest is a
    ValueError that names file, column and row (from 1, without the header). Users whose rows were
    not in time order are counted in a warning of the logger ``widemax.data.interactions``.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "log.csv"
    >>> _ = path.write_text("user,item,time\\n7,rum,1\\n8,tea,2\\n7,tea,3\\n")
    >>> read = read_interactions(path, "csv")
    >>> read.vocabulary.decode(read.sequences.sequence(0)), read.sequences.times.tolist()
    (['rum', 'tea'], [1.0, 3.0, 2.0])
    """
    check_whole("core", core, 0, MAX_CORE)
    wanted = Columns(user_column, item_column, time_column, goal_column)
    log = read_log(files_of(path), kind, wanted)
    users, items = log.users(), log.items()
    user_encoder, item_encoder = Encoder(users.dtype), Encoder(items.dtype)
    user_codes, item_codes = user_encoder.encode(users), item_encoder.encode(items)
    times, goals = log.times(), log.goals()
    del users, items
    numbers, per_second = (None, 1.0) if times is None else (times[0].to_numpy(), times[1])
    order, offsets, unsorted = in_time_order(user_codes, len(user_encoder.keys), numbers)
    if unsorted:
        _LOGGER.warning(
            "%s: the rows of %s of %s users were not in time order; sorted by %s",
            path, f"{unsorted:,}", f"{len(offsets) - 1:,}", show(log.columns.time),
        )  # fmt: skip
    raw = Sequences(
        item_codes[order],
        offsets,
        user_encoder.keys,
        None
        if numbers is None
        else torch.from_numpy(seconds_of(numbers[order.numpy()], per_second)),
    )
    sorted_goals = None if goals is None else torch.from_numpy(goals.to_numpy()[order.numpy()])
    if core > 1:
        kept = core_of(raw, core)
        raw, sorted_goals = _left(raw, kept), _kept(sorted_goals, kept)
        min_count = max(min_count, 1)  # what is not in the core is no class
    sequences, vocabulary, left = classes_of(
        raw,
        item_encoder.keys,
        min_count=min_count,
        max_size=max_size,
        unknown=unknown,
        min_length=min_length,
    )
    return Interactions(
        sequences=sequences,
        vocabulary=vocabulary,
        columns=log.columns,
        goals=_kept(sorted_goals, left),
    )


def in_time_order(
    groups: Tensor, num_groups: int, times: NDArray[np.generic] | None
) -> tuple[Tensor, Tensor, int]:
    """Return the order of rows by group, then time; where groups start; how many were unsorted.

    Formula: rows of equal group and time, or without times, keep their order.

    Shapes: groups int64 [T], each in 0 … num_groups − 1; times [T] → int64 [T], [num_groups + 1].

    Cost: see ``grouped`` and ``sort_within``, the kernels.

    Reference: none.

    Use when: writing a reader of interactions. Avoid when: groups are not numbered densely.

    >>> in_time_order(torch.tensor([1, 0, 1]), 2, np.array([5, 2, 3]))[0].tolist()
    [1, 2, 0]
    """
    order, offsets = grouped(groups.numpy(), num_groups)
    unsorted = 0 if times is None else sort_within(order, offsets, times)
    return torch.from_numpy(order), torch.from_numpy(offsets), unsorted


def _left(raw: Sequences, kept: Tensor) -> Sequences:
    """Return what ``raw.kept`` does, without times and values taken one by one."""
    chosen = kept.numpy()
    lengths = part_lengths(chosen.view(np.uint8), raw.offsets.numpy(), 2)[1]
    values = torch.from_numpy(raw.values.numpy()[chosen])
    times = None if raw.times is None else torch.from_numpy(raw.times.numpy()[chosen])
    return Sequences(values, offsets_of(torch.from_numpy(lengths)), raw.names, times)


def _kept(goals: Tensor | None, chosen: Tensor | None) -> Tensor | None:
    return goals if goals is None or chosen is None else goals[chosen]
