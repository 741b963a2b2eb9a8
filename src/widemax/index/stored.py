"""An index in a folder, and the manifest that ties it to its model."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from widemax.extras import import_extra
from widemax.heads import ScorerHead
from widemax.index.base import Index
from widemax.index.building import KINDS
from widemax.index.exact import ExactIndex
from widemax.index.faiss_index import FaissIndex
from widemax.index.rows import model_digest, similarity_of
from widemax.storage.files import atomic_write, remove_torn_files
from widemax.storage.locks import lock_for_writing
from widemax.storage.state_dicts import parse_json

FORMAT_VERSION = 1
MANIFEST = "manifest.json"

_MAX_MANIFEST_BYTES = 2**20
_FILE_NAME = re.compile(r"index-[0-9a-f]{16}\.faiss")
_FIELDS = {"format_version", "kind", "num_classes", "dimension", "similarity", "model_sha256"}


def save_index(folder: str | Path, index: Index) -> None:
    """Write an index into a folder, in place of the one that may be there.

    Formula: the sha256 of the index file and of the parameters it was built from are in the
    manifest, which is written last: until then the folder holds the index before.

    Shapes: ``manifest.json``, and but for an exact index ``index-*.faiss``.

    Cost: as fast as the disk. A process killed at any moment leaves the old index or the new one.

    Reference: none.

    Use when: building takes longer than reading. Avoid when: the head has learnt since the index
    was built (this is refused), or the index is exact, which the head itself is.

    >>> import tempfile, torch
    >>> import widemax as wm
    >>> from widemax.index import IVFIndex, load_index
    >>> head, folder = wm.FullHead(wm.TableScorer(2000, 8)), tempfile.mkdtemp()
    >>> save_index(folder, IVFIndex(head, lists=10))
    >>> load_index(folder, head).search(torch.randn(2, 8), 5).ids.shape
    torch.Size([2, 5])
    """
    if not index.rows.are_current():
        raise ValueError("the head has learnt since the index was built: build it anew to save it")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    manifest = {"format_version": FORMAT_VERSION, "kind": index.kind, **_ties(index.rows.scorer)}
    with lock_for_writing(folder / "lock", folder):
        remove_torn_files(folder)
        # A name of its own: the file of the old manifest must stay until there is a new one.
        name = f"index-{secrets.token_hex(8)}.faiss"
        if isinstance(index, FaissIndex):
            manifest["file"] = {"name": name, **_write(folder / name, index)}
        with atomic_write(folder / MANIFEST) as file:
            file.write((json.dumps(manifest, indent=1) + "\n").encode())
        for path in folder.iterdir():
            if _FILE_NAME.fullmatch(path.name) and path.name != name:
                path.unlink(missing_ok=True)


def load_index(folder: str | Path, head: ScorerHead) -> Index:
    """Read the index of a head, and refuse one of another head or with a byte changed.

    Formula: size, dimension, similarity and the sha256 of the head's parameters are those of the
    manifest, and so is the sha256 of the file, which is checked before Faiss sees it.

    Shapes: the index searches [B, D] or [B, K, D] of the head's dimension D.

    Cost: O(V·D): the parameters and the file are read once to be hashed, the file once more.

    Reference: none.

    Use when: serving a run. Avoid when: the head was trained since (``build_index``).

    >>> import tempfile
    >>> import widemax as wm
    >>> from widemax.index import ExactIndex
    >>> head, folder = wm.FullHead(wm.TableScorer(5, 8)), tempfile.mkdtemp()
    >>> save_index(folder, ExactIndex(head))
    >>> load_index(folder, wm.FullHead(wm.TableScorer(6, 8)))
    Traceback (most recent call last):
    ValueError: ...manifest.json is of another model: its num_classes is 5 and the model's 6; ...
    """
    path = Path(folder) / MANIFEST
    manifest = _read_manifest(path)
    if not isinstance(head, ScorerHead):
        raise ValueError(f"head must be a ScorerHead, got {type(head).__name__}")
    for name, value in _ties(head.scorer).items():
        if manifest[name] != value:
            raise ValueError(
                f"{path} is of another model: its {name} is {manifest[name]!r} and the model's "
                f"{value!r}; build the index anew"
            )
    kind = KINDS[manifest["kind"]]
    if not issubclass(kind, FaissIndex):
        return ExactIndex(head)
    file = path.with_name(manifest["file"]["name"])
    _check_file(file, manifest["file"])
    return kind.of_stored(head, _read_faiss(file, manifest))


def _ties(scorer: Any) -> dict[str, Any]:
    """Return what must be the same in the index and in the model it serves, quickest first."""
    return {
        "num_classes": scorer.num_classes,
        "dimension": scorer.dimension,
        "similarity": similarity_of(scorer),
        "model_sha256": model_digest(scorer),
    }


class _Hashing:
    """A file that keeps the size and the sha256 of what was written."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.size, self.digest = file, 0, hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.size += len(data)
        self.digest.update(data)
        return self.file.write(data)


def _write(path: Path, index: FaissIndex) -> dict[str, Any]:
    faiss = import_extra("faiss")
    with atomic_write(path) as file:
        hashing = _Hashing(file)
        faiss.write_index(index.faiss_index, faiss.PyCallbackIOWriter(hashing.write))
    return {"size": hashing.size, "sha256": hashing.digest.hexdigest()}


def _read_manifest(path: Path) -> Mapping[str, Any]:
    try:
        with path.open("rb") as file:
            manifest = parse_json(str(path), file.read(_MAX_MANIFEST_BYTES))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
    version = manifest.get("format_version") if isinstance(manifest, dict) else None
    if type(version) is int and version > FORMAT_VERSION:
        raise ValueError(
            f"{path}: its format is version {version} and this widemax reads up to "
            f"{FORMAT_VERSION}; a newer widemax is needed"
        )
    kind = manifest.get("kind") if type(version) is int and version == FORMAT_VERSION else None
    fields = _FIELDS if kind == ExactIndex.kind else _FIELDS | {"file"}
    if not isinstance(kind, str) or kind not in KINDS or set(manifest) != fields:
        raise ValueError(f"{path} does not describe an index: build it anew")
    if "file" in fields:
        _check_record(path, manifest["file"])
    checked: Mapping[str, Any] = manifest
    return checked


def _check_record(path: Path, record: object) -> None:
    """Refuse a record of a file that save_index never wrote, such as a path out of the folder."""
    whole = isinstance(record, dict) and set(record) == {"name", "size", "sha256"}
    if not whole or not _FILE_NAME.fullmatch(str(record["name"])):  # type: ignore[index]
        raise ValueError(f"{path} does not name the file of an index: build it anew")


def _check_file(path: Path, record: Mapping[str, Any]) -> None:
    try:
        with path.open("rb") as file:
            # The size first: a file that was cut or grown need not be read.
            same = path.stat().st_size == record["size"]
            same = same and hashlib.file_digest(file, "sha256").hexdigest() == record["sha256"]
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
    if not same:
        raise ValueError(f"{path} is not the file that {MANIFEST} describes: build the index anew")


def _read_faiss(path: Path, manifest: Mapping[str, Any]) -> Any:
    faiss = import_extra("faiss")
    types = {"hnsw": faiss.IndexHNSWFlat, "ivf": faiss.IndexIVFFlat}
    try:
        index = faiss.read_index(str(path))
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1]
        raise ValueError(f"{path} cannot be read by this Faiss: {reason}") from error
    if not isinstance(index, types[manifest["kind"]]) or index.ntotal != manifest["num_classes"]:
        raise ValueError(f"{path} does not hold the index that {MANIFEST} describes")
    return index
