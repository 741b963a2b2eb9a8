"""A table in a file, for tables larger than memory."""

from __future__ import annotations

import math
import mmap
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from tokenize import TokenError
from typing import Any, BinaryIO, NoReturn, Self

import numpy as np
import torch
from numpy.lib import format as npy
from rich.progress import track
from torch import Tensor, nn

from widemax.scoring.table import (
    Initial,
    Similarity,
    TableScorer,
    check_similarity,
    check_table_size,
    initial_deviation,
)
from widemax.storage.files import check_regular, sync_folder

_FLOAT = np.dtype(np.float32)
_BLOCK_VALUES = 2**24  # 64 MB of a table whose initial values are drawn


class MappedTableScorer(TableScorer):
    """A table in a file, of which memory holds the rows in use.

    Formula: as ``TableScorer``.

    Shapes: the file at ``path`` is a NumPy array (.npy), float32 [V, D]; the biases [V] are another
    beside it (vectors.npy, vectors.bias.npy), so that nothing here has V values in memory. A
    missing file is created: ``initial`` zeros (holes, which take no disk until they are written) or
    normal as in ``TableScorer`` (written whole). An existing file is opened as it is.

    Cost: O(1) to open, create or drop. A step reads and writes the pages (4 KB) of its rows;
    resident memory grows with the pages touched, which the kernel may reclaim. Gradients of given
    ids are always sparse. Heads read all classes tile by tile, without read-ahead; where the
    similarity is cosine they do so from a copy in memory.

    Reference: the zero start of class vectors: word2vec (Mikolov et al. 2013).

    Use when: the table is larger than memory, or several processes serve one table. Avoid when: it
    fits (``TableScorer``), or the loss is over all classes: its gradient is as large as the table.

    On disk: updates before a ``flush`` survive a crash of the machine, later ones only a crash of
    the process. There is no journal: a crash during training may leave some updates of a step and
    not others. Creation never replaces a file and needs room for all of it, but holes do not hold
    that room: if others fill the disk meanwhile, a write ends the process (SIGBUS).
    ``reserve=True`` takes the room at once. Scorers on one file, here or in other processes, see
    each other's updates at once; nothing orders concurrent updates of one row.

    The file is the state: ``state_dict`` leaves vectors and biases out, and a checkpoint does not
    restore them. ``load_state_dict`` copies them into the file if they are given. Deep copies,
    casts and moves to a device are refused: they would load the table into memory.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "vectors.npy"
    >>> scorer = MappedTableScorer(path, 1000, 4)
    >>> with torch.no_grad():
    ...     scorer.weight[7] = 1.5
    >>> scorer.flush()
    >>> float(np.load(path, mmap_mode="r")[7].sum())
    6.0
    """

    path: Path
    """The file of the vectors."""

    def __init__(
        self,
        path: str | Path,
        num_classes: int,
        dimension: int,
        *,
        bias: bool = False,
        similarity: Similarity = "dot",
        temperature: float = 1.0,
        initial: Initial = "zeros",
        reserve: bool = False,
    ) -> None:
        num_classes, dimension = check_table_size(num_classes, dimension)
        check_similarity(similarity, temperature)
        if initial not in ("zeros", "normal"):
            raise ValueError(f"initial must be 'zeros' or 'normal', got {initial!r}")
        path = Path(path)
        beside = path.with_name(f"{path.stem}.bias{path.suffix}")
        if _is_missing(path):
            if similarity == "cosine" and initial == "zeros":
                raise ValueError(
                    "initial must be 'normal' where the similarity is cosine: a vector of zeros "
                    "has no direction"
                )
            _create(path, (num_classes, dimension), initial)
        vectors = _MappedFile(path, (num_classes, dimension), reserve=reserve)
        biases = _open_biases(beside, num_classes, wanted=bias, reserve=reserve)
        parameter = False if biases is None else nn.Parameter(biases.tensor)
        self._set_up(nn.Parameter(vectors.tensor), parameter, similarity, temperature, sparse=True)
        self.path = path
        self._files = [file for file in (vectors, biases) if file is not None]

    def flush(self) -> None:
        """Wait until all updates so far are on disk."""
        for file in self._files:
            file.memory.flush()

    def extra_repr(self) -> str:
        """Return what ``print(scorer)`` shows."""
        return f"{super().extra_repr()}, path={str(self.path)!r}"

    def __deepcopy__(self, memo: dict[int, Any]) -> NoReturn:
        raise ValueError(
            f"a mapped table is not deep-copied, it may not fit into memory: copy the file "
            f"{self.path} and open the copy"
        )

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        """Refuse to cast or move the table: it would leave its file."""
        stays, moved = self.weight, fn(self.weight.new_empty(0))
        if (moved.dtype, moved.device) != (stays.dtype, stays.device):
            raise ValueError(
                f"a mapped table stays {stays.dtype} on the CPU, in its file, got {moved.dtype} on "
                f"{moved.device}: copy it with as_table first"
            )
        return self

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep: bool) -> None:
        """Save nothing: the file is the state."""

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        metadata: dict[str, Any],
        strict: bool,
        missing: list[str],
        *rest: Any,
    ) -> None:
        """Copy what is given into the file, which has the rest already."""
        before = len(missing)
        metadata = {**metadata, "assign_to_params_buffers": False}
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, missing, *rest)
        del missing[before:]


