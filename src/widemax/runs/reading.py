"""Reading the source of a run as its configuration says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from widemax.data import Source, encoded_again, join_phrases, read_source
from widemax.data.reading import recognise
from widemax.runs.config.config import Config
from widemax.runs.features import with_features
from widemax.vocabulary import Vocabulary


def read_configured(path: str | Path, config: Config) -> Source:
    """Return the sequences and the vocabulary that a configuration makes of a file."""
    source = _read(path, config, min_count=config.min_count, unknown=config.unknown or None)
    return with_features(path, config, source)


def read_growing(path: str | Path, config: Config, old: Vocabulary, folder: Path) -> Source:
    """Read a file with the classes of an older run, and those that it brings besides.

    A word of the old run is a class however rare it is here; new ones must have ``min_count``.
    """
    source = _read(path, config, min_count=1, unknown=None)
    vocabulary = old.merge(
        source.vocabulary, min_count=config.min_count, unknown=config.unknown or None
    )
    return with_features(path, config, encoded_again(source, vocabulary), like=folder)


def read_with(path: str | Path, config: Config, vocabulary: Vocabulary, folder: Path) -> Source:
    """Read a file with the classes of the vocabulary of a run, and no others."""
    source = encoded_again(_read(path, config, min_count=1, unknown=None), vocabulary)
    return with_features(path, config, source, like=folder)


def _read(path: str | Path, config: Config, *, min_count: int, unknown: str | None) -> Source:
    _check_kind(path, config)
    source = read_source(
        path,
        user_column=config.user_column,
        item_column=config.item_column,
        time_column=config.time_column,
        goal_column=config.goal_column,
        core=config.core,
        min_count=min_count,
        unknown=unknown,
        tokens=config.tokens or None,
        end=config.end or None,
        cache=config.cache,
    )
    if not config.phrases:
        return source
    apart = [config.end] if config.end else []
    sequences, vocabulary = join_phrases(
        source.sequences, source.vocabulary, passes=config.phrases, apart=apart
    )
    return replace(source, sequences=sequences, vocabulary=vocabulary)


def _check_kind(path: str | Path, config: Config) -> None:
    """Raise if a setting that is for text only, perhaps brought by the model, meets a log."""
    asked = [name for name in ("end", "tokens", "phrases") if getattr(config, name)]
    if not asked or (kind := recognise(path)) == "text":
        return
    name, value = asked[0], getattr(config, asked[0])
    raise ValueError(
        f"{name} = {value!r} is for text, and {path} is a log ({kind}): choose model = "
        f"'next-item' rather than {config.model!r}, or set {name} to {type(value)()!r}"
    )
