"""The source of a run: read and split as its configuration says."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from widemax.config import Config
from widemax.data import Sequences, Source, Windows, encoded_again, join_phrases, read_source
from widemax.data.reading import recognise
from widemax.data.reading.files import files_of, opened
from widemax.data.reading.formats.base import FileHead
from widemax.data.reading.formats.words import may_be_lists
from widemax.data.reading.logs import Columns
from widemax.data.reading.numbering import Limits
from widemax.data.reading.parts import PartFiles, part_files, read_log_parts, read_text_parts
from widemax.data.reading.tables import TEXT
from widemax.data.reading.tokens import split_words
from widemax.data.splitting.holding_out import Sizes, Split, split_files, split_log, split_text
from widemax.declarations.table import find, load
from widemax.models import Model
from widemax.runs.description import has_grown
from widemax.runs.item_data import with_features
from widemax.stores.addresses import is_address
from widemax.vocabulary import Vocabulary

_COLUMNS = ("user_column", "item_column", "time_column", "weight_column", "event_column")
_BEGINNING = 2**16

_LOGGER = logging.getLogger(__name__)

FILES = "files"
"""The value of ``split`` for data that come split already."""


def configured_for(path: str | Path, config: Config) -> Config:
    """Return a configuration for what a file holds, a text or a log, its model chosen.

    Files that are named for validation or test are taken.
    """
    named = [name for name in ("validation_file", "test_file") if config.values[name]]
    if named and "split" not in config.given:
        config = config.changed(split=FILES)
    if named and config.split != FILES:
        raise ValueError(f"{named[0]} has no effect with split = {config.split!r}")
    config = config.for_source(kind_of(path, config.values))
    if config.source == TEXT and "split" in config.given and config.split != FILES:
        raise ValueError(
            f"split = {config.split!r} is for a log, and {path} is a text: if its lines are user "
            "item item ..., read it as such (--kind lists)"
        )
    if config.source == TEXT and not config.kind and config.split != FILES:
        _say_if_lists(path)
    if config.source == TEXT and "min_count" not in config.given and _has_unknown(path, config):
        return config.changed(min_count=1)
    return config


def _say_if_lists(path: str | Path) -> None:
    if may_be_lists(FileHead(files_of(path)[0])):
        _LOGGER.warning(
            "%s is taken for a text; if its lines are user item item ..., read it as such (--kind "
            "lists; --kind text says that it is none)",
            path,
        )


def _has_unknown(path: str | Path, config: Config) -> bool:
    """Return whether a text begins with its rare words replaced: none is to be replaced again."""
    if not config.unknown:
        return False
    train = _parts(path, config.values).train if config.split == FILES else path
    with opened(files_of(train)[0]) as file:
        beginning = file.read(_BEGINNING).decode(errors="replace")
    return config.unknown in split_words(beginning, config.tokens or None)


def kind_of(path: str | Path, settings: Mapping[str, Any]) -> str:
    """Return what a source is: what was asked for, or else what its content looks like."""
    asked = str(settings.get("kind", ""))
    if not asked:
        files = settings.get("split") == FILES
        return recognise(_parts(path, settings).train if files else path)
    return asked if asked == TEXT else find("format", asked, argument="kind").name


def _parts(path: str | Path, settings: Mapping[str, Any]) -> PartFiles:
    if is_address(path):
        raise ValueError(f"split = 'files' reads files, and {path} is a database")
    return part_files(path, settings.get("validation_file", ""), settings.get("test_file", ""))


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
        return _read_parts(_parts(path, config.values), kind, config, min_count, unknown)
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


def split_source(config: Config, source: Source) -> Split:
    """Hold out ``validation_size`` examples, and ``test_size`` others, never seen in training."""
    if config.get("search_column", "") and config.split not in ("last", "last-of-some"):
        raise ValueError(
            f"search_column goes with split = 'last' or 'last-of-some', got {config.split!r}, "
            "which would hold out words of searches too"
        )
    sizes = Sizes(config.validation_size, config.test_size)

    def cut(part: Sequences) -> Windows:
        return cut_text(config, part)

    if config.split == FILES:
        split = split_files(source, sizes, cut)
    elif source.kind != TEXT:
        return split_log(source, config.split, sizes)
    else:
        split = split_text(source.sequences, sizes, cut)
    if not config.get("across_lines", False):
        return split
    assert split.final is not None
    return replace(split, sequences=split.sequences.joined(), final=split.final.joined())


def cut_text(config: Config, text: Sequences) -> Windows:
    """Return the words of a text, each with what the model of a run predicts it from."""
    model: type[Model] = load(config.parts["model"])
    return model.windows_of(text.joined() if config.get("across_lines", False) else text, config)
