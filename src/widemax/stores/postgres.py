"""Connections to PostgreSQL, names of tables, and errors in one line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from widemax.extras import import_extra
from widemax.stores.addresses import PostgresAddress
from widemax.vocabulary.spelling import quoted

EXTRA = "postgres"

_CANCELLED = "57014"
"""The code of a query that ran into ``statement_timeout``, or was cancelled by somebody."""

# PostgreSQL cuts names off at 63 bytes; what is appended while a table is written must fit.
_NAME = re.compile(r"(?:([A-Za-z_][A-Za-z0-9_]{0,39})\.)?([A-Za-z_][A-Za-z0-9_]{0,39})")


def check_table_name(name: str) -> tuple[str, str]:
    """Return the schema, or "", and the name of a table; anything but plain words is refused.

    >>> check_table_name("shop.items")
    ('shop', 'items')
    >>> check_table_name("items; drop table users")
    Traceback (most recent call last):
    ValueError: table must be a name of at most 40 letters, digits and _, or SCHEMA.NAME, got ...
    """
    found = _NAME.fullmatch(name)
    if found is None:
        raise ValueError(
            "table must be a name of at most 40 letters, digits and _, or SCHEMA.NAME, "
            f"got {quoted(name)}"
        )
    return found[1] or "", found[2]


def driver(module: str = "") -> Any:
    """Return psycopg, or a module of it."""
    return import_extra(EXTRA, f"psycopg{'.' if module else ''}{module}")


def connected(address: PostgresAddress, **options: Any) -> Any:
    """Return a connection; that there is none is a ValueError without the password."""
    psycopg = driver()
    with database_errors(address):
        return psycopg.connect(address.with_password(), **options)


class DatabaseError(ValueError):
    """A database cannot be reached, or refuses what it is asked."""


class SlowDatabaseError(DatabaseError):
    """A database took longer for a query than it may."""


@contextmanager
def database_errors(address: PostgresAddress) -> Iterator[None]:
    """Turn what the driver raises into a ``DatabaseError`` that names the database."""
    psycopg = driver()
    try:
        yield
    except psycopg.Error as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        # Not "from error": what a driver says of a connection may hold the password.
        kind = SlowDatabaseError if error.sqlstate == _CANCELLED else DatabaseError
        raise kind(f"{address}: {address.hidden_in(reason)}") from None


def use_vectors(connection: Any, address: PostgresAddress) -> None:
    """Make a connection take and give vectors as arrays; raise if the database has none."""
    psycopg = driver()
    pgvector = import_extra(EXTRA, "pgvector.psycopg")
    try:
        pgvector.register_vector(connection)
    except psycopg.ProgrammingError:
        raise ValueError(f"{address} has no pgvector: create extension vector") from None
