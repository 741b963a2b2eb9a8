"""Who chose what, and when: from a table of interactions to one sequence for each user."""

from __future__ import annotations

import logging
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import torch

from widemax.data.columns import Fault, as_ids, as_sortable
from widemax.data.encoding import Encoder, to_classes
from widemax.data.inputs import files_of
from widemax.data.sequences import Sequences
from widemax.data.tables import ITEM, TIME, USER, TableKind, reading, scan_table
from widemax.keys import Key, show
from widemax.vocabulary import Vocabulary

_LOGGER = logging.getLogger(__name__)

_MOST_LISTED = 20

# Without case and punctuation, the likelier ones first.
_GUESSES = {
    USER: "userid user uid customerid customer memberid visitorid reviewerid sessionid session",
    ITEM: "itemid item iid productid product parentasin asin movieid trackid songid artistid "
    "bookid isbn businessid articleid newsid videoid sku",
    TIME: "timestamp time ts datetime date unixreviewtime eventtime createdat",
}


@dataclass(frozen=True)
class Columns:
    """The names of the columns of a log: who, what and when.

    Formula: without a time ("") the order of the rows is the order in time.

    Shapes: none.

    Cost: none.

    Reference: none.

    Use when: asking which columns a reader guessed. Avoid when: naming them for a reader, which
    takes them as arguments.

    >>> Columns("user_id", "item_id")
    Columns(user='user_id', item='item_id', time='')
    """

    user: str
    item: str
    time: str = ""


def read_interactions(
    path: str | Path,
    kind: TableKind,
    *,
    user_column: str = "",
    item_column: str = "",
    time_column: str = "",
    min_count: int = 1,
    max_size: int | None = None,
    unknown: Key | None = None,
    min_length: int = 1,
) -> tuple[Sequences, Vocabulary, Columns]:
    """Read a log: each user's items in time order, the items as classes, and the columns used.

    Formula: rows are sorted by user (in order of appearance), then by time; rows of equal time, and
    logs without times, keep the order of the file. Repeated interactions stay. Items seen fewer
    than ``min_count`` times are dropped, then sequences of fewer than ``min_length``.

    Shapes: ``sequences.names`` holds the users.

    Cost: the three columns in memory, and a sort. 20 million rows of CSV take about half a minute.

    Reference: none.

    Use when: one row is one interaction. A column not named is guessed from the usual names
    (user_id, itemId, timestamp, …); the files of a folder are read as one table. Avoid when: one
    line is a whole sequence (``read_corpus``).

    Ids are whole numbers or strings in Parquet; elsewhere whole numbers if every one is written
    like one of 64 bits, strings otherwise. Times are numbers, dates, or ISO 8601 text. A missing
    column, a missing or fractional id, a time that is missing or of another unit than the rest is a
    ValueError that names file, column and row (from 1, without the header). Users whose rows were
    not in time order are counted in a warning of the logger ``widemax.data.interactions``.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "log.csv"
    >>> _ = path.write_text("user,item,time\\n7,rum,1\\n8,tea,2\\n7,tea,3\\n")
    >>> sequences, vocabulary, columns = read_interactions(path, "csv")
    >>> vocabulary.decode(sequences.sequence(0)), sequences.names.to_list(), columns.time
    (['rum', 'tea'], [7, 8], 'time')
    """
    wanted = Columns(user_column, item_column, time_column)
    log = _read_log(files_of(path), kind, wanted)
    users, items = log.ids(log.columns.user), log.ids(log.columns.item)
    user_encoder, item_encoder = Encoder(users.dtype), Encoder(items.dtype)
    frame = pl.DataFrame({USER: user_encoder.encode(users), ITEM: item_encoder.encode(items)})
    if log.columns.time:
        frame = frame.with_columns(log.times().alias(TIME))
        _say_if_unsorted(frame, path, log.columns.time)
    frame = frame.sort([name for name in (USER, TIME) if name in frame], maintain_order=True)
    sequences, vocabulary = to_classes(
        frame[ITEM].to_torch(),
        item_encoder.keys,
        torch.bincount(frame[USER].to_torch()),
        names=user_encoder.keys,
        min_count=min_count,
        max_size=max_size,
        unknown=unknown,
        min_length=min_length,
    )
    return sequences, vocabulary, log.columns


