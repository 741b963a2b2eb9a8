"""What the folder of a run says about it, and whether that still holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

from torch import Tensor

from widemax.data import Source
from widemax.runs.config.config import Config
from widemax.runs.config.toml import read_toml, to_toml
from widemax.runs.features import store_features
from widemax.storage.files import atomic_write, read_text
from widemax.storage.state_dicts import parse_json
from widemax.vocabulary import Vocabulary

FORMAT_VERSION = 1

_DESCRIPTION, _CONFIG, _VOCABULARY = "run.json", "config.toml", "vocabulary.parquet"
_FIELDS: dict[str, type] = {"source": str, "kind": str, "classes": int, "sha256": str}
_VOCABULARY_DIGEST = "vocabulary_sha256"
_GROWN = "grown"


def holds_run(folder: Path) -> bool:
    """Return whether a run was begun there."""
    return (folder / _DESCRIPTION).exists()


def describe(path: str | Path, source: Source, *, grown: bool = False) -> dict[str, Any]:
    """Return what tells this source from another: where it is, and what was read from it.

    ``grown`` says that some of the classes are of an older run.
    """
    digest = sha256()
    for tensor in (source.sequences.values, source.sequences.offsets):
        digest.update(_bytes(tensor))
    return {
        "format": FORMAT_VERSION,
        "source": str(Path(path).absolute()),
        "kind": source.kind,
        "classes": len(source.vocabulary),
        "sequences": len(source.sequences),
        "sha256": digest.hexdigest(),
        **({_GROWN: True} if grown else {}),
    }


def has_grown(description: Mapping[str, Any]) -> bool:
    """Return whether the source alone does not tell the classes: some are of an older run."""
    return description.get(_GROWN) is True


def _bytes(tensor: Tensor) -> bytes:
    return tensor.contiguous().numpy().tobytes()


def create_folder(
    folder: Path, config: Config, source: Source, description: Mapping[str, Any]
) -> None:
    """Make the folder; ``run.json`` comes last, so a folder with it is whole."""
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(folder / _CONFIG) as file:
        file.write(to_toml(config).encode())
    source.vocabulary.save(folder / _VOCABULARY)
    store_features(folder, source)
    # A changed byte may leave a vocabulary that can be read, with other words in it.
    digest = _file_sha256(folder / _VOCABULARY)
    with atomic_write(folder / _DESCRIPTION) as file:
        content = {**description, _VOCABULARY_DIGEST: digest}
        file.write((json.dumps(content, indent=1) + "\n").encode())


def _file_sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error


def check_run(folder: Path) -> dict[str, Any]:
    """Return what ``run.json`` says, if this is the folder of a run that we can read."""
    path = folder / _DESCRIPTION
    if not path.is_file():
        raise ValueError(f"{folder} is not the folder of a run: it has no {_DESCRIPTION}")
    description = parse_json(str(path), read_text(path))
    version = description.get("format") if isinstance(description, dict) else None
    if type(version) is not int or version < 1:
        raise ValueError(f"{path} is damaged: it names no format version")
    if version > FORMAT_VERSION:
        raise ValueError(
            f"{folder} has format version {version}, this widemax reads up to {FORMAT_VERSION}: "
            f"a newer widemax is needed for its {_DESCRIPTION}"
        )
    for name, wanted in _FIELDS.items():
        if type(description.get(name)) is not wanted:
            raise ValueError(
                f"{path} is damaged: its field {name!r} must be of type {wanted.__name__}, "
                f"got {str(description.get(name))[:60]!r}"
            )
    return dict(description)


def stored_config(folder: Path) -> Config:
    """Return the configuration that a run was started with."""
    path = folder / _CONFIG
    values: dict[str, Any] = dict(read_toml(path))
    try:
        return Config(**values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def stored_vocabulary(folder: Path) -> Vocabulary:
    """Return the vocabulary that a run was started with, if it is still the same."""
    path, description = folder / _VOCABULARY, check_run(folder)
    # Before it is parsed: what a parser makes of a changed file is anybody's guess. Runs that
    # were begun before it was stored have no digest.
    stated = description.get(_VOCABULARY_DIGEST)
    if stated is not None and _file_sha256(path) != stated:
        raise ValueError(f"{path} was changed: its sha256 is not the one in {_DESCRIPTION}")
    vocabulary = Vocabulary.load(path)
    if len(vocabulary) != description["classes"]:
        raise ValueError(
            f"{path} has {len(vocabulary):,} keys where {_DESCRIPTION} states "
            f"{description['classes']} classes"
        )
    return vocabulary


def check_same_source(folder: Path, description: Mapping[str, Any], vocabulary: Vocabulary) -> None:
    """Raise if a source is not what the run was begun on."""
    same = check_run(folder)["sha256"] == description["sha256"]
    if not same or vocabulary != stored_vocabulary(folder):
        raise ValueError(
            f"{description['source']} is not what {folder} was trained on: the content differs; "
            "a run is resumed on the same data"
        )


def check_cold(folder: Path) -> None:
    """Raise if a run without a checkpoint began from vectors: they are not kept, so it cannot."""
    if "warm_start" in check_run(folder):
        raise ValueError(
            f"{folder} began from vectors and was stopped before its first checkpoint: "
            "train it again, with them, in another folder"
        )
