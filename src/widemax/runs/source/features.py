"""The features of the items and users of a log, and what is shown of the items: read with it."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import polars as pl
import torch

from widemax.config import Config
from widemax.data import FeatureSchema, Source, read_features
from widemax.data.features import key_column_of, read_feature_frame
from widemax.data.features.cells import MISSING_MARKS
from widemax.runs.folder.catalogue import KEY, title_column
from widemax.runs.folder.features import ITEMS, USERS, stored_features
from widemax.vocabulary import Vocabulary
from widemax.vocabulary.keys import as_keys

_TITLES = "titles"
_LOGGER = logging.getLogger(__name__)

_SUFFIXES = {ITEMS: ".item", USERS: ".user", _TITLES: ".item"}
_MOST_SHOWN, _LONGEST_SHOWN = 32, 500


def with_features(
    path: str | Path, config: Config, source: Source, *, like: Path | None = None
) -> Source:
    """Return a log with the features that its configuration names, or that lie beside it.

    Those of a run that continues another are read ``like`` those in the folder of the older one:
    a new value has the code of the unknown, so that all others keep what was learned of them.
    """
    items, users = (_file(path, config, name) for name in (ITEMS, USERS))
    if source.kind == "text" and (items or users):
        name = ITEMS if items else USERS
        raise ValueError(f"{name} is for a log, and {path} is a text")
    if items is not None:
        frame = read_feature_frame(items)
        if any("new-items" in part.traits for part in config.parts.values()):
            source = replace(source, vocabulary=_with_new_items(source.vocabulary, items, frame[0]))
        keys = source.vocabulary.keys
        table = read_features(items, keys, schema=_schema(like, ITEMS), frame=frame)
        source = replace(source, item_features=table)
    if users is not None and source.sequences.names is not None:
        names = source.sequences.names
        table = read_features(users, names, schema=_schema(like, USERS))
        source = replace(source, user_features=table)
    return source


def shown_columns(path: str | Path, config: Config, vocabulary: Vocabulary) -> pl.DataFrame | None:
    """Return what people want to see of the items of a log: titles, categories, prices.

    They come from the file that ``titles`` names, else from that of the features. There is a row
    for each class, with nulls where the file has none, or what stands for none, such as NA; None if
    there is no file. Titles stay as they are: Na is a film.
    """
    file = _file(path, config, _TITLES) or _file(path, config, ITEMS) or _beside(path, _TITLES)
    if file is None:
        return None
    frame, _ = read_feature_frame(file)
    column = key_column_of(file, frame, vocabulary.keys)
    plain = [each for each in frame.columns if not frame[each].dtype.is_nested()]
    texts = frame.select(plain[:_MOST_SHOWN] if column in plain[:_MOST_SHOWN] else [column])
    texts = texts.with_columns(
        pl.all().cast(pl.String, strict=False).str.slice(0, _LONGEST_SHOWN)
    ).rename({column: KEY})
    title = title_column(texts)
    if title is None:
        _LOGGER.warning(
            "%s: no column is called title, name or label: items are shown by their keys", file
        )
    values = pl.exclude(KEY, *([] if title is None else [title]))
    texts = texts.with_columns(pl.when(~values.is_in(MISSING_MARKS)).then(values))
    keys = pl.DataFrame({KEY: vocabulary.keys.cast(pl.String)})
    return keys.join(texts.unique(KEY), on=KEY, how="left", maintain_order="left")


def _schema(folder: Path | None, name: str) -> FeatureSchema | None:
    table = None if folder is None else stored_features(folder, name)
    return None if table is None else table.schema


def _file(path: str | Path, config: Config, name: str) -> Path | None:
    """Return the file that a setting names, or that lies beside the log."""
    if not config.has(name):
        return None
    given = str(config.values[name])
    return Path(given) if given else _beside(path, name)


def _beside(path: str | Path, name: str) -> Path | None:
    beside = Path(path).with_suffix(_SUFFIXES[name])
    return beside if Path(path).suffix == ".inter" and beside.is_file() else None


def _with_new_items(vocabulary: Vocabulary, path: Path, frame: pl.DataFrame) -> Vocabulary:
    """Return the classes of a log, and after them the items that only the file of features has."""
    column = key_column_of(path, frame, vocabulary.keys)
    keys = as_keys(frame[column].drop_nulls().unique(maintain_order=True))
    if keys.dtype != vocabulary.keys.dtype:
        keys = keys.cast(vocabulary.keys.dtype, strict=False).drop_nulls()
    new = keys.filter(~keys.is_in(vocabulary.keys.implode()))
    counts = torch.cat([vocabulary.counts, torch.zeros(len(new), dtype=torch.int64)])
    joined = pl.concat([vocabulary.keys, new])
    return Vocabulary.from_counts(joined, counts, min_count=0, unknown=vocabulary.unknown)
