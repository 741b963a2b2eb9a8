"""Searching vectors in PostgreSQL: by the index, and exactly where it finds too few."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from widemax.filters import Filters
from widemax.limits import check_positive, check_whole
from widemax.stores.addresses import PostgresAddress
from widemax.stores.conditions import conditions_of
from widemax.stores.manifest import FORMAT_VERSION, MANIFEST_TABLE, StoreManifest
from widemax.stores.postgres import (
    check_table_name,
    connected,
    database_errors,
    driver,
    use_vectors,
)
from widemax.vocabulary.spelling import Key

VECTOR, POINT = "vector", "point"
"""The columns that ``similar`` and ``recommend`` search."""

DEFAULT_TABLE = "widemax_items"

_OPERATORS = {VECTOR: "<=>", POINT: "<#>"}
_ALL_TUPLES = 2**31 - 1
_LOST = ("08", "57P")
"""How the codes begin of a connection that is lost, or of a server that is going down."""
_SPARE = 4
"""How many times as many rows are taken as are wanted where conditions leave some out."""

Array = NDArray[np.float32]
_T = TypeVar("_T")


class FoundItem(NamedTuple):
    """An item that a search found."""

    id: int
    """Its class."""
    key: Key
    """What the log calls it."""
    title: str
    """What people call it; may be empty."""
    score: float
    """The cosine, or the product with the query."""


class OtherTableError(ValueError):
    """A table is not what a run would write, or no longer that which was opened."""


class VectorStore:
    """The items of a run in PostgreSQL, open to be searched; threads may share one.

    Searches go by the index, further until ``k`` items are found that filters let through; where
    the index has no more, all rows are compared. Give it back with ``close``. A query may take
    ``seconds``; by default as long as the server lets it.
    """

    def __init__(
        self, address: str, table: str = DEFAULT_TABLE, seconds: float | None = None
    ) -> None:
        self.address = PostgresAddress(address)
        self._seconds = None if seconds is None else check_positive("seconds", seconds)
        schema, name = check_table_name(table)
        sql = driver("sql")
        within = [schema] if schema else []
        self._table = sql.Identifier(*within, name)
        self._manifests = sql.Identifier(*within, MANIFEST_TABLE)
        self._name = name
        self._lock = threading.Lock()
        self._connection: Any = None
        with database_errors(self.address):
            self._connection, self.manifest, self._oid = self._open()

    def _open(self) -> tuple[Any, StoreManifest, int]:
        """Return a new connection, and what it finds; it may be lost before it is ready."""
        try:
            return self._open_once()
        except driver().OperationalError as error:
            if not _is_lost(error):
                raise
            return self._open_once()

    def _open_once(self) -> tuple[Any, StoreManifest, int]:
        connection = connected(self.address, autocommit=True)
        try:
            connection.read_only = True
            if self._seconds is not None:
                milliseconds = str(min(2**31 - 1, max(1, round(1000 * self._seconds))))
                set_option(connection, "statement_timeout", milliseconds)
            manifest, oid = self._read_manifest(connection)
            use_vectors(connection, self.address)
            set_breadth(connection, manifest.search_breadth)
        except BaseException:
            connection.close()
            raise
        return connection, manifest, oid

    def _read_manifest(self, connection: Any) -> tuple[StoreManifest, int]:
        """Return what is said of the table, and by what the server knows it."""
        sql = driver("sql")
        errors = driver("errors")
        command = sql.SQL(
            "select format, content, %s::text::regclass::oid from {} where table_name = %s"
        )
        table = self._table.as_string(connection)
        try:
            row = connection.execute(
                command.format(self._manifests), [table, self._name]
            ).fetchone()
        except errors.UndefinedTable:
            row = None
        if row is None:
            raise ValueError(f"{self.address} has no table {self._name} that widemax wrote")
        if row[0] != FORMAT_VERSION:
            raise ValueError(
                f"{self.address}, table {self._name}: format {row[0]} is not {FORMAT_VERSION}: "
                "export the run again"
            )
        return StoreManifest.from_json(row[1]), int(row[2])

    def identity(self) -> tuple[str, str, int]:
        """Return which checkpoint the table is of now, and which table it is: another each time."""
        manifest, oid = self._asked(self._read_manifest)
        return manifest.run_sha256, manifest.model_sha256, oid

    def check_run(self, run_sha256: str, model_sha256: str, folder: object) -> None:
        """Raise if this is not what a run, at its checkpoint, would write."""
        own = self.manifest
        if (own.run_sha256, own.model_sha256) != (run_sha256, model_sha256):
            raise OtherTableError(
                f"{self.address}, table {self._name} is of {own.run}, step {own.step:,}, and not "
                f"of {folder} and its checkpoint: export it again"
            )

    def recommend(
        self,
        queries: Array,
        k: int,
        *,
        exclude: Sequence[int] = (),
        filters: Filters | None = None,
    ) -> list[FoundItem]:
        """Return the k items with the largest product with any of the queries [K, P].

        ``Run.store_queries`` makes them of a history. Classes in ``exclude`` are left out, and
        items that do not have, of every feature in ``filters``, one of its values.
        """
        if not self.manifest.point_dimension:
            raise ValueError(f"the model of {self.manifest.run} does not rank by products")
        found: dict[int, FoundItem] = {}
        for query in queries:
            for each in self._search(POINT, query, k, exclude, filters):
                if each.id not in found or found[each.id].score < each.score:
                    found[each.id] = each
        return sorted(found.values(), key=_rank)[:k]

    def similar(
        self,
        query: Array,
        k: int,
        *,
        exclude: Sequence[int] = (),
        filters: Filters | None = None,
    ) -> list[FoundItem]:
        """Return the k items whose vectors have the largest cosine with a query [D]."""
        return self._search(VECTOR, query, k, exclude, filters)

    def vectors(self, ids: Sequence[int], *, column: str = VECTOR) -> Array:
        """Return the vectors of classes, in their order."""
        sql = driver("sql")
        if column not in (VECTOR, POINT):
            raise ValueError(f"column must be {VECTOR} or {POINT}, got {column!r}")
        command = sql.SQL("select id, {}, tableoid from {} where id = any(%s)").format(
            sql.Identifier(column), self._table
        )
        found = self._asked(
            lambda connection: (
                connection.cursor(binary=True).execute(command, [list(ids)]).fetchall()
            )
        )
        self._check_table(oid for *_, oid in found)
        rows = {row: vector for row, vector, _ in found}
        if missing := [each for each in ids if each not in rows]:
            raise ValueError(f"ids must be below {self.manifest.size:,}, got {missing[0]}")
        return np.stack([rows[each].to_numpy().astype(np.float32) for each in ids])

    def _search(
        self,
        column: str,
        query: Array,
        k: int,
        exclude: Sequence[int],
        filters: Filters | None,
    ) -> list[FoundItem]:
        k = check_whole("k", k, 1, 2**31 - 1)
        conditions = conditions_of(filters or {}, self.manifest.columns)
        if exclude:
            conditions.append(("not (id = any(%s))", [sorted({*exclude})]))
        width = self.manifest.dimension if column == VECTOR else self.manifest.point_dimension
        if query.shape != (width,) or not bool(np.isfinite(query).all()):
            raise ValueError(f"query must be {width} finite numbers, got shape {[*query.shape]}")
        asked = (self._table, column, query, k, conditions)

        def search(connection: Any) -> list[tuple[FoundItem, int]]:
            try:
                found = nearest_rows(connection, *asked)
            except driver().DataError:
                # Vectors of another length: those of a table that has taken the place of this one.
                self._check_table([self._read_manifest(connection)[1]])
                raise
            if len(found) < min(k, self.manifest.size - len({*exclude})):
                with connection.transaction():
                    connection.execute("set local enable_indexscan = off")
                    found = nearest_rows(connection, *asked)
            return found

        found = self._asked(search)
        self._check_table(oid for _, oid in found)
        return [row for row, _ in found]

    def _asked(self, ask: Callable[[Any], _T]) -> _T:
        """Return what a question to the database returns, put again if the connection was lost."""
        with self._lock, database_errors(self.address):
            try:
                return ask(self._ready())
            except driver().OperationalError as error:
                # A server that was started again: once more, on a new connection.
                if not _is_lost(error):
                    raise
                self._connection.close()
                return ask(self._ready())

    def _check_table(self, oids: Iterable[int]) -> None:
        """Raise if rows are of a table that was written after this one was opened."""
        if any(oid != self._oid for oid in oids):
            raise OtherTableError(
                f"{self.address}, table {self._name} was written again: reopen it"
            )

    def _ready(self) -> Any:
        """Return the connection, opened again if the server has closed it."""
        if self._connection.closed:
            self._connection, manifest, oid = self._open()
            # Who asks has compared the manifest with a run already.
            self._check_table([oid])
            self.manifest = manifest
        return self._connection

    def close(self) -> None:
        """Give the connection back."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_lost(error: Any) -> bool:
    """Return whether a connection is gone: a server says so before the driver finds it closed."""
    return error.sqlstate is None or error.sqlstate.startswith(_LOST)


