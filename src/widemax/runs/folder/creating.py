"""Making the folder of a run, and what it says of its source."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import polars as pl

from widemax.config import Config
from widemax.config.toml import to_toml
from widemax.data import Source
from widemax.data.summary import DataSummary
from widemax.runs.folder.catalogue import titles_of
from widemax.runs.folder.description import (
    CONFIG,
    DESCRIPTION,
    FORMAT_VERSION,
    KEYS,
    SHOWN,
    VERSION_FIELD,
    VOCABULARY,
    check_run,
    holds_run,
    stored_vocabulary,
)
from widemax.runs.folder.settings import CONTINUED
from widemax.storage.files import atomic_write, make_folder
from widemax.storage.manifest import file_sha256, write_manifest
from widemax.stores.addresses import location_of
from widemax.vocabulary import Vocabulary
from widemax.vocabulary.stored_keys import write_keys

_HASHED = (".parquet", ".safetensors", ".json", ".toml")
"""What of a folder is changed by nobody once it is written."""


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
        path.name for path in folder.iterdir() if path.suffix in _HASHED and path.name != CONTINUED
    )
    files = {name: file_sha256(folder / name) for name in names}
    content = {**description, "files": files}
    write_manifest(folder / DESCRIPTION, FORMAT_VERSION, content, version_field=VERSION_FIELD)


def check_same_source(folder: Path, description: Mapping[str, Any], vocabulary: Vocabulary) -> None:
    """Raise if a source is not what the run was begun on."""
    same = check_run(folder)["sha256"] == description["sha256"]
    if not same or vocabulary != stored_vocabulary(folder):
        raise ValueError(
            f"{description['source']} is not what {folder} was trained on: the content differs; "
            "a run is resumed on the same data"
        )
