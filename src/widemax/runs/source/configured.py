"""What a source holds, a text or a log, and the configuration that goes with it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from widemax.config import Config
from widemax.data.reading import recognise
from widemax.data.reading.files import files_of, opened
from widemax.data.reading.formats.base import FileHead
from widemax.data.reading.formats.words import may_be_lists
from widemax.data.reading.parts import PartFiles, part_files
from widemax.data.reading.tables import TEXT
from widemax.data.reading.tokens import split_words
from widemax.declarations.table import find
from widemax.stores.addresses import is_address

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
    train = parts_of(path, config.values).train if config.split == FILES else path
    with opened(files_of(train)[0]) as file:
        beginning = file.read(_BEGINNING).decode(errors="replace")
    return config.unknown in split_words(beginning, config.tokens or None)


def kind_of(path: str | Path, settings: Mapping[str, Any]) -> str:
    """Return what a source is: what was asked for, or else what its content looks like."""
    asked = str(settings.get("kind", ""))
    if not asked:
        files = settings.get("split") == FILES
        return recognise(parts_of(path, settings).train if files else path)
    return asked if asked == TEXT else find("format", asked, argument="kind").name


def parts_of(path: str | Path, settings: Mapping[str, Any]) -> PartFiles:
    """Return the files of data that come split already."""
    if is_address(path):
        raise ValueError(f"split = 'files' reads files, and {path} is a database")
    return part_files(path, settings.get("validation_file", ""), settings.get("test_file", ""))