def set_breadth(connection: Any, breadth: int) -> None:
    """Make searches of a connection keep so many, and go on until enough pass the filters."""
    # Known to the server only since the first vector: the library of pgvector is loaded by it.
    connection.execute("select '[1]'::vector")
    for name, value in (
        ("hnsw.ef_search", str(breadth)),
        # In strict order a row that is met late is passed over, though it is nearer.
        ("hnsw.iterative_scan", "relaxed_order"),
        ("hnsw.max_scan_tuples", str(_ALL_TUPLES)),
        ("hnsw.scan_mem_multiplier", "8"),
    ):
        set_option(connection, name, value)


def set_option(connection: Any, name: str, value: str) -> None:
    """Give a setting of the server another value, for this connection alone."""
    connection.execute("select set_config(%s, %s, false)", [name, value])


def nearest_rows(
    connection: Any,
    table: Any,
    column: str,
    query: Array,
    k: int,
    conditions: Sequence[tuple[str, list[Any]]] = (),
) -> list[tuple[FoundItem, int]]:
    """Return the k rows nearest to a query, best first, of those that meet all conditions.

    Each comes with the number of the table that it is of, for another may have taken its name.
    """
    sql = driver("sql")
    where = " and ".join(text for text, _ in conditions) or "true"
    command = sql.SQL(
        f"select id, key, title, {{column}} {_OPERATORS[column]} %b, tableoid from {{table}} "
        f"where {where} order by {{column}} {_OPERATORS[column]} %b limit %s"
    ).format(column=sql.Identifier(column), table=table)
    values = [value for _, some in conditions for value in some]
    query = np.ascontiguousarray(query, np.float32)
    wanted = _SPARE * k if conditions else k
    rows = connection.execute(command, [query, *values, query, wanted]).fetchall()
    own = 1.0 if column == VECTOR else 0.0
    # A vector of zeros has no angle: its cosine is 0, as elsewhere.
    found = [
        (FoundItem(row, key, title, 0.0 if distance != distance else own - distance), oid)
        for row, key, title, distance, oid in rows
    ]
    return sorted(found, key=lambda each: _rank(each[0]))[:k]


def _rank(found: FoundItem) -> tuple[float, int]:
    """Return by what items are sorted: in falling score, equal ones by their class."""
    return -found.score, found.id
