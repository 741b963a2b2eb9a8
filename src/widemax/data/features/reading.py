"""Features from files: Parquet, CSV and atomic files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from widemax.data.features.cells import as_texts, is_list, is_readable
from widemax.data.features.fields import FeatureField
from widemax.data.features.schema import FeatureSchema
from widemax.data.features.table import FeatureTable
from widemax.data.reading.columns import listed
from widemax.data.reading.files import files_of
from widemax.data.reading.formats.atomic import AtomicType, atomic_types
from widemax.data.reading.tables import TEXT, format_of, recognise, scan_table, table_errors
from widemax.vocabulary.keys import Keys, as_keys
from widemax.vocabulary.spelling import quoted


def read_features(
    path: str | Path,
    keys: Keys,
    *,
    key_column: str = "",
    fields: Sequence[FeatureField] | None = None,
    schema: FeatureSchema | None = None,
    min_count: int = 1,
    frame: tuple[pl.DataFrame, dict[str, AtomicType]] | None = None,
) -> FeatureTable:
    """Read the features of ``keys`` from a file, as ``FeatureTable.fit`` takes them from a frame.

    ``frame`` is what ``read_feature_frame`` returned, where the file has been read already. With a
    ``schema`` values are encoded by it (``FeatureTable.encode``). Without ``key_column`` it
    is the column that holds most of the keys, each once.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "drinks.csv"
    >>> _ = path.write_text("id,price\\n7,2.5\\n8,3.5\\n")
    >>> read_features(path, [8, 9, 7]).describe().splitlines()[0]
    '2 of 3 keys have features'
    """
    table, types = read_feature_frame(path) if frame is None else frame
    own = as_keys(keys)
    key_column = key_column or key_column_of(path, table, own)
    try:
        if schema is not None:
            return FeatureTable.encode(schema, table, own, key_column=key_column)
        return FeatureTable.fit(
            table, own, key_column=key_column, fields=fields, types=types, min_count=min_count
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def read_feature_frame(path: str | Path) -> tuple[pl.DataFrame, dict[str, AtomicType]]:
    """Return the table of a file, and the types that the header of an atomic file gives.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "films.item"
    >>> _ = path.write_text("id:token\\tgenre:token_seq\\n1\\tWar Drama\\n")
    >>> read_feature_frame(path)[1]
    {'id': 'token', 'genre': 'token_seq'}
    """
    kind = recognise(path)
    if kind == TEXT or not format_of(kind).named:
        raise ValueError(
            f"{path} must hold a table with columns (Parquet, CSV or an atomic file), got {kind}"
        )
    frames = []
    types: dict[str, AtomicType] = {}
    for file in files_of(path):
        with table_errors(file):
            frames.append(scan_table(file, kind).collect())
        if kind == "atomic":
            types.update(atomic_types(file))
    with table_errors(Path(path)):
        return pl.concat(frames), types


def key_column_of(path: str | Path, frame: pl.DataFrame, keys: pl.Series) -> str:
    """Return the column that holds most keys, of those whose values all differ.

    >>> frame = pl.DataFrame({"price": [1, 2], "id": ["tea", "rum"], "kind": ["tea", "tea"]})
    >>> key_column_of("drinks.csv", frame, pl.Series(["rum", "gin"]))
    'id'
    """
    wanted = keys.cast(pl.String).implode()
    found = {}
    for column in frame:
        if is_readable(column) and not is_list(column):
            texts = as_texts(column)
            if not texts.null_count() and texts.n_unique() == len(texts):
                found[column.name] = int(texts.is_in(wanted).sum())
    best = max(found, key=lambda name: found[name], default="")
    if not best or not found[best]:
        example = quoted(keys[0]) if len(keys) else "none"
        raise ValueError(
            f"{path}: no column holds the keys (such as {example}) each once; its columns "
            f"are {listed(frame.columns)}"
        )
    return best