@dataclass(frozen=True)
class _Log:
    """The columns of all files, end to end, and where each file starts."""

    table: pl.DataFrame
    columns: Columns
    from_text: bool
    files: list[Path]
    starts: list[int]

    def ids(self, column: str) -> pl.Series:
        return as_ids(self.table[column], self._fault_in(column), from_text=self.from_text)

    def times(self) -> pl.Series:
        column = self.columns.time
        return as_sortable(self.table[column], self._fault_in(column))

    def _fault_in(self, column: str) -> Fault:
        def fault(row: int, message: str) -> ValueError:
            place = bisect_right(self.starts, row) - 1
            row_of_file = row - self.starts[place] + 1
            return ValueError(
                f"{self.files[place]}, column {column}, row {row_of_file:,}: {message}"
            )

        return fault


def _read_log(files: list[Path], kind: TableKind, wanted: Columns) -> _Log:
    parts: list[pl.DataFrame] = []
    columns = wanted
    for path in files:
        part, columns = _read_part(path, kind, columns)
        if parts and part.schema != parts[0].schema:
            raise ValueError(
                f"{path}: the columns are {_schema(part)}, but {_schema(parts[0])} in {files[0]}"
            )
        parts.append(part)
    starts = [0]
    for part in parts[:-1]:
        starts.append(starts[-1] + part.height)
    return _Log(pl.concat(parts), columns, kind != "parquet", files, starts)


def _read_part(path: Path, kind: TableKind, wanted: Columns) -> tuple[pl.DataFrame, Columns]:
    """Return the wanted columns of one file, and their names where they had to be guessed."""
    lazy = scan_table(path, kind)
    with reading(path):
        there = lazy.collect_schema().names()
    columns = Columns(
        _named(wanted.user, USER, there, path),
        _named(wanted.item, ITEM, there, path),
        _named(wanted.time, TIME, there, path),
    )
    names = [name for name in (columns.user, columns.item, columns.time) if name]
    if len(set(names)) < len(names):
        raise ValueError(f"{path}: user, item and time must be different columns, got {names}")
    with reading(path):
        part = lazy.select(names).collect()
    if part.is_empty():
        raise ValueError(f"{path} is empty: it has the columns {_listed(there)}, but no row")
    return part, columns


def _named(given: str, role: str, there: list[str], path: Path) -> str:
    """Return the column given for a role if it is there, or a guess; a time may be missing."""
    if given:
        if given not in there:
            raise ValueError(f"{path} has no column {given!r}: there are {_listed(there)}")
        return given
    by_plain_name = {_plain(name): name for name in reversed(there)}
    for guess in _GUESSES[role].split():
        if guess in by_plain_name:
            return by_plain_name[guess]
    if role == TIME:
        return ""
    raise ValueError(
        f"{path} has no column that looks like the {role}: there are {_listed(there)}; "
        f'name one with {role}_column, or read it with kind="text"'
    )


def _plain(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def _listed(names: list[str]) -> str:
    return ", ".join(map(show, names[:_MOST_LISTED])) + (", …" if len(names) > _MOST_LISTED else "")


def _schema(table: pl.DataFrame) -> str:
    return ", ".join(f"{show(name)} {dtype}" for name, dtype in table.schema.items())


def _say_if_unsorted(frame: pl.DataFrame, path: str | Path, column: str) -> None:
    by_user = frame.sort(USER, maintain_order=True)
    back = (by_user[TIME] < by_user[TIME].shift()) & (by_user[USER] == by_user[USER].shift())
    if back.any():
        users = by_user.filter(back)[USER].n_unique()
        _LOGGER.warning(
            "%s: the rows of %s of %s users were not in time order; sorted by %s",
            path, f"{users:,}", f"{by_user[USER].n_unique():,}", show(column),
        )  # fmt: skip
