"""Reading the source of a run as its configuration says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from widemax.data import Source, join_phrases, read_source
from widemax.runs.config import Config


def read_configured(path: str | Path, config: Config) -> Source:
    """Return the sequences and the vocabulary that a configuration makes of a file."""
    source = read_source(
        path,
        user_column=config.user_column,
        item_column=config.item_column,
        time_column=config.time_column,
        min_count=config.min_count,
        unknown=config.unknown or None,
        tokens=config.tokens or None,
        end=config.end or None,
        cache=config.cache,
    )
    if not config.phrases:
        return source
    if source.kind != "text":
        raise ValueError(f"phrases are joined in text, and {path} is a log ({source.kind})")
    apart = [config.end] if config.end else []
    sequences, vocabulary = join_phrases(
        source.sequences, source.vocabulary, passes=config.phrases, apart=apart
    )
    return replace(source, sequences=sequences, vocabulary=vocabulary)
