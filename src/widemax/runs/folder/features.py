"""The features of the items and users of a run, as its folder keeps them."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl

from widemax.data import FeatureSchema, FeatureTable, Source
from widemax.runs.folder.description import check_unchanged, has_file
from widemax.storage.files import atomic_write, read_text
from widemax.storage.json_text import parse_json

ITEMS, USERS = "item_features", "user_features"


def store_features(folder: Path, source: Source) -> None:
    """Write the features of a log into the folder of its run."""
    for name in (ITEMS, USERS):
        table: FeatureTable | None = getattr(source, name)
        if table is None:
            continue
        with atomic_write(folder / f"{name}.parquet") as file:
            table.to_frame().write_parquet(file)
        with atomic_write(folder / f"{name}.json") as file:
            file.write((json.dumps(table.schema.to_dict(), indent=1) + "\n").encode())


def stored_features(folder: Path, name: str) -> FeatureTable | None:
    """Return the features that a run was started with; None if it had none."""
    if not has_file(folder, f"{name}.json"):
        return None
    schema, rows = (check_unchanged(folder, f"{name}{suffix}") for suffix in (".json", ".parquet"))
    fields = FeatureSchema.from_dict(parse_json(str(schema), read_text(schema)))
    try:
        frame = pl.read_parquet(rows, glob=False, hive_partitioning=False)
        return FeatureTable.from_frame(fields, frame)
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{rows} cannot be read: {reason}") from error
