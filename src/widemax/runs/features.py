"""The features of a run's items and users: read with its log, kept in its folder."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import torch

from widemax.data import FeatureSchema, FeatureTable, Source, read_features
from widemax.data.features import key_column_of, read_feature_frame
from widemax.runs.config.config import Config
from widemax.storage.files import atomic_write, read_text
from widemax.storage.state_dicts import parse_json
from widemax.vocabulary import Vocabulary
from widemax.vocabulary.keys import as_keys

BY_FEATURES = ("eges", "two-tower")
"""The models for which an item that nobody chose yet is a class, if it has features."""

READ_FEATURES = (*BY_FEATURES, "airbnb", "mind", "sdm", "youtube-dnn")
"""The models that read features at all."""

ITEMS, USERS = "item_features", "user_features"


def with_features(
    path: str | Path, config: Config, source: Source, *, like: Path | None = None
) -> Source:
    """Return a log with the features that its configuration names, or that lie beside it.

    Those of a run that goes on are read ``like`` those in the folder of the older one: a value that
    is new has the code of the unknown, so that all others keep what was learnt of them.
    """
    if source.kind == "text" or config.model_for(source.kind) not in READ_FEATURES:
        return source
    items = _file(path, config.item_features, ".item")
    users = _file(path, config.user_features, ".user")
    if items is not None and config.model in BY_FEATURES:
        source = replace(source, vocabulary=_with_new_items(source.vocabulary, items))
    if items is not None:
        keys = source.vocabulary.keys
        table = read_features(items, keys, schema=_schema(like, ITEMS))
        source = replace(source, item_features=table)
    if users is not None and source.sequences.names is not None:
        names = source.sequences.names
        table = read_features(users, names, schema=_schema(like, USERS))
        source = replace(source, user_features=table)
    return source


def _schema(folder: Path | None, name: str) -> FeatureSchema | None:
    table = None if folder is None else stored_features(folder, name)
    return None if table is None else table.schema


def _file(path: str | Path, given: str, suffix: str) -> Path | None:
    if given:
        # A run may be asked from another folder than it was trained from: then beside its log.
        beside_log = Path(path).parent / Path(given).name
        return Path(given) if Path(given).exists() or not beside_log.exists() else beside_log
    beside = Path(path).with_suffix(suffix)
    return beside if Path(path).suffix == ".inter" and beside.is_file() else None


def _with_new_items(vocabulary: Vocabulary, path: Path) -> Vocabulary:
    """Return the classes of a log, and after them the items that only the file of features has."""
    frame, _ = read_feature_frame(path)
    column = key_column_of(path, frame, vocabulary.keys)
    keys = as_keys(frame[column].drop_nulls().unique(maintain_order=True))
    if keys.dtype != vocabulary.keys.dtype:
        keys = keys.cast(vocabulary.keys.dtype, strict=False).drop_nulls()
    new = keys.filter(~keys.is_in(vocabulary.keys.implode()))
    counts = torch.cat([vocabulary.counts, torch.zeros(len(new), dtype=torch.int64)])
    joined = pl.concat([vocabulary.keys, new])
    return Vocabulary.from_counts(joined, counts, min_count=0, unknown=vocabulary.unknown)


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
    schema, rows = folder / f"{name}.json", folder / f"{name}.parquet"
    if not schema.is_file():
        return None
    fields = FeatureSchema.from_dict(parse_json(str(schema), read_text(schema)))
    try:
        frame = pl.read_parquet(rows, glob=False, hive_partitioning=False)
        return FeatureTable.from_frame(fields, frame)
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{rows} cannot be read: {reason}") from error
