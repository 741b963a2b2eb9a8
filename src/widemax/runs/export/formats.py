"""The formats that a run can be exported to, by name; torch is not imported."""

from __future__ import annotations

from typing import Literal, cast, get_args

from widemax.runs.config.settings import nearest

ExportFormat = Literal[
    "word2vec", "word2vec-binary", "numpy", "safetensors", "projector", "faiss", "onnx"
]

EXPORTS: tuple[str, ...] = get_args(ExportFormat)


def export_format(name: str) -> ExportFormat:
    """Return the name if it is that of a format.

    >>> export_format("safetensor")
    Traceback (most recent call last):
    ValueError: to must be one of word2vec, ... got 'safetensor'; did you mean 'safetensors'?
    """
    if name not in EXPORTS:
        hint = nearest(name, EXPORTS)
        raise ValueError(f"to must be one of {', '.join(EXPORTS)}, got {name!r}{hint}")
    return cast("ExportFormat", name)
