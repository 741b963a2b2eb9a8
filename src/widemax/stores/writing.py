"""Writing vectors into PostgreSQL: a table that is there as a whole, or not at all."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widemax.stores.addresses import PostgresAddress
from widemax.stores.manifest import FORMAT_VERSION, MANIFEST_TABLE, StoreManifest
from widemax.stores.postgres import (
    check_table_name,
    connected,
    database_errors,
    driver,
    use_vectors,
)
from widemax.stores.searching import POINT, VECTOR, nearest_rows, set_breadth

MOST_INDEXED = 2000
"""The longest vectors of which pgvector makes an index."""

_BREADTHS = (40, 80, 160, 320, 640, 1000)
_LINKS, _BUILD_BREADTH = 16, 64
_MOST_MEMORY = 2**30
_MARGIN = 0.02
"""What must be found beyond what is wished, as other queries find a little less."""

Array = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, eq=False)
class Items:
    """What is written: a row for each class, in their order."""

    keys: Sequence[str | int]
    """What the log calls them."""
    titles: Sequence[str]
    """What people call them; empty where there is nothing."""
    features: Sequence[Mapping[str, Any]]
    """What else is known of each."""
    vectors: Array
    """What ``similar`` compares by angle, [V, D]."""
    points: Array | None = None
    """What ``recommend`` ranks by product, all of one length, [V, P]."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Questions:
    """By what the breadth of a search is chosen: queries, and which rows exact search finds."""

    column: str
    """The column that is searched."""
    queries: Array
    """[B, D]."""
    expected: NDArray[np.int64]
    """The 10 best rows of each, [B, 10]."""


def write_table(
    address: PostgresAddress,
    items: Items,
    manifest: StoreManifest,
    questions: Mapping[str, Questions],
    *,
    recall: float = 0.95,
) -> StoreManifest:
    """Write a table of vectors with its indexes and its manifest, in one transaction.

    The table is filled under another name, so that an older one of this name answers until the
    end. The breadth of searches grows until ``recall`` of what exact search finds is found.
    """
    schema, name = check_table_name(manifest.table)
    for width in (manifest.dimension, manifest.point_dimension):
        if width > MOST_INDEXED:
            raise ValueError(
                f"pgvector makes indexes of at most {MOST_INDEXED:,} dimensions, got {width:,}"
            )
    sql = driver("sql")
    place = _Place(sql, schema, name)
    with connected(address) as connection, database_errors(address):
        _make_ready(connection, address, place)
        new = place.table(f"{name}_new_{secrets.token_hex(4)}")
        _fill(connection, sql, new, items)
        _build_indexes(connection, sql, new, items)
        connection.execute(sql.SQL("analyze {}").format(new))
        manifest = _with_breadth(connection, new, manifest, questions, recall)
        connection.execute(sql.SQL("drop table if exists {}").format(place.table(name)))
        connection.execute(sql.SQL("alter table {} rename to {}").format(new, sql.Identifier(name)))
        connection.execute(
            sql.SQL(
                "insert into {} (table_name, format, run, step, content) "
                "values (%s, %s, %s, %s, %s::jsonb) on conflict (table_name) do update set "
                "format = excluded.format, run = excluded.run, step = excluded.step, "
                "content = excluded.content, written = excluded.written"
            ).format(place.table(MANIFEST_TABLE)),
            [name, FORMAT_VERSION, manifest.run, manifest.step, json.dumps(manifest.to_json())],
        )
    return manifest


@dataclass(frozen=True)
class _Place:
    """Names of tables in one schema, as SQL quotes them."""

    sql: Any
    schema: str
    name: str

    def table(self, name: str) -> Any:
        return self.sql.Identifier(*([self.schema] if self.schema else []), name)


def _make_ready(connection: Any, address: PostgresAddress, place: _Place) -> None:
    """Make vectors and the manifest known, and refuse to replace a table that is not ours."""
    has_vectors = connection.execute("select 1 from pg_extension where extname = 'vector'")
    if has_vectors.fetchone() is None:
        connection.execute("create extension vector")
    use_vectors(connection, address)
    known = place.table(MANIFEST_TABLE)
    connection.execute(
        place.sql.SQL(
            "create table if not exists {} (table_name text primary key, format integer not null, "
            "run text not null, step bigint not null, content jsonb not null, "
            "written timestamptz not null default now())"
        ).format(known)
    )
    there = connection.execute(
        "select to_regclass(%s)", [place.table(place.name).as_string(connection)]
    ).fetchone()[0]
    ours = connection.execute(
        place.sql.SQL("select 1 from {} where table_name = %s").format(known), [place.name]
    ).fetchone()
    if there is not None and ours is None:
        raise ValueError(
            f"{address} has a table {place.name} that widemax did not write: choose another name"
        )


