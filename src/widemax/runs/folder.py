"""The folder of a run: what it says about itself, and whether that still holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import polars as pl

from widemax.config import Config
from widemax.config.toml import read_toml, to_toml
from widemax.data import Source
from widemax.data.summary import DataSummary
from widemax.declarations import Value
from widemax.runs.catalogue import titles_of
from widemax.runs.description import (
    CONFIG,
    DESCRIPTION,
    FORMAT_VERSION,
    KEYS,
    SHOWN,
    VERSION_FIELD,
    VOCABULARY,
    check_run,
    check_unchanged,
    holds_run,
    stored_vocabulary,
)
from widemax.storage.files import atomic_write, make_folder
from widemax.storage.manifest import file_sha256, read_manifest, write_manifest
from widemax.stores.addresses import location_of
from widemax.vocabulary import Vocabulary
from widemax.vocabulary.stored_keys import write_keys

Spelling = Callable[[str], str]

_HASHED = (".parquet", ".safetensors", ".json", ".toml")
"""What of a folder is changed by nobody once it is written."""

_CONTINUED = "continued.json"
ADJUSTABLE = (
    "epochs",
    "steps",
    "time_budget",
    "patience",
    "patience_examples",
    "validate_every",
    "refit",
    "checkpoint_every",
    "keep_last",
    "threads",
    "tracking",
)
"""Settings that may be others when a run is resumed: none of them decides what a step does."""


def check_free(folder: Path) -> None:
    """Raise if there is a run, which another one would overwrite."""
    if holds_run(folder):
        raise ValueError(
            f"{folder} holds a run already: resume it (--resume), or choose another folder"
        )


def describe_source(path: str | Path, source: Source, *, grown: bool = False) -> dict[str, Any]:
    """Return what distinguishes this source: where it is, and what was read from it.

    ``grown`` says that some of the classes are of an older run.
    """
    digest = sha256()
    sequences = source.sequences
    for tensor in (sequences.values, sequences.offsets, sequences.weights):
        if tensor is not None:
            digest.update(tensor.contiguous().numpy().data)
    return {
        "source": location_of(path),
        "kind": source.kind,
        "classes": len(source.vocabulary),
        "sequences": len(source.sequences),
        "days": DataSummary.of(source).days,
        "sha256": digest.hexdigest(),
        **({"grown": True} if grown else {}),
    }


def create_folder(
    folder: Path, config: Config, source: Source, shown: pl.DataFrame | None = None
) -> None:
    """Make the folder of a run that is not one yet: ``finish_folder`` makes it one."""
    make_folder(folder)
    with atomic_write(folder / CONFIG) as file:
        file.write(to_toml(config).encode())
    source.vocabulary.save(folder / VOCABULARY)
    keys, titles = source.vocabulary.keys.to_list(), None if shown is None else titles_of(shown)
    write_keys(folder / KEYS, keys, titles=titles, unknown=source.vocabulary.unknown)
    if shown is not None:
        with atomic_write(folder / SHOWN) as file:
            shown.write_parquet(file)


def finish_folder(folder: Path, description: Mapping[str, Any]) -> None:
    """Write ``run.json`` last, so that a folder with it is whole."""
    # A changed byte may leave a table that can be read, with other words in it.
    names = sorted(
        path.name for path in folder.iterdir() if path.suffix in _HASHED and path.name != _CONTINUED
    )
    files = {name: file_sha256(folder / name) for name in names}
    content = {**description, "files": files}
    write_manifest(folder / DESCRIPTION, FORMAT_VERSION, content, version_field=VERSION_FIELD)


def stored_config(folder: Path) -> Config:
    """Return the configuration that a run was started with."""
    path = check_unchanged(folder, CONFIG)
    values: dict[str, Any] = {**read_toml(path), **_continued(folder)}
    try:
        return Config(source=check_run(folder)["kind"], **values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _continued(folder: Path) -> dict[str, Any]:
    """Return the settings with which a run was resumed, where they are not its first ones."""
    path = folder / _CONTINUED
    if not path.exists():
        return {}
    found = read_manifest(path, FORMAT_VERSION, version_field=VERSION_FIELD)
    values = {name: value for name, value in found.items() if name != VERSION_FIELD}
    if wrong := values.keys() - {*ADJUSTABLE}:
        raise ValueError(f"{path} is damaged: {min(wrong)!r} cannot be changed in a run")
    return values


def continue_with(folder: Path, given: Mapping[str, Value]) -> None:
    """Keep the settings with which a run is resumed, where they differ from those it has."""
    stored = stored_config(folder).values
    changed = {
        name: value
        for name, value in given.items()
        if name in ADJUSTABLE and value != stored.get(name, value)
    }
    if changed:
        content = {**_continued(folder), **changed}
        stored_config(folder).changed(**changed)  # refuses what does not fit
        write_manifest(folder / _CONTINUED, FORMAT_VERSION, content, version_field=VERSION_FIELD)


def check_same_settings(folder: Path, given: Mapping[str, Value], spelling: Spelling = str) -> None:
    """Raise if a setting is given that is not that of the run, and cannot be changed by now.

    ``spelling`` makes a name what the user wrote, such as a flag.
    """
    stored = stored_config(folder).values
    for name in sorted(given):
        if (name, given[name]) == ("model", "auto") or (name in ADJUSTABLE and name in stored):
            continue
        if (name, given[name]) == ("learning_rate", "auto") and "range_test" in check_run(folder):
            continue
        if name not in stored:
            raise ValueError(f"{spelling(name)} is not a setting of {folder}: leave it out")
        if given[name] != stored[name]:
            raise ValueError(
                f"{spelling(name)} is {given[name]!r}, and {folder} was started with "
                f"{stored[name]!r}: a run that is resumed keeps its settings; leave it out, or "
                "train in another folder"
            )


def check_same_source(folder: Path, description: Mapping[str, Any], vocabulary: Vocabulary) -> None:
    """Raise if a source is not what the run was begun on."""
    same = check_run(folder)["sha256"] == description["sha256"]
    if not same or vocabulary != stored_vocabulary(folder):
        raise ValueError(
            f"{description['source']} is not what {folder} was trained on: the content differs; "
            "a run is resumed on the same data"
        )


def began_from_vectors(folder: Path) -> bool:
    """Return whether a run was started from vectors, which it does not keep."""
    return "warm_start" in check_run(folder)
