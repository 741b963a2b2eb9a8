"""Logs as they lie in files: which columns say who, what, when, and how much it counts."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import asdict, astuple, dataclass, field, replace
from pathlib import Path

import polars as pl

from widemax.data.reading.columns import (
    MISSING_ID,
    MISSING_TIME,
    Fault,
    as_flags,
    as_ids,
    as_times,
    as_weights,
    listed,
    parse_event_weights,
)
from widemax.data.reading.conditions import rows_where, without_missing
from widemax.data.reading.formats import USUAL_NAMES, plain_name
from widemax.data.reading.tables import format_of, scan_table, table_errors
from widemax.data.reading.time_columns import guessed_time
from widemax.vocabulary.spelling import quoted

# Never guessed: what is to be a goal, a weight, an event or a search must be said.
_GUESSES = {**USUAL_NAMES, "goal": "", "weight": "", "event": "", "search": ""}
_NEEDED = ("user", "item")
_MAY_COUNT = "rating stars score weight plays playcount event eventtype action"
"""What columns are usually called by which some rows count more than others, or not at all."""

_LOGGER = logging.getLogger(__name__)


class NoRowError(ValueError):
    """A file has no row for which a condition holds."""


class NoColumnError(ValueError):
    """A file has no column that looks like the users or the items; ``what`` says so alone."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}; {remedy}")
        self.what = what
        """What is missing and what is there, without what to do about it."""


@dataclass(frozen=True)
class Columns:
    """The names of the columns of a log.

    >>> Columns("user_id", "item_id")
    Columns(user='user_id', item='item_id', time='', goal='', weight='', event='', search='')
    """

    user: str
    """Who chose."""
    item: str
    """What was chosen."""
    time: str = ""
    """When; without it the order of the rows is the order in time."""
    goal: str = ""
    """Whether it was the goal, such as a booking among clicks."""
    weight: str = ""
    """How much it counts, such as a rating or the number of plays."""
    event: str = ""
    """What was done, such as a view or a purchase; ``event_weights`` say how much each counts."""
    search: str = ""
    """What the user typed before."""


@dataclass(frozen=True, eq=False)
class Log:
    """The columns of all files of a log, end to end.

    Each method reads one column of Parquet again, so that they need not be in memory at once; of
    other formats the columns are held as they were read.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "log"
    >>> _ = path.write_text("user,item\\n7,tea\\n7,rum\\n")
    >>> scan_log([path], "csv", Columns("", "")).users().to_list()
    [7, 7]
    """

    parts: list[pl.LazyFrame]
    """The columns of each file, or of the answer of a database."""
    columns: Columns
    """What they are called."""
    from_text: bool
    """Whether they are strings, whatever they stand for."""
    files: list[Path | str]
    """Where they are from, as many as parts."""
    starts: list[int]
    """The row of the whole log at which each file starts."""
    event_weights: Mapping[str, float] = field(default_factory=dict)
    """How much each type of event counts."""
    where: str = ""
    """The condition that held for all rows."""

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

    def weights(self) -> pl.Series | None:
        """Return how much each row counts, float64; None if nothing says it."""
        of_row = None
        if column := self.columns.weight:
            of_row = as_weights(self._column(column), self._fault_in(column))
        if not (column := self.columns.event):
            return of_row
        types = self._column(column).cast(pl.String)
        of_type = types.replace_strict(self.event_weights, return_dtype=pl.Float64)
        return of_type if of_row is None else of_type * of_row

    def searches(self) -> pl.Series | None:
        """Return what was typed before each choice, as strings; None if no column says it."""
        column = self.columns.search
        return self._column(column).cast(pl.String) if column else None

    def _ids(self, column: str) -> pl.Series:
        return as_ids(self._column(column), self._fault_in(column), from_text=self.from_text)

    def _column(self, name: str) -> pl.Series:
        columns = []
        for path, part in zip(self.files, self.parts, strict=True):
            with table_errors(path):
                columns.append(part.select(name).collect()[name])
        return pl.concat(columns)

    def _fault_in(self, column: str) -> Fault:
        def fault(row: int, message: str) -> ValueError:
            place = bisect_right(self.starts, row) - 1
            row_of_file = row - self.starts[place] + 1
            # What else is missing is said at once: each reading of a log takes its time.
            more = f"; {self._missing()}" if message in (MISSING_ID, MISSING_TIME) else ""
            return ValueError(
                f"{self.files[place]}, column {column}, row {row_of_file:,}: {message}{more}"
            )

        return fault

    def _missing(self) -> str:
        needed = (self.columns.user, self.columns.item, self.columns.time)
        return without_missing([self._column(name) for name in needed if name], self.where)


