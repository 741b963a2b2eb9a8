"""Keys and vectors in one safetensors file."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from widemax.declarations import declare
from widemax.storage.files import atomic_write, open_to_read
from widemax.storage.json_text import parse_json
from widemax.storage.manifest import check_version
from widemax.vectors.keyed import KeyedVectors
from widemax.vectors.rows import as_array, bytes_left
from widemax.vocabulary.spelling import quoted

FORMAT_VERSION = 1

_VERSION_FIELD = "widemax.vectors.version"
_LENGTH = struct.Struct("<Q")
# Ours has some 200 bytes. The format allows 100 MB, far too much to parse.
_LONGEST_HEADER = 4096


def read_safetensors_vectors(path: str | Path) -> KeyedVectors:
    """Read what ``write_safetensors_vectors`` wrote, and nothing else.

    The header must be, byte by byte, the one that belongs to these shapes, so that no damage to it
    goes unnoticed. Nothing in the file can execute.

    >>> import tempfile
    >>> import torch
    >>> path = Path(tempfile.mkdtemp()) / "vectors.safetensors"
    >>> write_safetensors_vectors(path, KeyedVectors(["green tea"], torch.tensor([[1.0, -0.5]])))
    >>> read_safetensors_vectors(path).vector("green tea").tolist()
    [1.0, -0.5]
    """
    with open_to_read(path) as file:
        try:
            rows, dimension, key_bytes = _read_shapes(file)
            matrix = np.fromfile(file, "<f4", rows * dimension).reshape(rows, dimension)
            keys = _parsed_keys(file.read(key_bytes))
            return KeyedVectors(keys, matrix.astype("=f4", copy=False))
        except ValueError as error:
            raise ValueError(f"{path} holds no vectors of widemax: {error}") from error


def _read_shapes(file: BinaryIO) -> tuple[int, int, int]:
    """Return V, D and the length of the keys if they fill the rest of the file exactly."""
    start = file.read(_LENGTH.size)
    length = _LENGTH.unpack(start)[0] if len(start) == _LENGTH.size else 0
    most = min(_LONGEST_HEADER, bytes_left(file))
    if not 1 <= length <= most:
        raise ValueError(f"its header must have between 1 and {most:,} bytes, got {length:,}")
    stored = file.read(length)
    header = _parsed_header(stored)
    try:
        (rows, dimension), (key_bytes,) = (header[name]["shape"] for name in ("vectors", "keys"))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"it must hold vectors and keys, got {quoted(str(header))}") from error
    if any(type(number) is not int or number < 1 for number in (rows, dimension, key_bytes)):
        raise ValueError(f"its shapes must be whole numbers above 0, got {quoted(str(header))}")
    expected = _header(rows, dimension, key_bytes)
    if stored != expected:
        raise ValueError(f"its header must be {expected!r}, got {stored!r}")
    size = rows * dimension * 4 + key_bytes
    if size != bytes_left(file):
        raise ValueError(f"its tensors take {size:,} bytes, but {bytes_left(file):,} are there")
    return rows, dimension, key_bytes


def _header(rows: int, dimension: int, key_bytes: int) -> bytes:
    """Return the header as the safetensors library itself writes it."""
    end = rows * dimension * 4
    fields = {
        "__metadata__": {_VERSION_FIELD: str(FORMAT_VERSION)},
        "vectors": {"dtype": "F32", "shape": [rows, dimension], "data_offsets": [0, end]},
        "keys": {"dtype": "U8", "shape": [key_bytes], "data_offsets": [end, end + key_bytes]},
    }
    text = json.dumps(fields, separators=(",", ":")).encode()
    return text + b" " * (-len(text) % 8)


def _parsed_header(stored: bytes) -> dict[str, Any]:
    header = parse_json("its header", stored)
    if not isinstance(header, dict):
        raise ValueError(f"its header must be a JSON object, got {quoted(str(header))}")
    metadata = header.get("__metadata__")
    version = metadata.get(_VERSION_FIELD) if isinstance(metadata, dict) else None
    if not isinstance(version, str) or not version.isdecimal():
        raise ValueError(f"field {_VERSION_FIELD} must be a whole number, got {quoted(version)}")
    check_version("it", int(version), FORMAT_VERSION)
    return header


def _parsed_keys(stored: bytes) -> list[str]:
    keys = parse_json("the list of its keys", stored)
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise ValueError("its keys must be a JSON list of strings")
    return keys


@declare.export("safetensors", help="One safetensors file with the keys and the vectors.")
def write_safetensors_vectors(path: str | Path, vectors: KeyedVectors) -> None:
    """Write keys and vectors to one safetensors file, which any reader of the format can open.

    Tensor ``vectors`` is F32 [V, D], tensor ``keys`` the UTF-8 bytes of a JSON list of the keys;
    they are not metadata, of which the format allows at most 100 MB. Any key and every bit is kept.

    >>> import tempfile
    >>> import torch
    >>> from safetensors.numpy import load_file
    >>> path = Path(tempfile.mkdtemp()) / "vectors.safetensors"
    >>> write_safetensors_vectors(path, KeyedVectors(["tea"], torch.tensor([[1.0, -0.5]])))
    >>> bytes(load_file(path)["keys"])
    b'["tea"]'
    """
    matrix = as_array(vectors)
    keys = json.dumps(vectors.keys.to_list(), ensure_ascii=False, separators=(",", ":")).encode()
    header = _header(len(vectors), vectors.dimension, len(keys))
    with atomic_write(path) as file:
        file.write(_LENGTH.pack(len(header)) + header)
        file.write(matrix.data)
        file.write(keys)
