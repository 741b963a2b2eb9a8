"""Tensors as safetensors files: written piece by piece, read without executing anything."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from widemax.storage.files import check_regular
from widemax.storage.json_text import parse_json

MAX_HEADER_BYTES = 100_000_000
"""Longest header that readers of safetensors take."""

_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_METADATA = "__metadata__"
_TIES = "widemax.ties"


def serialize_tensors(tensors: Mapping[str, Tensor]) -> Iterator[memoryview]:
    """Return the bytes of a safetensors file, tensor by tensor.

    At most one tensor is copied at a time, and none that lies contiguous on the CPU. Names that
    share one tensor (tied weights) are stored once, and ``read_tensors`` ties them again. The
    library's own writer refuses those, copies all it must before it begins, and cannot hash.
    """
    for name, tensor in tensors.items():
        _check_storable(name, tensor)
    ties = _find_ties(tensors)
    stored = {name: tensor for name, tensor in tensors.items() if name not in ties}
    # Wide types first: then every tensor begins at a multiple of its own width.
    names = sorted(stored, key=lambda name: -stored[name].element_size())
    header: dict[str, Any] = {_METADATA: {_TIES: json.dumps(ties)}} if ties else {}
    start = 0
    for name in names:
        end = start + stored[name].numel() * stored[name].element_size()
        header[name] = {
            "dtype": _DTYPES[stored[name].dtype],
            "shape": list(stored[name].shape),
            "data_offsets": [start, end],
        }
        start = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER_BYTES:
        raise ValueError(
            f"the names and shapes of all tensors may take {MAX_HEADER_BYTES:,} bytes, "
            f"got {len(text):,}; store fewer, larger tensors"
        )
    return _chunks(text, (stored[name] for name in names))


def _chunks(header: bytes, tensors: Iterator[Tensor]) -> Iterator[memoryview]:
    yield memoryview(len(header).to_bytes(8, "little") + header)
    for tensor in tensors:
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        yield flat.view(torch.uint8).numpy().data


def read_tensors(
    path: str | Path, rows_of: Callable[[str, list[int]], range | None] | None = None
) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file, on the CPU and in memory of their own.

    Where ``rows_of`` returns rows for a name and a shape, these are read and no others.
    """
    check_regular(path)
    try:
        # Read, not mapped: a mapping would fault if the file shrinks, and would keep the space of
        # a removed checkpoint taken for as long as the optimiser holds its tensors.
        with safe_open(str(path), framework="pt", backend="pread") as file:
            if rows_of is None:
                tensors: dict[str, Tensor] = file.get_tensors()
            else:
                names = file.keys()
                tensors = {name: _some_rows(file, name, rows_of) for name in names}
            metadata = file.metadata() or {}
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
    except (SafetensorError, RuntimeError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{path} is not a whole safetensors file: {reason}") from error
    for name, kept in _stored_ties(path, metadata).items():
        if kept not in tensors or name in tensors:
            raise ValueError(f"{path} ties {name!r} to {kept!r}, which does not fit its tensors")
        tensors[name] = tensors[kept]
    return tensors


def _some_rows(file: Any, name: str, rows_of: Callable[[str, list[int]], range | None]) -> Tensor:
    part = file.get_slice(name)
    rows = rows_of(name, part.get_shape())
    found: Tensor = file.get_tensor(name) if rows is None else part[rows.start : rows.stop]
    return found


def _check_storable(name: str, tensor: Tensor) -> None:
    # A lone surrogate is text of Python, but not of any file.
    storable = isinstance(name, str) and name.encode(errors="replace").decode() == name
    if not storable or name == _METADATA:
        raise ValueError(f"names of tensors must be strings other than {_METADATA!r}, got {name!r}")
    if not isinstance(tensor, Tensor):
        raise ValueError(f"{name} must be a tensor, got {type(tensor).__name__}")
    plain = tensor.layout == torch.strided and not (tensor.is_meta or tensor.is_neg())
    if not plain or tensor.dtype not in _DTYPES:
        raise ValueError(
            f"{name} must be a dense tensor of real or whole numbers, got {tensor.layout}, "
            f"{tensor.dtype} on {tensor.device}"
        )


def _find_ties(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Return the names whose tensor another name has already, with that name."""
    ties: dict[str, str] = {}
    first: dict[object, str] = {}
    for name, tensor in tensors.items():
        # Empty tensors have no memory to share.
        if tensor.numel():
            layout = (tensor.dtype, tensor.shape, tensor.stride())
            kept = first.setdefault((tensor.device, tensor.data_ptr(), *layout), name)
            if kept != name:
                ties[name] = kept
    return ties


def _stored_ties(path: str | Path, metadata: Mapping[str, str]) -> dict[str, str]:
    ties = parse_json(f"{path}, field {_TIES}", metadata.get(_TIES, "{}"))
    if not isinstance(ties, dict) or not all(isinstance(kept, str) for kept in ties.values()):
        raise ValueError(f"{path}, field {_TIES} must give a name for each name")
    return ties
