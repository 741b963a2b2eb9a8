"""What the folder of a run says of itself, read without torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from widemax.storage.files import read_table
from widemax.storage.manifest import check_file, read_manifest
from widemax.vocabulary.stored_keys import StoredKeys

# polars is loaded by what returns tables: a run is asked for its words without it.
if TYPE_CHECKING:
    import polars as pl

    from widemax.vocabulary import Vocabulary

FORMAT_VERSION = 2
VERSION_FIELD = "format"
DESCRIPTION, CONFIG, VOCABULARY = "run.json", "config.toml", "vocabulary.parquet"
KEYS, SHOWN, INDEX = "keys.safetensors", "items.parquet", "index"

_FIELDS: dict[str, tuple[type, ...]] = {
    "source": (str,),
    "kind": (str,),
    "classes": (int,),
    "days": (float, int),
    "sha256": (str,),
    "files": (dict,),
}


def holds_run(folder: Path) -> bool:
    """Return whether a run was begun there."""
    return (folder / DESCRIPTION).exists()


def has_grown(description: Mapping[str, Any]) -> bool:
    """Return whether some classes are of an older run, so that the source does not name all."""
    return description.get("grown") is True


def began_from_vectors(folder: Path) -> bool:
    """Return whether a run was started from vectors, which it does not keep."""
    return "warm_start" in check_run(folder)


def stored_titles(folder: Path) -> pl.DataFrame | None:
    """Return what a run shows of its items, a row for each class; None if there is nothing."""
    if not has_file(folder, SHOWN):
        return None
    return read_table(check_unchanged(folder, SHOWN))[0]


def check_run(folder: Path) -> dict[str, Any]:
    """Return what ``run.json`` says, if this is the folder of a run that we can read."""
    path = folder / DESCRIPTION
    if not folder.exists():
        raise ValueError(f"{folder} is not the folder of a run: there is nothing of that name")
    if not path.is_file():
        raise ValueError(f"{folder} is not the folder of a run: it has no {DESCRIPTION}")
    description = read_manifest(
        path, FORMAT_VERSION, version_field=VERSION_FIELD, if_older="train it again"
    )
    for name, wanted in _FIELDS.items():
        if type(description.get(name)) not in wanted:
            raise ValueError(
                f"{path} is damaged: its field {name!r} must be of type {wanted[0].__name__}, "
                f"got {str(description.get(name))[:60]!r}"
            )
    return description


def has_file(folder: Path, name: str) -> bool:
    """Return whether a file was written when the run was begun, even if it is gone by now."""
    return name in check_run(folder)["files"]


def check_unchanged(folder: Path, name: str) -> Path:
    """Return the path of a file of a run, if it is still what was written."""
    path = folder / name
    check_file(path, sha256=check_run(folder)["files"].get(name))
    return path


def stored_vocabulary(folder: Path) -> Vocabulary:
    """Return the vocabulary that a run was started with, if it is still the same."""
    from widemax.vocabulary import Vocabulary

    path = check_unchanged(folder, VOCABULARY)
    vocabulary = Vocabulary.load(path)
    _check_size(path, len(vocabulary))
    return vocabulary


def stored_keys(folder: Path) -> StoredKeys | None:
    """Return the keys of a run, if they are still the same; None if it has its vocabulary only."""
    if not has_file(folder, KEYS):
        return None
    path = check_unchanged(folder, KEYS)
    keys = StoredKeys(path)
    _check_size(path, len(keys))
    return keys


def _check_size(path: Path, num_keys: int) -> None:
    classes = check_run(path.parent)["classes"]
    if num_keys != classes:
        raise ValueError(
            f"{path} has {num_keys:,} keys where {DESCRIPTION} states {classes} classes"
        )
