"""A matrix as NumPy saves it, and its keys in a text file beside it."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from widemax.declarations import declare
from widemax.storage.files import atomic_pair, open_to_read
from widemax.vectors.keyed import KeyedVectors
from widemax.vectors.rows import as_array, bytes_left, check_writable
from widemax.vectors.text_lines import read_keys, write_keys

VECTORS_FILE = "vectors.npy"
KEYS_FILE = "keys.txt"

_HEADER_READERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def read_numpy_vectors(folder: str | Path) -> KeyedVectors:
    """Read ``vectors.npy``, float16 to float64 [V, D], and ``keys.txt``, one key a line.

    An array of objects is refused and never unpickled.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> np.save(folder / "vectors.npy", np.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> (folder / "keys.txt").write_text("tea\\nrum\\n")
    8
    >>> read_numpy_vectors(folder).vector("rum").tolist()
    [3.0, 4.0]
    """
    path = Path(folder) / VECTORS_FILE
    with open_to_read(path) as file:
        matrix = _read_matrix(path, file)
    keys = read_keys(Path(folder) / KEYS_FILE)
    try:
        return KeyedVectors(keys, matrix)
    except ValueError as error:
        raise ValueError(f"{folder} holds no keyed vectors: {error}") from error


def _read_matrix(path: Path, file: BinaryIO) -> NDArray[np.floating]:
    """Return the matrix if the file is exactly as long as its header says.

    NumPy's own reader would allocate whatever the header says before it looks.
    """
    try:
        version = npy.read_magic(file)
        if version not in _HEADER_READERS:
            raise ValueError(f"version {version} is not known")
        shape, by_column, dtype = _HEADER_READERS[version](file)
    except Exception as error:  # the parser behind it answers nonsense with whatever it trips over
        raise ValueError(f"{path} is not a NumPy file: {error}") from error
    if dtype.kind != "f" or dtype.itemsize > 8:
        raise ValueError(f"{path} must hold float16, float32 or float64, got {dtype}")
    if len(shape) != 2 or min(shape) < 1:
        raise ValueError(f"{path} must have shape [V, D], got {list(shape)}")
    size = shape[0] * shape[1] * dtype.itemsize
    if size != bytes_left(file):
        raise ValueError(
            f"{path}: an array {list(shape)} of {dtype} takes {size:,} bytes, "
            f"but {bytes_left(file):,} follow the header"
        )
    matrix = np.fromfile(file, dtype).reshape(shape, order="F" if by_column else "C")
    return matrix.astype(dtype.newbyteorder("="), copy=False)


@declare.export("numpy", help="A folder with vectors.npy, float32 [V, D], and keys.txt.")
def write_numpy_vectors(folder: str | Path, vectors: KeyedVectors) -> None:
    """Write ``vectors.npy``, float32 [V, D], and ``keys.txt`` into a folder, made if need be.

    Keys must contain no line break. Not one .npz: that can be neither mapped into memory nor
    appended to, and keys inside it would be pickled, or padded to the longest.

    >>> import tempfile
    >>> import torch
    >>> folder = Path(tempfile.mkdtemp())
    >>> write_numpy_vectors(folder, KeyedVectors(["tea"], torch.tensor([[1.0, 0.1]])))
    >>> np.load(folder / "vectors.npy").shape
    (1, 2)
    """
    # A byte order mark in front of the first key would be taken for the file's own.
    rule = f"must contain no line break or byte order mark in {KEYS_FILE}"
    check_writable(vectors.keys, r"[\n\r\x{feff}]", rule)
    with atomic_pair(folder, (VECTORS_FILE, KEYS_FILE)) as (matrix, lines):
        npy.write_array(matrix, as_array(vectors), allow_pickle=False)
        write_keys(lines, vectors.keys)
