"""The source of a run: read and split as its configuration says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from widemax.config import Config
from widemax.data import Source, encoded_again, join_phrases, read_source
from widemax.data.reading import recognise
from widemax.data.reading.tables import TEXT
from widemax.data.splitting.holding_out import Sizes, Split, split_log, split_text
from widemax.data.summary import source_of
from widemax.declarations.table import find, load
from widemax.models import Model
from widemax.runs.item_data import with_features
from widemax.vocabulary import Vocabulary

_USUAL_HISTORY = 50


def configured_for(path: str | Path, config: Config) -> Config:
    """Return a configuration for what a file holds, a text or a log, its model chosen."""
    return config.for_source(source_of(kind_of(path, config.kind)))


def kind_of(path: str | Path, asked: str) -> str:
    """Return what a source is: what was asked for, or else what its content looks like."""
    if not asked:
        return recognise(path)
    return asked if asked == TEXT else find("format", asked, argument="kind").name


def read_configured(path: str | Path, config: Config) -> Source:
    """Return the sequences and the vocabulary that a configuration makes of a file."""
    unknown = str(config.get("unknown", "")) or None
    source = _read(path, config, min_count=config.min_count, unknown=unknown)
    return with_features(path, config, source)


def read_growing(path: str | Path, config: Config, old: Vocabulary, folder: Path) -> Source:
    """Read a file with the classes of an older run, and those that it brings besides.

    A word of the old run is a class however rare it is here; new ones must have ``min_count``.
    """
    source = _read(path, config, min_count=1, unknown=None)
    unknown = str(config.get("unknown", "")) or None
    vocabulary = old.merge(source.vocabulary, min_count=config.min_count, unknown=unknown)
    return with_features(path, config, encoded_again(source, vocabulary), like=folder)


def read_with(path: str | Path, config: Config, vocabulary: Vocabulary, folder: Path) -> Source:
    """Read a file with the classes of the vocabulary of a run, and no others."""
    source = encoded_again(_read(path, config, min_count=1, unknown=None), vocabulary)
    return with_features(path, config, source, like=folder)


def _read(path: str | Path, config: Config, *, min_count: int, unknown: object) -> Source:
    options = {"kind": kind_of(path, config.kind), "min_count": min_count, "unknown": unknown}
    if config.source == "log":
        columns = ("user_column", "item_column", "time_column", "goal_column")
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


def split_source(config: Config, source: Source) -> Split:
    """Hold out ``validation_size`` examples, and ``test_size`` others, never seen in training."""
    sizes = Sizes(config.validation_size, config.test_size)
    if source.kind != "text":
        return split_log(source, config.split, sizes, max_history=max_history(config))
    model: type[Model] = load(config.parts["model"])
    return split_text(source.sequences, sizes, lambda part: model.windows_of(part, config))


def max_history(config: Config) -> int:
    """Return how many earlier items a model of a log is asked with.

    >>> max_history(Config(model="mind", max_history=7)), max_history(Config(model="cbow"))
    (7, 50)
    """
    return int(config.get("max_history", _USUAL_HISTORY))
