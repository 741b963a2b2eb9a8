"""A Faiss index of vectors, with the vocabulary that names its rows."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, NamedTuple

from torch.nn.functional import normalize

from widemax.extras import import_extra
from widemax.scoring.table import Similarity
from widemax.storage.files import atomic_write, read_text
from widemax.vectors import KeyedVectors
from widemax.vocabulary import Vocabulary

INDEX_FILE = "index.faiss"
VOCABULARY_FILE = "vocabulary.parquet"
ABOUT_FILE = "index.json"
FORMAT_VERSION = 2


class ExportedIndex(NamedTuple):
    """An index that was read, and what its rows and scores mean."""

    index: Any
    vocabulary: Vocabulary
    similarity: Similarity


def write_faiss_index(
    folder: str | Path,
    vectors: KeyedVectors,
    vocabulary: Vocabulary,
    *,
    similarity: Similarity = "dot",
) -> None:
    """Write an exact Faiss index of vectors, with its vocabulary, into a folder.

    Formula: row i of an ``IndexFlatIP`` is the vector of class i, scaled to length 1 where
    ``similarity`` is "cosine" (scale queries too: the inner product is then the cosine).

    Shapes: ``index.faiss`` holds float32 [V, D]; ``index.json`` names V, D, the similarity and the
    sha256 of both other files.

    Cost: O(V·D): as fast as the disk; twice the vectors in memory. The files take their names one
    right after the other once all are whole; a process killed exactly between leaves old beside
    new, which ``read_faiss_index`` refuses.

    Reference: Douze et al. 2024, The Faiss library.

    Use when: a program that has Faiss is to find neighbours. Avoid when: the head has biases that
    matter: no vector holds them.

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
    matrix = scaled.numpy()
    index = faiss.IndexFlatIP(vectors.dimension)
    index.add(matrix)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    about: dict[str, Any] = {
        "format": FORMAT_VERSION,
        "size": len(vectors),
        "dimension": vectors.dimension,
        "similarity": similarity,
    }
    digest = sha256()
    with atomic_write(folder / ABOUT_FILE) as lines, atomic_write(folder / INDEX_FILE) as rows:

        def write(chunk: bytes) -> int:
            digest.update(chunk)
            return rows.write(chunk)

        faiss.write_index(index, faiss.PyCallbackIOWriter(write))
        # A disk that is full must show before the first of the names is taken.
        rows.flush()
        os.fsync(rows.fileno())
        vocabulary.save(folder / VOCABULARY_FILE)
        about["sha256"] = digest.hexdigest()
        about["vocabulary_sha256"] = _file_digest(folder / VOCABULARY_FILE)
        lines.write((json.dumps(about, indent=1) + "\n").encode())


def _check_digest(path: Path, expected: object) -> None:
    """Refuse a file that is not the one described, before anything parses it."""
    try:
        found = _file_digest(path)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
    if found != expected:
        raise _mismatch(path)


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def read_faiss_index(folder: str | Path) -> ExportedIndex:
    """Read what ``write_faiss_index`` wrote, and refuse files that do not belong together.

    Formula: the sha256 of both files are those that ``index.json`` names.

    Shapes: ``index`` holds [V, D]; its row i is class i of ``vocabulary``.

    Cost: O(V·D), two readings: files are compared before they are parsed.

    Reference: Douze et al. 2024, The Faiss library.

    Use when: an exported index is to be asked. Avoid when: the run is at hand
    (``Run.similar``, ``Run.recommend``).

    >>> read_faiss_index("nowhere")
    Traceback (most recent call last):
    ValueError: nowhere/index.json cannot be read: No such file or directory
    """
    faiss = import_extra("faiss")
    folder = Path(folder)
    about = _read_about(folder / ABOUT_FILE)
    _check_digest(folder / VOCABULARY_FILE, about["vocabulary_sha256"])
    path = folder / INDEX_FILE
    _check_digest(path, about["sha256"])
    vocabulary = Vocabulary.load(folder / VOCABULARY_FILE)
    try:
        index = faiss.read_index(str(path))
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1]
        raise ValueError(f"{path} is not a whole Faiss index: {reason}") from error
    shape = (about["size"], about["dimension"])
    if not isinstance(index, faiss.IndexFlatIP) or (index.ntotal, index.d) != shape:
        raise _mismatch(path)
    return ExportedIndex(index, vocabulary, about["similarity"])


def _read_about(path: Path) -> Mapping[str, Any]:
    try:
        about = json.loads(text := read_text(path))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    known = {"format", "size", "dimension", "similarity", "sha256", "vocabulary_sha256"}
    if not isinstance(about, dict) or about.get("format") != FORMAT_VERSION or set(about) != known:
        raise ValueError(
            f"{path} must describe an index in format {FORMAT_VERSION}, got {text[:64]!r}"
        )
    return about


def _mismatch(path: Path) -> ValueError:
    return ValueError(f"{path} is not the one that {ABOUT_FILE} describes: export the run again")
