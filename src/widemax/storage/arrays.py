"""Arrays of safetensors files for programs that do without torch: mapped, and written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from widemax.storage.files import atomic_write, check_regular
from widemax.storage.json_text import parse_json

Array: TypeAlias = NDArray[Any]

_TIES = "widemax.ties"
_DTYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U8": np.uint8,
    "BOOL": np.bool_,
}
"""What NumPy has a type for; tensors of other types are left out."""


def map_arrays(path: str | Path) -> tuple[dict[str, Array], dict[str, str]]:
    """Return the arrays of a safetensors file, read as far as they are used, and its metadata.

    For one answer: a file that is changed meanwhile changes them. Names that were tied share one.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "arrays.safetensors"
    >>> write_arrays(path, {"counts": np.arange(3)}, {"of": "tea"})
    >>> arrays, metadata = map_arrays(path)
    >>> arrays["counts"].tolist(), metadata
    ([0, 1, 2], {'of': 'tea'})
    """
    check_regular(path)
    try:
        # The library looks whether header and size fit; it would copy what it returns.
        with safe_open(str(path), framework="numpy") as file:
            metadata = file.metadata() or {}
        with Path(path).open("rb") as header:
            length = int.from_bytes(header.read(8), "little")
            entries: dict[str, Any] = json.loads(header.read(length))
        entries.pop("__metadata__", None)
        arrays = {
            name: _map(Path(path), 8 + length, entry)
            for name, entry in entries.items()
            if entry["dtype"] in _DTYPES
        }
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
    except (SafetensorError, RuntimeError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{path} is not a whole safetensors file: {reason}") from error
    ties = parse_json(f"{path}: {_TIES}", metadata.get(_TIES, "{}").encode())
    if not isinstance(ties, dict):
        raise ValueError(f"{path} must tie names to names")
    return arrays | {
        name: arrays[str(kept)] for name, kept in ties.items() if str(kept) in arrays
    }, metadata


def _map(path: Path, begin: int, entry: Mapping[str, Any]) -> Array:
    dtype, shape = _DTYPES[entry["dtype"]], tuple(entry["shape"])
    # Nothing cannot be mapped.
    if 0 in shape:
        return np.empty(shape, dtype)
    start = begin + entry["data_offsets"][0]
    mapped = np.memmap(path, dtype, "r", offset=start, shape=shape or (1,))
    # As a plain array: each slice of a memmap would cost a call of Python.
    return np.asarray(mapped).reshape(shape)


def write_arrays(
    path: str | Path, arrays: Mapping[str, Array], metadata: Mapping[str, str]
) -> None:
    """Write arrays as a safetensors file, atomically."""
    data = save({name: np.ascontiguousarray(each) for name, each in arrays.items()}, dict(metadata))
    with atomic_write(path) as file:
        file.write(data)