def _open_biases(
    path: Path, num_classes: int, *, wanted: bool, reserve: bool
) -> _MappedFile | None:
    if not wanted:
        if not _is_missing(path):
            raise ValueError(f"bias is False, but the table has biases in {path}: pass bias=True")
        return None
    if _is_missing(path):
        _create(path, (num_classes,), "zeros")
    return _MappedFile(path, (num_classes,), reserve=reserve)


def _is_missing(path: Path) -> bool:
    try:
        path.stat()
    except FileNotFoundError:
        return True
    except OSError:
        pass  # opening the file reports what is wrong
    return False


class _MappedFile:
    """A float32 .npy file as a tensor that shares its memory with all who map the file."""

    def __init__(self, path: Path, shape: tuple[int, ...], *, reserve: bool) -> None:
        if reserve and not hasattr(os, "posix_fallocate"):
            raise ValueError("reserve must be False: this system cannot reserve room on disk")
        check_regular(path)
        try:
            with path.open("r+b") as file:
                start = _check_header(file, path, shape)
                if reserve:
                    # Holes become allocated blocks; what is written stays.
                    os.posix_fallocate(file.fileno(), 0, start + _size(shape))
                self.memory = mmap.mmap(file.fileno(), 0)
        except OSError as error:
            message = f"{path} cannot be opened for writing: {error.strerror or error}"
            raise ValueError(message) from error
        if hasattr(mmap, "MADV_RANDOM"):
            # Rows lie anywhere: what the kernel read ahead would be read for nothing.
            self.memory.madvise(mmap.MADV_RANDOM)
        values = torch.frombuffer(self.memory, dtype=torch.float32, offset=start)
        self.tensor: Tensor = values.view(shape)


def _check_header(file: BinaryIO, path: Path, shape: tuple[int, ...]) -> int:
    """Return where the values start if the file holds exactly such an array."""
    try:
        if npy.read_magic(file) != (1, 0):
            raise ValueError("not version 1.0")
        found, by_columns, dtype = npy.read_array_header_1_0(file)
    except (ValueError, EOFError, SyntaxError, TokenError) as error:
        raise ValueError(f"{path} is not a NumPy file: {error}") from error
    if (found, dtype, by_columns) != (shape, _FLOAT, False):
        order = " by columns" if by_columns else ""
        raise ValueError(
            f"{path} holds {dtype} {list(found)}{order}, but {_FLOAT} {list(shape)} was asked for"
        )
    start = file.tell()
    size, wanted = os.fstat(file.fileno()).st_size, start + _size(shape)
    if size != wanted:
        raise ValueError(f"{path} is damaged: it has {size:,} bytes instead of {wanted:,}")
    return start


def _create(path: Path, shape: tuple[int, ...], initial: Initial) -> None:
    """Create a file that takes its name only once it is whole, and never that of another."""
    if not path.parent.is_dir():
        raise ValueError(f"path must lie in an existing folder, got {str(path)!r}")
    size, free = _size(shape), shutil.disk_usage(path.parent).free
    if size > free:
        raise ValueError(
            f"{path} of shape {list(shape)} needs {size:,} bytes, but only {free:,} are free"
        )
    temporary = path.with_name(f".{secrets.token_hex(8)}.part")
    try:
        with temporary.open("xb") as file:
            header = {"descr": _FLOAT.str, "fortran_order": False, "shape": shape}
            npy.write_array_header_1_0(file, header)
            end = file.tell() + size
            for block in _normal_blocks(*shape) if initial == "normal" else ():
                file.write(block)
            file.truncate(end)
            file.flush()
            os.fsync(file.fileno())
        # Unlike a rename, a link fails where a file already stands.
        path.hardlink_to(temporary)
        sync_folder(path.parent)
    except FileExistsError:
        pass  # another process was faster: its file is checked when it is opened
    except OSError as error:
        raise ValueError(f"{path} cannot be created: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _normal_blocks(num_classes: int, dimension: int) -> Iterator[memoryview]:
    rows = max(1, _BLOCK_VALUES // dimension)
    starts = range(0, num_classes, rows)
    for start in track(starts, "drawing the class vectors", disable=len(starts) == 1):
        block = torch.empty(min(rows, num_classes - start), dimension)
        yield block.normal_(std=initial_deviation(dimension)).numpy().data


def _size(shape: tuple[int, ...]) -> int:
    return math.prod(shape) * _FLOAT.itemsize
