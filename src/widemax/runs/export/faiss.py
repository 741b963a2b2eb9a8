"""A Faiss index of vectors, with the vocabulary that names its rows."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from widemax.declarations import declare
from widemax.extras import import_extra
from widemax.heads import ScorerHead
from widemax.scoring.table import Similarity
from widemax.storage.files import atomic_write, make_folder
from widemax.storage.manifest import HashingWriter, check_file, file_sha256, read_manifest
from widemax.vectors import KeyedVectors
from widemax.vocabulary import Vocabulary

if TYPE_CHECKING:
    from widemax.runs.run import Run

INDEX_FILE = "index.faiss"
VOCABULARY_FILE = "vocabulary.parquet"
ABOUT_FILE = "index.json"
FORMAT_VERSION = 3

_VERSION = "format"
_FIELDS = {
    _VERSION,
    "size",
    "dimension",
    "similarity",
    "biases",
    "numbering",
    "sha256",
    "vocabulary_sha256",
}


class ExportedIndex(NamedTuple):
    """An index that was read, and what its rows and scores mean."""

    index: Any
    vocabulary: Vocabulary
    similarity: Similarity
    biases: bool


@declare.export("faiss", help="A folder with an exact Faiss index.", traits=["run"])
def export_faiss(path: str | Path, run: Run) -> None:
    """Write the class vectors of a run as a Faiss index."""
    similarity: Similarity = "cosine" if run.config.get("similarity", "") == "cosine" else "dot"
    vectors = run.class_vectors()
    assert isinstance(run.model.head, ScorerHead)
    biases = run.model.head.scorer.class_biases()
    write_faiss_index(path, vectors, run.vocabulary, similarity=similarity, biases=biases)


def write_faiss_index(
    folder: str | Path,
    vectors: KeyedVectors,
    vocabulary: Vocabulary,
    *,
    similarity: Similarity = "dot",
    biases: Tensor | None = None,
) -> None:
    """Write an exact Faiss index of vectors, with its vocabulary, into a folder.

    Row i of an ``IndexFlatIP`` is the vector of class i, scaled to length 1 where ``similarity`` is
    "cosine" (scale queries too: the inner product is then the cosine). Where there are biases [V],
    they are a last coordinate, which meets a 1 in the query. ``index.json`` names sizes, the
    similarity and the sha256 of both other files; a process that is killed between their renames
    leaves old beside new, which ``read_faiss_index`` refuses.

    >>> import tempfile, torch, numpy as np
    >>> folder, vocabulary = tempfile.mkdtemp(), Vocabulary.from_counts(["tea", "rum"], [2, 1])
    >>> write_faiss_index(folder, KeyedVectors(["tea", "rum"], torch.eye(2)), vocabulary)
    >>> read_faiss_index(folder).index.search(np.array([[0.1, 2]], np.float32), 1)
    (array([[2.]], dtype=float32), array([[1]]))
    """
    faiss = import_extra("faiss")
    if not vocabulary.keys.cast(vectors.keys.dtype).equals(vectors.keys):
        raise ValueError("vectors must have the keys of the vocabulary, in its order")
    scaled = normalize(vectors.vectors, dim=-1) if similarity == "cosine" else vectors.vectors
    if biases is not None:
        scaled = torch.cat([scaled, biases.detach().to(scaled)[:, None]], dim=1)
    index = faiss.IndexFlatIP(scaled.shape[1])
    index.add(scaled.numpy())
    folder = make_folder(folder)
    with atomic_write(folder / ABOUT_FILE) as lines, atomic_write(folder / INDEX_FILE) as rows:
        writer = HashingWriter(rows)
        faiss.write_index(index, faiss.PyCallbackIOWriter(writer.write))
        # A disk that is full must show before the first of the names is taken.
        rows.flush()
        os.fsync(rows.fileno())
        vocabulary.save(folder / VOCABULARY_FILE)
        about = {
            _VERSION: FORMAT_VERSION,
            "size": len(vectors),
            "dimension": index.d,
            "similarity": similarity,
            "biases": biases is not None,
            "numbering": vocabulary.numbering,
            "sha256": writer.record()["sha256"],
            "vocabulary_sha256": file_sha256(folder / VOCABULARY_FILE),
        }
        lines.write((json.dumps(about, indent=1) + "\n").encode())


def read_faiss_index(folder: str | Path) -> ExportedIndex:
    """Read what ``write_faiss_index`` wrote, and refuse files that do not belong together.

    >>> read_faiss_index("nowhere")
    Traceback (most recent call last):
    widemax.storage.manifest.DamagedFileError: nowhere/index.json cannot be read: No such file ...
    """
    faiss = import_extra("faiss")
    folder = Path(folder)
    about = read_manifest(
        folder / ABOUT_FILE, FORMAT_VERSION, version_field=_VERSION, if_older="export the run again"
    )
    if set(about) != _FIELDS:
        raise ValueError(
            f"{folder / ABOUT_FILE} must have the fields {', '.join(sorted(_FIELDS))}, "
            f"got {', '.join(sorted(about))[:80]}"
        )
    path = folder / INDEX_FILE
    check_file(folder / VOCABULARY_FILE, sha256=about["vocabulary_sha256"])
    check_file(path, sha256=about["sha256"])
    vocabulary = Vocabulary.load(folder / VOCABULARY_FILE)
    try:
        index = faiss.read_index(str(path))
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1]
        raise ValueError(f"{path} is not a whole Faiss index: {reason}") from error
    shape = (about["size"], about["dimension"])
    if not isinstance(index, faiss.IndexFlatIP) or (index.ntotal, index.d) != shape:
        raise ValueError(f"{path} is not the one that {ABOUT_FILE} describes: export the run again")
    return ExportedIndex(index, vocabulary, about["similarity"], about["biases"])
