"""Who chose what, and when: from a table of interactions to one sequence for each user."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from widemax.data.reading.classes import Coded, classes_of
from widemax.data.reading.core import MAX_CORE, left_in_core
from widemax.data.reading.encoding import Encoder
from widemax.data.reading.inputs import files_of
from widemax.data.reading.logs import Columns, read_log
from widemax.data.reading.tables import TableKind
from widemax.data.sequences import Sequences
from widemax.kernels.data.blocks import at_once
from widemax.kernels.data.grouping import MAX_ROWS, grouped
from widemax.validation import check_whole
from widemax.vocabulary import Vocabulary
from widemax.vocabulary.keys import Key, quoted

# Times that lie no further apart than this are kept as 32 bits from the first on.
_NEAR = 2**31

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

    Cost: the columns in memory, and counting sorts in all of torch's threads: O(T) if users' rows
    are in time order; ``benchmarks/interactions.py`` measures it.

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
    not in time order are counted in a warning of the logger ``widemax.data.reading.interactions``.

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
    (user_codes, users), (item_codes, items) = at_once(
        lambda: _numbered(log.users), lambda: _numbered(log.items)
    )
    times, goals = log.times(), log.goals()
    given, per_second = (None, 1.0) if times is None else times
    since = None if given is None else _first_of_near(given)
    chunks = None if given is None else [chunk.to_numpy() for chunk in given.get_chunks()]
    # Items move with their times; whoever has more to move moves the numbers of the rows.
    marks = item_codes if goals is None else _row_numbers(len(item_codes))
    codes, numbers, offsets, unsorted = grouped(user_codes, len(users), marks, chunks, since)
    del user_codes, times, given, chunks  # their memory is soon wanted for what comes of them
    sorted_goals = None
    if goals is not None:
        sorted_goals = torch.from_numpy(goals.to_numpy()[codes])
        codes = item_codes[codes]
    if unsorted:
        _LOGGER.warning(
            "%s: the rows of %s of %s users were not in time order; sorted by %s",
            path, f"{unsorted:,}", f"{len(offsets) - 1:,}", quoted(log.columns.time),
        )  # fmt: skip
    left = None
    if core > 1:
        left = left_in_core(codes, offsets, len(items), core)
        min_count = max(min_count, 1)  # what is not in the core is no class
    sequences, vocabulary, left_goals = classes_of(
        Coded(codes, offsets, users, numbers, per_second, since or 0),
        items,
        core=left,
        beside=sorted_goals,
        min_count=min_count,
        max_size=max_size,
        unknown=unknown,
        min_length=min_length,
    )
    return Interactions(
        sequences=sequences,
        vocabulary=vocabulary,
        columns=log.columns,
        goals=left_goals,
    )


def _numbered(column: Callable[[], pl.Series]) -> tuple[NDArray[np.int32], pl.Series]:
    """Return the codes of a column of ids, which is not held for longer, and the key of each."""
    ids = column()
    encoder = Encoder(ids.dtype)
    return encoder.encode(ids).numpy(), encoder.keys


def _first_of_near(times: pl.Series) -> int | None:
    """Return the first of whole times that all lie near to it, else None."""
    if not times.dtype.is_integer():
        return None
    first = cast(int, times.min())
    return first if cast(int, times.max()) - first < _NEAR else None


def in_time_order(
    groups: Tensor, num_groups: int, times: NDArray[np.generic] | None
) -> tuple[Tensor, Tensor, int]:
    """Return the order of rows by group, then time; where groups start; how many were unsorted.

    Formula: rows of equal group and time, or without times, keep their order.

    Shapes: groups [T], each in 0 … num_groups − 1; times [T] → int32 [T], int64 [num_groups + 1].

    Cost: see ``grouped``, the kernel.

    Reference: none.

    Use when: writing a reader of interactions. Avoid when: groups are not numbered densely.

    >>> in_time_order(torch.tensor([1, 0, 1]), 2, np.array([5, 2, 3]))[0].tolist()
    [1, 2, 0]
    """
    check_whole("num_groups", num_groups, 0, MAX_ROWS)
    rows = _row_numbers(len(groups))
    order, _, offsets, unsorted = grouped(groups.int().numpy(), num_groups, rows, times)
    return torch.from_numpy(order).contiguous(), torch.from_numpy(offsets), unsorted


def _row_numbers(count: int) -> NDArray[np.int32]:
    return np.arange(count, dtype=np.int32)
