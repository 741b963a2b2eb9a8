"""The table of a run in a database, open once for each answer that is under way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import NamedTuple

from widemax.runs.run import Run
from widemax.stores.addresses import PostgresAddress
from widemax.stores.searching import VectorStore

QUERY_SECONDS = 5.0
"""How long the database may take for a query: less than an answer may, so that this is said."""


class TablePlace(NamedTuple):
    """Where the items of a run are."""

    address: PostgresAddress
    """The database."""
    table: str
    """The name of the table."""
    seconds: float = QUERY_SECONDS
    """How long a query may take."""


class StorePool:
    """Stores for one checkpoint, as many as there are threads that ask at once.

    A table of another run or checkpoint is refused, now and whenever a connection is opened.
    """

    def __init__(self, place: TablePlace, run: Run) -> None:
        self._place, self._run = place, run
        self._lock, self._idle, self._closed = Lock(), list[VectorStore](), False
        self._idle.append(self._opened())

    @contextmanager
    def store(self) -> Iterator[VectorStore]:
        """Lend a store to one thread."""
        with self._lock:
            store = self._idle.pop() if self._idle else None
        if store is None:
            store = self._opened()
        try:
            yield store
        finally:
            with self._lock:
                kept = not self._closed
                if kept:
                    self._idle.append(store)
            if not kept:
                store.close()

    def _opened(self) -> VectorStore:
        store = VectorStore(*self._place)
        try:
            store.check_run(*self._run.identity(), self._run.folder)
            if not store.manifest.point_dimension:
                raise ValueError(
                    f"{type(self._run.model).__name__} does not rank items by products of vectors, "
                    "so that a database cannot search them: serve it without --from"
                )
        except ValueError:
            store.close()
            raise
        return store

    def close(self) -> None:
        """Give all connections back; those that are lent, when they come back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for store in idle:
            store.close()