def _fill(connection: Any, sql: Any, table: Any, items: Items) -> None:
    whole = bool(items.keys) and not isinstance(items.keys[0], str)
    key_type = "bigint" if whole else "text"
    columns = [
        ("id", "integer", "int4", "primary key"),
        ("key", key_type, "int8" if whole else "text", "not null unique"),
        ("title", "text", "text", "not null"),
        ("features", "jsonb", "jsonb", "not null"),
        (VECTOR, f"vector({items.vectors.shape[1]})", "vector", "not null"),
    ]
    if items.points is not None:
        columns.append((POINT, f"vector({items.points.shape[1]})", "vector", "not null"))
    made = sql.SQL(", ").join(
        sql.SQL("{} {} {}").format(sql.Identifier(name), sql.SQL(kind), sql.SQL(rule))
        for name, kind, _, rule in columns
    )
    connection.execute(sql.SQL("create table {} ({})").format(table, made))
    names = sql.SQL(", ").join(sql.Identifier(name) for name, *_ in columns)
    command = sql.SQL("copy {} ({}) from stdin (format binary)").format(table, names)
    as_json = driver("types.json").Jsonb
    with connection.cursor().copy(command) as rows:
        rows.set_types([binary for *_, binary, _ in columns])
        for row, (key, title, features) in enumerate(
            zip(items.keys, items.titles, items.features, strict=True)
        ):
            values = [row, key, title, as_json(features), items.vectors[row]]
            rows.write_row(values if items.points is None else [*values, items.points[row]])


def _build_indexes(connection: Any, sql: Any, table: Any, items: Items) -> None:
    operators = {VECTOR: "vector_cosine_ops"}
    if items.points is not None:
        # All of one length: the order of products is that of angles, which a graph can follow.
        operators[POINT] = "vector_ip_ops"
    widest = max(each.shape[1] for each in (items.vectors, items.points) if each is not None)
    graph = len(items.keys) * (widest * 4 + 32 * _LINKS + 256)
    memory = min(max(graph, 1), _MOST_MEMORY) // 1024
    connection.execute(
        "select set_config('maintenance_work_mem', %s, true) "
        "where pg_size_bytes(current_setting('maintenance_work_mem')) < %s",
        [f"{memory}kB", memory * 1024],
    )
    for column, operator in operators.items():
        command = sql.SQL(
            f"create index on {{}} using hnsw ({{}} {operator}) "
            f"with (m = {_LINKS}, ef_construction = {_BUILD_BREADTH})"
        ).format(table, sql.Identifier(column))
        try:
            with connection.transaction():
                connection.execute(command)
        except driver("errors").DiskFull:
            # Processes that build together share memory, of which containers have little.
            connection.execute("set local max_parallel_maintenance_workers = 0")
            connection.execute(command)


def _with_breadth(
    connection: Any,
    table: Any,
    manifest: StoreManifest,
    questions: Mapping[str, Questions],
    recall: float,
) -> StoreManifest:
    """Return the manifest with the least breadth that finds enough, and what it finds."""
    found: dict[str, float] = {}
    breadth = _BREADTHS[0]
    for breadth in _BREADTHS:
        set_breadth(connection, breadth)
        found = {
            purpose: _recall(each, lambda asked: _ids(connection, table, asked))
            for purpose, each in questions.items()
        }
        if all(value >= min(1, recall + _MARGIN) for value in found.values()):
            break
    return replace(manifest, search_breadth=breadth, recall=found)


def _ids(connection: Any, table: Any, asked: tuple[str, Array]) -> list[int]:
    column, query = asked
    return [row.id for row, _ in nearest_rows(connection, table, column, query, 10)]


def _recall(asked: Questions, answer: Callable[[tuple[str, Array]], list[int]]) -> float:
    pairs = zip(asked.queries, asked.expected, strict=True)
    shares = [
        len({*answer((asked.column, query))} & {*expected.tolist()}) / max(1, len(expected))
        for query, expected in pairs
    ]
    return float(np.mean(shares)) if shares else 1.0
