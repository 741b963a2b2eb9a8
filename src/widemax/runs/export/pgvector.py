"""The items of a run in PostgreSQL, to be searched there by pgvector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from widemax.declarations import declare
from widemax.runs.folder.catalogue import titles_of
from widemax.runs.folder.item_columns import ItemColumn
from widemax.runs.vectors.points import as_array, class_points, query_points
from widemax.stores.addresses import PostgresAddress, place_of
from widemax.stores.manifest import StoreManifest
from widemax.stores.postgres import check_table_name
from widemax.stores.searching import DEFAULT_TABLE, POINT, VECTOR
from widemax.stores.writing import Array, Items, Questions, write_table

if TYPE_CHECKING:
    from widemax.runs.run import Run

_QUESTIONS, _ANSWERS = 200, 10
_WHOLE = 2**53
"""Below it a float holds every whole number."""


@declare.export(
    "pgvector",
    help="A table of PostgreSQL with vectors, keys, titles and features, and indexes by pgvector.",
    traits=["run", "database"],
)
def export_pgvector(path: str | Path, run: Run, *, table: str = "") -> StoreManifest:
    """Write the items of a run into a database, ``postgresql://host/name``, whole or not at all."""
    address = place_of(path)
    if not isinstance(address, PostgresAddress):
        raise ValueError(f"pgvector is in a database, postgresql://host/name, got {address}")
    name = table or DEFAULT_TABLE
    check_table_name(name)
    vectors = run.vectors().vectors
    points = class_points(run.model)
    shown = run.shown
    titles = None if shown is None else titles_of(shown)
    columns = run.columns.columns
    size = len(run.vocabulary)
    identity = run.identity()
    items = Items(
        keys=run.vocabulary.keys.to_list(),
        titles=titles or [""] * size,
        features=_features(list(columns.values()), size),
        vectors=as_array(vectors),
        points=points,
    )
    manifest = StoreManifest(
        table=name,
        run=run.folder.absolute().name,
        run_sha256=identity[0],
        model_sha256=identity[1],
        step=run.step,
        size=size,
        dimension=vectors.shape[1],
        point_dimension=0 if points is None else points.shape[1],
        columns={name: column.kind for name, column in columns.items()},
    )
    return write_table(address, items, manifest, _questions(run, items))


def _questions(run: Run, items: Items) -> Mapping[str, Questions]:
    """Return what recommend and similar are asked to find how broad a search must be."""
    asked = {}
    best = min(_ANSWERS, len(items.keys))
    hidden = run.held_out_hidden(_QUESTIONS)
    if items.points is not None and hidden is not None:
        queries = query_points(run.model, hidden.flatten(0, -2))[:_QUESTIONS]
        expected = _best(queries @ items.points.T, best)
        asked["recommend"] = Questions(column=POINT, queries=queries, expected=expected)
    chosen = np.linspace(0, len(items.keys) - 1, min(_QUESTIONS, len(items.keys))).astype(int)
    lengths = np.maximum(np.linalg.norm(items.vectors, axis=1), np.finfo(np.float32).tiny)
    queries = items.vectors[chosen]
    queries = queries[np.linalg.norm(queries, axis=1) > 0]
    expected = _best(queries @ items.vectors.T / lengths, best)
    asked["similar"] = Questions(column=VECTOR, queries=queries, expected=expected)
    return asked


def _best(scores: Array, count: int) -> Any:
    return np.argsort(-scores, axis=1, kind="stable")[:, :count]


def _features(columns: Sequence[ItemColumn], size: int) -> list[dict[str, Any]]:
    """Return what is known of each item; numbers without a fraction as whole ones."""
    rows: list[dict[str, Any]] = [{} for _ in range(size)]
    for column in columns:
        for row, value in zip(rows, _values(column), strict=True):
            if value is not None:
                row[column.name] = value
    return rows


def _values(column: ItemColumn) -> list[Any]:
    cells = column.cells
    if column.kind == "number" and bool((cells.abs() < _WHOLE).all()):
        whole = cells.cast(pl.Int64)
        cells = whole if bool((whole == cells).all()) else cells
    return cells.to_list()
