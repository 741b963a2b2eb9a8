"""What a run becomes for other tools: files of vectors, a Faiss index, an ONNX encoder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from widemax.runs.export.faiss import write_faiss_index
from widemax.runs.export.formats import ExportFormat, export_format
from widemax.runs.export.onnx import write_onnx_encoder
from widemax.scoring.table import Similarity
from widemax.vectors import (
    KeyedVectors,
    write_numpy_vectors,
    write_projector_vectors,
    write_safetensors_vectors,
    write_word2vec_binary,
    write_word2vec_text,
)

if TYPE_CHECKING:
    from widemax.runs.run import Run

__all__ = ["ExportFormat", "export_format", "export_run"]

_VECTOR_FILES: dict[str, Callable[[str | Path, KeyedVectors], object]] = {
    "word2vec": write_word2vec_text,
    "word2vec-binary": write_word2vec_binary,
    "numpy": write_numpy_vectors,
    "safetensors": write_safetensors_vectors,
    "projector": write_projector_vectors,
}


def export_run(run: Run, path: str | Path, to: ExportFormat) -> None:
    """Write what of a run a format holds: its class vectors, or for ``onnx`` its encoder."""
    if to == "onnx":
        encoder: Any = getattr(run.model, "encoder", None)
        if encoder is None:
            raise ValueError(f"{type(run.model).__name__} has no encoder to export: it counts")
        write_onnx_encoder(path, encoder)
    elif to == "faiss":
        similarity: Similarity = "cosine" if run.config.similarity == "cosine" else "dot"
        write_faiss_index(path, run.class_vectors(), run.vocabulary, similarity=similarity)
    else:
        _VECTOR_FILES[to](path, run.vectors())