def scan_log(
    files: list[Path],
    kind: str,
    wanted: Columns,
    where: str = "",
    event_weights: str = "",
    partitions: list[dict[str, str | None]] | None = None,
) -> Log:
    """Find the wanted columns of all files; a name that is "" is guessed from the usual ones.

    Of Parquet no column is read yet, of the other formats everything. ``where`` keeps the rows for
    which a condition of SQL on any column holds, such as ``rating >= 4 AND event = 'buy'``. Where
    there is a column of events, rows of other types than ``event_weights`` lists (view=1, cart=3)
    are left out; a warning of this logger counts them. ``partitions`` are columns that the folders
    of each file hold; a column of that name in the file itself goes first.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "log"
    >>> _ = path.write_text("user_id,rating,movieId\\n7,5,31\\n")
    >>> scan_log([path], "csv", Columns("", "")).columns.item
    'movieId'
    """
    typed = format_of(kind).typed
    folders = [{} for _ in files] if partitions is None else _with_types(partitions, typed=typed)
    tables = (
        (path, _with_folders(path, scan_table(path, kind), folder))
        for path, folder in zip(files, folders, strict=True)
    )
    skip = partitions is not None
    return log_of(tables, wanted, where, event_weights, typed=typed, skip_empty=skip)


def _with_types(
    partitions: list[dict[str, str | None]], *, typed: bool
) -> list[dict[str, pl.Series]]:
    """Return the values of folders as columns; of a typed format whole numbers, where all are."""
    columns = {}
    for name in partitions[0] if partitions else ():
        values = pl.Series(name, [each[name] for each in partitions], dtype=pl.String)
        numbers = values.cast(pl.Int64, strict=False)
        whole = typed and numbers.null_count() == values.null_count() < len(values)
        columns[name] = numbers if whole else values
    return [
        {name: column[place : place + 1] for name, column in columns.items()}
        for place in range(len(partitions))
    ]


def _with_folders(path: Path, table: pl.LazyFrame, folder: Mapping[str, pl.Series]) -> pl.LazyFrame:
    if not folder:
        return table
    with table_errors(path):
        there = table.collect_schema().names()
    return table.with_columns(
        pl.lit(values.item(), dtype=values.dtype).alias(name)
        for name, values in folder.items()
        if name not in there
    )


def log_of(
    tables: Iterable[tuple[Path | str, pl.LazyFrame]],
    wanted: Columns,
    where: str = "",
    event_weights: str = "",
    *,
    typed: bool = True,
    skip_empty: bool = False,
) -> Log:
    """Find the wanted columns of tables, each with where it is from, as ``scan_log`` does.

    With ``skip_empty`` a table without a row for which ``where`` holds is left out, if another one
    has some.

    >>> table = pl.DataFrame({"user_id": [7], "rating": [5], "movieId": [31]}).lazy()
    >>> log_of([("postgresql:///films", table)], Columns("", ""), "rating > 4").items().to_list()
    [31]
    """
    if bool(wanted.event) != bool(event_weights):
        missing = "event_weights, such as view=1, cart=3" if wanted.event else "event_column"
        raise ValueError(f"a type of event counts by its column and its weight: give {missing} too")
    weights = parse_event_weights(event_weights) if event_weights else {}
    parts: list[pl.LazyFrame] = []
    files: list[Path | str] = []
    columns, starts, counts = wanted, [0], list[pl.DataFrame]()
    left_out: NoRowError | None = None
    for path, table in tables:
        try:
            part, columns = _scan_part(path, table, columns, where, typed=typed, first=not parts)
        except NoRowError as error:
            # Of a folder of parts a condition may leave some alone.
            if not skip_empty:
                raise
            left_out = left_out or error
            continue
        if columns.event:
            with table_errors(path):
                part, counted = _of_events(part, columns.event, weights, path)
            counts.append(counted)
        with table_errors(path):
            height = part.select(pl.len()).collect().item()
        if parts and part.collect_schema() != parts[0].collect_schema():
            schemas = (part.collect_schema(), parts[0].collect_schema())
            types, first_types = (
                ", ".join(f"{quoted(name)} {dtype}" for name, dtype in schema.items())
                for schema in schemas
            )
            raise ValueError(f"{path}: the columns are {types}, but {first_types} in {files[0]}")
        parts.append(part)
        files.append(path)
        starts.append(starts[-1] + height)
    if left_out is not None and not parts:
        raise left_out
    if columns.event:
        _say_what_is_left_out(pl.concat(counts), weights)
    return Log(parts, columns, not typed, files, starts[:-1], weights, where)


