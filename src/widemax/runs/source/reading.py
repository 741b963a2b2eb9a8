"""Reading the source of a run, as its configuration says: at first, again, and grown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from widemax.config import Config
from widemax.data import Source, encoded_again, join_phrases, read_source
from widemax.data.reading.logs import Columns
from widemax.data.reading.numbering import Limits
from widemax.data.reading.parts import PartFiles, read_log_parts, read_text_parts
from widemax.data.reading.tables import TEXT
from widemax.data.splitting.holding_out import Split
from widemax.runs.folder.description import has_grown
from widemax.runs.source.configured import FILES, kind_of, parts_of
from widemax.runs.source.features import with_features
from widemax.runs.source.splitting import split_source
from widemax.vocabulary import Vocabulary

_COLUMNS = ("user_column", "item_column", "time_column", "weight_column", "event_column")


def read_configured(path: str | Path, config: Config) -> Source:
    """Return the sequences and the vocabulary that a configuration makes of a file.

    Of a log the counts are of what is trained on: what is held out must not say how often a class
    is drawn.
    """
    unknown = str(config.get("unknown", "")) or None
    source = _read(path, config, min_count=config.min_count, unknown=unknown)
    if config.source == "log":
        source = _counted_in_training(source, split_source(config, source))
    return with_features(path, config, source)


def _counted_in_training(source: Source, split: Split) -> Source:
    """Return a log with the counts of what is trained on; what is only held out has none."""
    counts = torch.bincount(split.sequences.values, minlength=len(source.vocabulary))
    old = source.vocabulary
    vocabulary = Vocabulary.from_counts(old.keys, counts, min_count=0, unknown=old.unknown)
    return encoded_again(source, vocabulary)


def read_growing(path: str | Path, config: Config, old: Vocabulary, folder: Path) -> Source:
    """Read a file with the classes of an older run, and those that it brings besides.

    A word of the old run is a class however rare it is here; new ones must have ``min_count``.
    """
    source = _read(path, config, min_count=1, unknown=None)
    whole, was_whole = (each.keys.dtype.is_integer() for each in (source.vocabulary, old))
    if whole != was_whole:
        kinds = {True: "whole numbers", False: "texts"}
        raise ValueError(
            f"{path} must have keys like the run it starts from: {folder} has {kinds[was_whole]}, "
            f"and these are {kinds[whole]}"
        )
    unknown = str(config.get("unknown", "")) or None
    vocabulary = old.merge(source.vocabulary, min_count=config.min_count, unknown=unknown)
    return with_features(path, config, encoded_again(source, vocabulary), like=folder)


def read_with(path: str | Path, config: Config, vocabulary: Vocabulary, folder: Path) -> Source:
    """Read a file with the classes of the vocabulary of a run, and no others."""
    source = encoded_again(_read(path, config, min_count=1, unknown=None), vocabulary)
    return with_features(path, config, source, like=folder)


def read_again(
    path: str | Path,
    config: Config,
    description: Mapping[str, Any],
    vocabulary: Vocabulary,
    folder: Path,
) -> Source:
    """Read the data of a trained run, as they were read when it was."""
    if has_grown(description):
        return read_with(path, config, vocabulary, folder)
    return read_configured(path, config)


def _read(path: str | Path, config: Config, *, min_count: int, unknown: object) -> Source:
    kind = kind_of(path, config.values)
    if config.split == FILES:
        return _read_parts(parts_of(path, config.values), kind, config, min_count, unknown)
    options = {"kind": kind, "min_count": min_count, "unknown": unknown}
    if config.source == "log":
        columns = (*_COLUMNS, "goal_column", "search_column", "event_weights", "where", "query")
        asked = {name: config.get(name, "") for name in columns}
        return read_source(path, core=config.core, **asked, **options)  # type: ignore[arg-type]
    source = read_source(
        path,
        tokens=config.tokens or None,
        end=config.end or None,
        cache=config.cache,
        **options,  # type: ignore[arg-type]
    )
    if not config.phrases:
        return source
    apart = [config.end] if config.end else []
    sequences, vocabulary = join_phrases(
        source.sequences, source.vocabulary, passes=config.phrases, apart=apart
    )
    return replace(source, sequences=sequences, vocabulary=vocabulary)


def _read_parts(
    files: PartFiles, kind: str, config: Config, min_count: int, unknown: object
) -> Source:
    limits = Limits(min_count=min_count, unknown=unknown)  # type: ignore[arg-type]
    if kind == TEXT:
        if config.phrases or config.cache:
            raise ValueError("split = 'files' reads no phrases and keeps no cache: leave them out")
        tokens, end = config.tokens or None, config.end or None
        return read_text_parts(files, limits, tokens=tokens, end=end)
    if config.query:
        raise ValueError("split = 'files' reads files, and query is for a database: leave it out")
    if config.core or config.get("goal_column", "") or config.get("search_column", ""):
        raise ValueError(
            "split = 'files' takes files as they are: no core, no goal_column, no search_column"
        )
    named = {name.removesuffix("_column"): str(config.get(name, "")) for name in _COLUMNS}
    weights = str(config.get("event_weights", ""))
    return read_log_parts(files, kind, Columns(**named), limits, config.where, weights)
