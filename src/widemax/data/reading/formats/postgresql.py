"""PostgreSQL databases, of which a query says what is read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from widemax.data.reading.formats.base import FileHead, QueriedFormat
from widemax.declarations import declare
from widemax.extras import import_extra
from widemax.stores.addresses import Place, PostgresAddress

# The rows of a table come in the order they lie in, so that a run finds them again as they were.
_SESSION = (
    "set session characteristics as transaction read only",
    "set synchronize_seqscans = off",
    "set max_parallel_workers_per_gather = 0",
)


@declare.file_format("postgresql")
class PostgresFormat(QueriedFormat):
    """A PostgreSQL database, named by its address; no file is one."""

    extra = "postgres"

    @staticmethod
    def recognises(head: FileHead) -> bool:
        """Return that no file is a server."""
        return False

    @staticmethod
    @contextmanager
    def answer(place: Place, query: str) -> Iterator[Any]:
        """Yield the answer to a query, copied in binary; types that Arrow has not become text."""
        if not isinstance(place, PostgresAddress):
            raise ValueError(f"{place} is not the address of a database: postgresql://host/name is")
        driver = import_extra("postgres", "adbc_driver_postgresql.dbapi")
        try:
            with driver.connect(place.with_password()) as connection, connection.cursor() as cursor:
                for setting in _SESSION:
                    cursor.execute(setting)
                connection.commit()
                # On a line of its own, what follows is not part of a comment at the end.
                query = f"{query.strip().removesuffix(';')}\n"
                cursor.execute(_with_plain_types(query, cursor.adbc_execute_schema(query)))
                yield cursor.fetch_record_batch()
        except (driver.Error, OSError) as error:
            # What fails half-way comes from Arrow, without a number; a full disk has one.
            if isinstance(error, OSError) and error.errno is not None:
                raise
            # Not "from error": what a driver says of a connection may hold the password.
            raise ValueError(
                f"{place}: query cannot be answered: {place.hidden_in(_reason(error))}"
            ) from None


def _with_plain_types(query: str, schema: Any) -> str:
    """Return a query whose answer has types that a log may have: numbers, texts, times."""
    names = schema.names
    if repeated := [name for name in names if names.count(name) > 1]:
        raise ValueError(
            f"query must give each column a name of its own, got {repeated[0]!r} twice"
        )
    types = [(field.metadata or {}).get(b"POSTGRESQL:type", b"") for field in schema]
    casts = [_CASTS.get(each, "" if each in _PLAIN else "::text") for each in types]
    if not any(casts):
        return query
    quoted = [f'"{name.replace(chr(34), chr(34) * 2)}"' for name in names]
    chosen = (f"{name}{cast} as {name}" for name, cast in zip(quoted, casts, strict=True))
    return f"select {', '.join(chosen)} from (\n{query}) as answer"


_PLAIN = {
    b"bool", b"date", b"float4", b"float8", b"int2", b"int4", b"int8", b"text", b"timestamp",
    b"timestamptz", b"varchar",
}  # fmt: skip
_CASTS = {b"numeric": "::float8"}


def _reason(error: Exception) -> str:
    """Return the line of the server, without the query it repeats."""
    text = str(error)
    return text.partition("ERROR:")[2].strip().partition("\n")[0] or " ".join(text.split())
