"""An index in a folder, and the manifest that ties it to its model."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from widemax.extras import import_extra
from widemax.heads import ScorerHead
from widemax.index.base import Index
from widemax.index.building import INDEX_CLASSES
from widemax.index.exact import ExactIndex
from widemax.index.faiss_index import FaissIndex
from widemax.index.rows import model_digest, similarity_of
from widemax.storage.files import atomic_write, make_folder, remove_torn_files
from widemax.storage.locks import lock_for_writing
from widemax.storage.manifest import (
    DamagedFileError,
    FileRecord,
    HashingWriter,
    check_file,
    read_manifest,
    write_manifest,
)
from widemax.storage.tensors import read_tensors, serialize_tensors

FORMAT_VERSION = 1
MANIFEST = "manifest.json"

_FILE_NAME = re.compile(r"index-[0-9a-f]{16}\.faiss")
_CHANGES_NAME = re.compile(r"index-[0-9a-f]{16}\.safetensors")
_FIELDS = {"format_version", "kind", "num_classes", "dimension", "similarity", "model_sha256"}
_ADVICE = "build the index again"


def save_index(folder: str | Path, index: Index) -> None:
    """Write an index into a folder, in place of the one that may be there.

    The manifest, with the sha256 of the index file and of the parameters it was built from, is
    written last: a process killed at any moment leaves the old index or the new one. A head that
    has learned since the index was built is refused.

    >>> import tempfile, torch
    >>> import widemax as wm
    >>> from widemax.index import IVFIndex, load_index
    >>> head, folder = wm.FullHead(wm.TableScorer(2000, 8)), tempfile.mkdtemp()
    >>> save_index(folder, IVFIndex(head, lists=10))
    >>> load_index(folder, head).search(torch.randn(2, 8), 5).ids.shape
    torch.Size([2, 5])
    """
    if not index.known_rows.are_current():
        raise ValueError(f"the head has learned since the index was built: {_ADVICE} to save it")
    folder = make_folder(folder)
    fields = {"kind": index.kind, **_ties(index.rows.scorer)}
    with lock_for_writing(folder / "lock", folder):
        remove_torn_files(folder)
        # A name of its own: the file of the old manifest must stay until there is a new one.
        name = f"index-{secrets.token_hex(8)}.faiss"
        if isinstance(index, FaissIndex):
            fields["file"] = {"name": name, **_write(folder / name, index)}
        changes = name.replace(".faiss", ".safetensors")
        if index.num_classes > index.head_classes or len(index.removed):
            fields["changes"] = {"name": changes, **_write_changes(folder / changes, index)}
        write_manifest(folder / MANIFEST, FORMAT_VERSION, fields)
        for path in folder.iterdir():
            old = _FILE_NAME.fullmatch(path.name) or _CHANGES_NAME.fullmatch(path.name)
            if old and path.name not in (name, changes):
                path.unlink(missing_ok=True)


def load_index(folder: str | Path, head: ScorerHead) -> Index:
    """Read the index of a head, and refuse one of another head or with a byte changed.

    Hashes the parameters of the head and the file, which Faiss sees only after that.

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
    with _advising():
        manifest = read_manifest(path, FORMAT_VERSION)
        _check_fields(path, manifest)
    if not isinstance(head, ScorerHead):
        raise ValueError(f"head must be a ScorerHead, got {type(head).__name__}")
    for name, value in _ties(head.scorer).items():
        if manifest[name] != value:
            raise ValueError(
                f"{path} is of another model: its {name} is {manifest[name]!r} and the model's "
                f"{value!r}; {_ADVICE}"
            )
    kind = INDEX_CLASSES[manifest["kind"]]
    changes = _read_changes(path, manifest)
    index: Index
    if issubclass(kind, FaissIndex):
        file = _checked_file(path, manifest["file"])
        added = len(changes["vectors"]) if "vectors" in changes else 0
        index = kind.of_stored(head, _read_faiss(file, manifest, added))
    else:
        index = ExactIndex(head)
    index.take_changes(changes.get("vectors"), changes.get("biases"), changes.get("removed"))
    return index


def _checked_file(manifest: Path, record: Mapping[str, Any]) -> Path:
    """Return a file that a manifest names, if it is what was written."""
    file = manifest.with_name(record["name"])
    with _advising():
        check_file(file, size=record["size"], sha256=record["sha256"])
    return file


def _write_changes(path: Path, index: Index) -> FileRecord:
    """Write what was added to and removed from the classes of the head."""
    own, rows = index.head_classes, index.known_rows
    tensors = {"vectors": rows.vectors[own:], "removed": index.removed}
    if rows.biases is not None:
        tensors["biases"] = rows.biases[own:]
    with atomic_write(path) as file:
        writer = HashingWriter(file)
        for chunk in serialize_tensors(tensors):
            writer.write(chunk)
    return writer.record()


def _read_changes(path: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    if "changes" not in manifest:
        return {}
    file = _checked_file(path, manifest["changes"])
    tensors = read_tensors(file)
    if not {"vectors", "removed"} <= tensors.keys() <= {"vectors", "removed", "biases"}:
        raise DamagedFileError(file, "does not hold the changes of an index", _ADVICE)
    return {**tensors}


@contextmanager
def _advising() -> Iterator[None]:
    try:
        yield
    except DamagedFileError as error:
        raise DamagedFileError(error.path, error.problem, _ADVICE) from error


def _ties(scorer: Any) -> dict[str, Any]:
    """Return what must be the same in the index and in the model it serves, quickest first."""
    return {
        "num_classes": scorer.num_classes,
        "dimension": scorer.dimension,
        "similarity": similarity_of(scorer),
        "model_sha256": model_digest(scorer),
    }


def _write(path: Path, index: FaissIndex) -> FileRecord:
    faiss = import_extra("faiss")
    with atomic_write(path) as file:
        writer = HashingWriter(file)
        faiss.write_index(index.faiss_index, faiss.PyCallbackIOWriter(writer.write))
    return writer.record()


def _check_fields(path: Path, manifest: Mapping[str, Any]) -> None:
    """Refuse what save_index never wrote, such as the path of a file out of the folder."""
    kind = manifest.get("kind")
    fields = _FIELDS if kind == ExactIndex.kind else _FIELDS | {"file"}
    named = set(manifest) - {"changes"}
    if not isinstance(kind, str) or kind not in INDEX_CLASSES or named != fields:
        raise DamagedFileError(path, "does not describe an index")
    for field, pattern in (("file", _FILE_NAME), ("changes", _CHANGES_NAME)):
        record = manifest.get(field)
        if field in manifest and not (
            isinstance(record, dict)
            and set(record) == {"name", "size", "sha256"}
            and pattern.fullmatch(str(record["name"]))
        ):
            raise DamagedFileError(path, "does not name the file of an index")


def _read_faiss(path: Path, manifest: Mapping[str, Any], added: int) -> Any:
    faiss = import_extra("faiss")
    types = {
        "hnsw": faiss.IndexHNSWFlat,
        "ivf": faiss.IndexIVFFlat,
        "ivf8": faiss.IndexIVFScalarQuantizer,
    }
    size = manifest["num_classes"] + added
    try:
        index = faiss.read_index(str(path))
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1]
        raise ValueError(f"{path} cannot be read by this Faiss: {reason}") from error
    if not isinstance(index, types[manifest["kind"]]) or index.ntotal != size:
        raise ValueError(f"{path} does not hold the index that {MANIFEST} describes")
    return index
