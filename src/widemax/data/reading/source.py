"""One door for all raw records: file → table → columns → codes → classes → ``Source``."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import polars as pl
import torch

from widemax.data.reading.files import files_of, partitions_of
from widemax.data.reading.logs import Columns, Log, log_of, scan_log
from widemax.data.reading.numbering import (
    MAX_CORE,
    Coded,
    Limits,
    classes_of,
    left_in_core,
    numbered,
    recoded,
)
from widemax.data.reading.queries import answered
from widemax.data.reading.searches import SearchedLog
from widemax.data.reading.tables import TEXT, check_kind, recognise
from widemax.data.reading.text import read_corpus
from widemax.data.source import Source
from widemax.kernels.data.blocks import at_once
from widemax.kernels.data.grouping import grouped
from widemax.stores.addresses import place_of
from widemax.validation import check_whole
from widemax.vocabulary import Vocabulary
from widemax.vocabulary.spelling import Key, quoted

# Times that lie no further apart than this are kept as 32 bits from the first on.
_NEAR = 2**31

_LOGGER = logging.getLogger(__name__)


def read_source(
    path: str | Path,
    *,
    kind: str | None = None,
    query: str = "",
    user_column: str = "",
    item_column: str = "",
    time_column: str = "",
    goal_column: str = "",
    weight_column: str = "",
    event_column: str = "",
    event_weights: str = "",
    search_column: str = "",
    where: str = "",
    core: int = 0,
    min_count: int = 1,
    max_size: int | None = None,
    unknown: Key | None = None,
    min_length: int = 1,
    tokens: str | None = None,
    end: str | None = None,
    cache: bool = False,
) -> Source:
    """Read text or a log of interactions, whichever it is, as sequences of classes.

    ``path`` is a file, a folder of files of one kind, or a pattern; ``kind`` overrides what
    ``recognise`` finds. Of a database, a DuckDB file or the address of PostgreSQL, ``query`` says
    what is read, one SELECT of SQL: its answer is a log. Of a log, what is not in the ``core`` goes
    first (``core_of``). Then keys seen fewer than ``min_count`` times, or beyond the ``max_size``
    most frequent, go to ``unknown`` or, without it, out of their sequence; then sequences of fewer
    than ``min_length`` go; what is left is counted. ``tokens``, ``end`` and ``cache`` are for
    text only, see ``read_corpus``.

    The columns and ``core`` are for logs only. A row is one interaction, or (``kind="lists"``) a
    line is a user and their items. A column that is not named is guessed from the usual names
    (user_id, itemId, timestamp, …), but for the goal (booked, bought), the weight (a rating),
    the event (view, cart) and what was searched, which must be named. Each word of a search
    becomes an event "search:word" before the item. The weight of a row is what its column says,
    times that of its type of event in ``event_weights``, such as "view=1, cart=3"; types that are
    not listed are left out. ``sequences.weights`` say how much each row counts as a target. Only
    rows are read for which ``where`` holds, a condition of SQL such as "rating >= 4". Rows are
    sorted by user, in order of appearance, then by time; rows of equal time, and logs without
    times, keep the order of the file. Repeated interactions stay. Users whose rows were not in time
    order are counted in a warning of the logger ``widemax.data.reading.source``.

    Ids are whole numbers or strings in Parquet; elsewhere whole numbers if every one is written
    like one of 64 bits, strings otherwise. Times are numbers, dates, or text of these, and become
    seconds since 1970: see ``as_times``. Goals are true, false or numbers. A missing
    column, a missing or fractional id, a time that is missing or of another unit than the rest is a
    ValueError that names file, column and row (from 1, without the header).

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "file"
    >>> _ = path.write_text("who,what,time\\nann,tea,1\\nbob,rum,2\\nann,rum,3\\n")
    >>> source = read_source(path, user_column="who", item_column="what")
    >>> source.vocabulary, source.sequences.names.to_list(), source.sequences.times.tolist()
    (Vocabulary(2 keys, total 3: 'rum' 2, 'tea' 1), ['ann', 'bob'], [1.0, 3.0, 2.0])
    """
    path = place_of(path)
    if kind is None:
        kind = recognise(path)
    check_kind(kind)
    if query and kind == TEXT:
        raise ValueError(f"query is for a database, and {path} is a text")
    if kind != "text":
        for name, value in (("tokens", tokens), ("end", end), ("cache", cache or None)):
            if value is not None:
                raise ValueError(
                    f"{name} is for text, got {quoted(value)} for {path}, which is {kind}: "
                    'kind="text" reads it as sentences'
                )
        check_whole("core", core, 0, MAX_CORE)
        if goal_column and search_column:
            raise ValueError("goal_column and search_column cannot both be read")
        wanted = Columns(
            user_column, item_column, time_column, goal_column, weight_column, event_column,
            search_column,
        )  # fmt: skip
        limits = Limits(min_count, max_size, unknown, min_length)
        if query:
            with answered(path, kind, query) as table:
                log = log_of([(path, table)], wanted, where, event_weights)
                searched = SearchedLog(log) if search_column else log
                return _read_log(path, kind, searched, core, limits)
        files = files_of(path)
        folders = partitions_of(path, files)
        log = scan_log(files, kind, wanted, where, event_weights, folders)
        searched = SearchedLog(log) if search_column else log
        return _read_log(path, kind, searched, core, limits)
    columns = (
        user_column, item_column, time_column, goal_column, weight_column, event_column,
        search_column,
    )  # fmt: skip
    if named := next(filter(None, columns), where):
        raise ValueError(
            f"{path} holds text, which has no column {named!r}: name its format with kind"
        )
    if core:
        raise ValueError(f"core is for logs, got {core!r} for {path}, which holds text")
    sequences, vocabulary = read_corpus(
        path, min_count=min_count, max_size=max_size, unknown=unknown, min_length=min_length,
        tokens=tokens, end=end, cache=cache,
    )  # fmt: skip
    return Source(kind=kind, sequences=sequences, vocabulary=vocabulary)


def _read_log(
    path: str | Path, kind: str, log: Log | SearchedLog, core: int, limits: Limits
) -> Source:
    """Read each user's items in time order.

    The columns are held in memory and sorted by counting, in all of torch's threads: O(T) if users'
    rows are in time order; ``benchmarks/interactions.py`` measures it.
    """
    (user_codes, users), (item_codes, items) = at_once(
        lambda: numbered(log.users()), lambda: numbered(log.items())
    )
    times, goals, weights = log.times(), log.goals(), log.weights()
    given, per_second = (None, 1.0) if times is None else times
    since = None if given is None else _first_of_near(given)
    chunks = None if given is None else [chunk.to_numpy() for chunk in given.get_chunks()]
    # Items move with their times; where goals must move too, the numbers of the rows do.
    more = goals is not None or weights is not None
    marks = np.arange(len(item_codes), dtype=np.int32) if more else item_codes
    codes, numbers, offsets, unsorted = grouped(user_codes, len(users), marks, chunks, since)
    del user_codes, times, given, chunks  # their memory is soon wanted for what comes of them
    order = None
    if more:
        order, codes = torch.from_numpy(codes), item_codes[codes]
    if unsorted:
        _LOGGER.warning(
            "%s: the rows of %s of %s users were not in time order; sorted by %s",
            path, f"{unsorted:,}", f"{len(offsets) - 1:,}", quoted(log.columns.time),
        )  # fmt: skip
    left = None
    if core > 1:
        left = left_in_core(codes, offsets, len(items), core)
        limits = limits._replace(min_count=max(limits.min_count, 1))  # the rest is no class
    sequences, vocabulary, left_rows = classes_of(
        Coded(codes, offsets, users, numbers, per_second, since or 0),
        items,
        limits,
        core=left,
        beside=order,
    )
    left_goals, left_weights = (
        None if each is None else torch.from_numpy(np.atleast_1d(each.to_numpy()[left_rows]))
        for each in (goals, weights)
    )
    if left_weights is not None:
        sequences = sequences.weighed_by(left_weights)
    return Source(
        kind=kind,
        sequences=sequences,
        vocabulary=vocabulary,
        columns=log.columns,
        goals=left_goals,
    )


def _first_of_near(times: pl.Series) -> int | None:
    """Return the first of whole times that all lie near to it, else None."""
    if not times.dtype.is_integer():
        return None
    first = cast(int, times.min())
    return first if cast(int, times.max()) - first < _NEAR else None


def encoded_again(source: Source, vocabulary: Vocabulary) -> Source:
    """Return a source with the classes of another vocabulary, and no others.

    A key that has no class there becomes the unknown key, or without one is left out, and with it
    its time and goal; a sequence of which nothing is left goes too.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "log"
    >>> _ = path.write_text("u7 i31\\nu7 i12\\nu8 i31\\n")
    >>> encoded_again(read_source(path), Vocabulary.count(["i31"])).sequences.lengths.tolist()
    [1, 1]
    """
    class_of = vocabulary.encode(source.vocabulary.keys, missing="mark")
    sequences, kept = recoded(source.sequences, class_of)
    rows = (sequences.lengths > 0).nonzero()[:, 0]
    if not len(rows):
        raise ValueError(f"the source has none of the {len(vocabulary):,} keys in it")
    goals, parts = (None if each is None else each[kept] for each in (source.goals, source.parts))
    sequences = sequences.chosen(rows).numbered_by(vocabulary)
    return replace(source, sequences=sequences, vocabulary=vocabulary, goals=goals, parts=parts)