def _of_events(
    part: pl.LazyFrame, column: str, weights: Mapping[str, float], path: Path | str
) -> tuple[pl.LazyFrame, pl.DataFrame]:
    """Return the rows whose type has a weight, and how many rows each type has."""
    typed = pl.col(column).cast(pl.String)
    counted = part.group_by(typed.alias("type")).len().collect()
    if not counted["type"].is_in([*weights]).any():
        raise ValueError(
            f"{path}, column {column}: no row is of a type that event_weights lists: there are "
            f"{listed(counted['type'].drop_nulls().sort().to_list())}"
        )
    return part.filter(typed.is_in([*weights])), counted


def _say_what_is_left_out(counted: pl.DataFrame, weights: Mapping[str, float]) -> None:
    others = counted.filter(~pl.col("type").is_in([*weights]).fill_null(False))
    if len(others):
        _LOGGER.warning(
            "%s of %s rows are left out: event_weights does not list %s",
            f"{others['len'].sum():,}", f"{counted['len'].sum():,}",
            listed(others["type"].fill_null("").unique().sort().to_list()),
        )  # fmt: skip
    if absent := [each for each in weights if each not in counted["type"]]:
        _LOGGER.warning("event_weights lists %s, which no row has", listed(absent))


def _scan_part(
    path: Path | str,
    table: pl.LazyFrame,
    wanted: Columns,
    where: str,
    *,
    typed: bool,
    first: bool,
) -> tuple[pl.LazyFrame, Columns]:
    """Return the wanted columns of a table, and their names where they were guessed.

    Times are looked for by their values in the ``first`` table alone: others are to be like it.
    """
    with table_errors(path):
        there = table.collect_schema().names()
    columns = Columns(*(_named(role, wanted, there, path) for role in _GUESSES))
    if where:
        ids = (columns.user, columns.item)
        table = rows_where(table, where, path, ids=ids, typed=typed)
    elif first:
        _say_what_may_count(path, there, columns)
    if first and not columns.time:
        with table_errors(path):
            columns = replace(columns, time=guessed_time(table, astuple(columns), path))
    roles: dict[str, list[str]] = {}
    for role, name in asdict(columns).items():
        if name:
            roles.setdefault(name, []).append(role)
    for name, several in roles.items():
        if len(several) > 1:
            raise ValueError(
                f"{path}: {' and '.join(several)} must be different columns, got {name!r} for both"
            )
    names = [*roles]
    part = table.select(names)
    with table_errors(path):
        if not typed:
            part = part.collect().lazy()  # without the other columns, which were read too
        height = part.select(pl.len()).collect().item()
    if not height and where:
        raise NoRowError(f"{path} has no row for which {where} holds")
    if not height:
        raise ValueError(f"{path} is empty: it has the columns {listed(there)}, but no row")
    return part, columns


def _say_what_may_count(path: Path | str, there: list[str], columns: Columns) -> None:
    """Say which columns are not read that would have rows count more, less or not at all."""
    may_count = [name for name in there if plain_name(name) in _MAY_COUNT.split()]
    if may_count and not set(may_count) & set(astuple(columns)):
        _LOGGER.warning(
            "%s: every row counts the same; not read: %s (where, weight_column or event_column "
            "would)",
            path, listed(may_count),
        )  # fmt: skip


def _named(role: str, wanted: Columns, there: list[str], path: Path | str) -> str:
    """Return the column given for a role if it is there, or a guess; but for who and what, ""."""
    given: str = getattr(wanted, role)
    if given:
        if given not in there:
            raise ValueError(f"{path} has no column {given!r}: there are {listed(there)}")
        return given
    found = _guessed(role, there)
    if found or role not in _NEEDED:
        return found
    # All that is missing at once: who names one column is not to be asked for the next.
    missing = [each for each in _NEEDED if not getattr(wanted, each) and not _guessed(each, there)]
    settings = " and ".join(f"{each}_column" for each in missing)
    flags = " ".join(f"--{each}-column NAME" for each in missing)
    them = "one" if len(missing) == 1 else "them"
    raise NoColumnError(
        f"{path} has no column that looks like the {' or the '.join(missing)}: there are "
        f"{listed(there)}",
        f"name {them} with {settings} ({flags}), or read it as a text (--kind text)",
    )


def _guessed(role: str, there: list[str]) -> str:
    """Return the column that has the likeliest of the usual names of a role; "" if none has."""
    plain_names = {plain_name(name): name for name in reversed(there)}
    known = (plain_names[guess] for guess in _GUESSES[role].split() if guess in plain_names)
    return next(known, "")
