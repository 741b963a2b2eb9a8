"""Logs as they lie in files: which columns say who, what, when, and whether it was the goal."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, fields
from pathlib import Path

import polars as pl

from widemax.data.reading.columns import Fault, as_flags, as_ids, as_times
from widemax.data.reading.tables import ITEM, TIME, USER, TableKind, reading, scan_table
from widemax.vocabulary.keys import quoted

GOAL = "goal"

_MOST_LISTED = 20

# Without case and punctuation, the likelier ones first. A goal is never guessed.
_GUESSES = {
    USER: "userid user uid customerid customer memberid visitorid reviewerid sessionid session",
    ITEM: "itemid item iid productid product parentasin asin movieid trackid songid artistid "
    "bookid isbn businessid articleid newsid videoid sku",
    TIME: "timestamp time ts datetime date unixreviewtime eventtime createdat",
    GOAL: "",
}


@dataclass(frozen=True)
class Columns:
    """The names of the columns of a log: who, what, when, and whether it was the goal.

    Formula: without a time ("") the order of the rows is the order in time.

    Shapes: none.

    Cost: none.

    Reference: none.

    Use when: asking which columns a reader guessed. Avoid when: naming them for a reader, which
    takes them as arguments.

    >>> Columns("user_id", "item_id")
    Columns(user='user_id', item='item_id', time='', goal='')
    """

    user: str
    item: str
    time: str = ""
    goal: str = ""


@dataclass(frozen=True, eq=False)
class Log:
    """The columns of all files of a log, end to end, and where each file starts.

    Formula: row r is row r − starts[f] of the last file f with starts[f] ≤ r.

    Shapes: the ``parts`` have T rows together; they are as many as ``files`` and ``starts``.

    Cost: each method reads one column of Parquet anew, so that they need not stand in memory at
    once; of other formats the columns are held as they were read.

    Reference: none.

    Use when: writing a reader of interactions. Avoid when: ``read_interactions`` is enough.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "log"
    >>> _ = path.write_text("user,item\\n7,tea\\n7,rum\\n")
    >>> read_log([path], "csv", Columns("", "")).users().to_list()
    [7, 7]
    """

    parts: list[pl.LazyFrame]
    columns: Columns
    from_text: bool
    files: list[Path]
    starts: list[int]

    def users(self) -> pl.Series:
        """Return who chose, strings or int64."""
        return self._ids(self.columns.user)

    def items(self) -> pl.Series:
        """Return what was chosen, strings or int64."""
        return self._ids(self.columns.item)

    def times(self) -> tuple[pl.Series, float] | None:
        """Return when, as numbers, and how many of them make a second; None without times."""
        column = self.columns.time
        return as_times(self._column(column), self._fault_in(column)) if column else None

    def goals(self) -> pl.Series | None:
        """Return where the goal was reached, as booleans; None if no column says it."""
        column = self.columns.goal
        return as_flags(self._column(column), self._fault_in(column)) if column else None

    def _ids(self, column: str) -> pl.Series:
        return as_ids(self._column(column), self._fault_in(column), from_text=self.from_text)

    def _column(self, name: str) -> pl.Series:
        columns = []
        for path, part in zip(self.files, self.parts, strict=True):
            with reading(path):
                columns.append(part.select(name).collect()[name])
        return pl.concat(columns)

    def _fault_in(self, column: str) -> Fault:
        def fault(row: int, message: str) -> ValueError:
            place = bisect_right(self.starts, row) - 1
            row_of_file = row - self.starts[place] + 1
            return ValueError(
                f"{self.files[place]}, column {column}, row {row_of_file:,}: {message}"
            )

        return fault


def read_log(files: list[Path], kind: TableKind, wanted: Columns) -> Log:
    """Find the wanted columns of all files; a name that is "" is guessed from the usual ones.

    Formula: none.

    Shapes: see ``Log``.

    Cost: of Parquet no column is read yet, of the other formats everything.

    Reference: none.

    Use when: writing a reader of interactions. Avoid when: ``read_interactions`` is enough.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "log"
    >>> _ = path.write_text("user_id,rating,movieId\\n7,5,31\\n")
    >>> read_log([path], "csv", Columns("", "")).columns.item
    'movieId'
    """
    parts: list[pl.LazyFrame] = []
    columns, starts = wanted, [0]
    for path in files:
        part, columns, height = _read_part(path, kind, columns)
        schema = part.collect_schema()
        if parts and schema != (first := parts[0].collect_schema()):
            raise ValueError(
                f"{path}: the columns are {_listed_types(schema)}, "
                f"but {_listed_types(first)} in {files[0]}"
            )
        parts.append(part)
        starts.append(starts[-1] + height)
    return Log(parts, columns, kind != "parquet", files, starts[:-1])


def _read_part(path: Path, kind: TableKind, wanted: Columns) -> tuple[pl.LazyFrame, Columns, int]:
    """Return the wanted columns of a file, their names where they were guessed, and its height."""
    lazy = scan_table(path, kind)
    with reading(path):
        there = lazy.collect_schema().names()
    columns = Columns(*(_named(role, wanted, there, path) for role in _GUESSES))
    names = [getattr(columns, field.name) for field in fields(columns)]
    names = [name for name in names if name]
    if len(set(names)) < len(names):
        raise ValueError(
            f"{path}: user, item, time and goal must be different columns, got {names}"
        )
    part = lazy.select(names)
    with reading(path):
        if kind != "parquet":
            part = part.collect().lazy()  # without the other columns, which were read too
        height = part.select(pl.len()).collect().item()
    if not height:
        raise ValueError(f"{path} is empty: it has the columns {_listed(there)}, but no row")
    return part, columns, height


def _named(role: str, wanted: Columns, there: list[str], path: Path) -> str:
    """Return the column given for a role if it is there, or a guess; time and goal may be none."""
    given: str = getattr(wanted, role)
    if given:
        if given not in there:
            raise ValueError(f"{path} has no column {given!r}: there are {_listed(there)}")
        return given
    by_plain_name = {_plain(name): name for name in reversed(there)}
    for guess in _GUESSES[role].split():
        if guess in by_plain_name:
            return by_plain_name[guess]
    if role in (TIME, GOAL):
        return ""
    raise ValueError(
        f"{path} has no column that looks like the {role}: there are {_listed(there)}; "
        f'name one with {role}_column, or read it with kind="text"'
    )


def _plain(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def _listed(names: list[str]) -> str:
    return ", ".join(map(quoted, names[:_MOST_LISTED])) + (
        ", …" if len(names) > _MOST_LISTED else ""
    )


def _listed_types(schema: pl.Schema) -> str:
    return ", ".join(f"{quoted(name)} {dtype}" for name, dtype in schema.items())
