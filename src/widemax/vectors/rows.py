"""Rows of a file on their way into memory: header, places, and what becomes of a bad row."""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from widemax.vectors.keyed import KeyedVectors
from widemax.vocabulary.keys import first_row
from widemax.vocabulary.spelling import quoted

BadRows: TypeAlias = Literal["error", "skip"]

BLOCK_BYTES = 2**20
"""How much of a file is in memory at a time, beside the matrix that it fills."""

_HEADER = re.compile(rb"[ \t]*(\d{1,18})[ \t]+(\d{1,18})[ \t\r]*\n")
_LONGEST_HEADER = 256


def bytes_left(file: BinaryIO) -> int:
    """Return how many bytes follow the present place."""
    return os.fstat(file.fileno()).st_size - file.tell()


def read_header(path: str | Path, file: BinaryIO) -> tuple[int, int]:
    """Return the numbers of rows and columns that the first line of a word2vec file states."""
    line = file.readline(_LONGEST_HEADER)
    match = _HEADER.fullmatch(line)
    if match is None:
        start = line.rstrip(b"\r\n").decode("utf-8", "replace")
        raise ValueError(
            f"{path}, line 1: must hold the number of rows and their dimension, "
            f"got {quoted(start)}; where it is missing (GloVe files have none), put it in front"
        )
    return int(match[1]), int(match[2])


def check_shape(
    path: str | Path, file: BinaryIO, shape: tuple[int, int], smallest_row: int
) -> tuple[int, int]:
    """Return ``shape`` unless it asks for much more than the file can fill.

    A block's worth of slack lets a small fault be found, and named, by its line or byte.
    """
    rows, dimension = shape
    if not rows or not dimension:
        raise ValueError(
            f"{path} must hold at least one row and one column, got {rows} {dimension}"
        )
    if rows * smallest_row > bytes_left(file) + BLOCK_BYTES:
        raise ValueError(
            f"{path}: {rows:,} rows of {dimension:,} numbers take at least "
            f"{rows * smallest_row:,} bytes, but the file ends {bytes_left(file):,} bytes "
            f"after byte {file.tell():,}; it is cut short or its row count is wrong"
        )
    return shape


class RowGatherer:
    """Fills a matrix with the rows of a file, and refuses the bad ones with their place.

    A refusal is an error that ends the reading; with ``bad_rows="skip"`` it is counted, and one
    warning at the end says how many there were and shows the first.
    """

    def __init__(
        self, path: str | Path, unit: Literal["line", "byte"], shape: tuple[int, int], bad: BadRows
    ) -> None:
        if bad not in ("error", "skip"):
            raise ValueError(f"bad_rows must be 'error' or 'skip', got {bad!r}")
        self._path = path
        self._unit = unit
        self._bad = bad
        self._vectors = np.empty(shape, np.float32)
        self._keys = [pl.Series("key", [], dtype=pl.String)]
        self._places = [np.empty(0, np.int64)]
        self._taken = 0
        self._refusals = 0
        self._first_refusal = ""

    def take(
        self, keys: pl.Series, vectors: NDArray[np.float32], places: NDArray[np.int64]
    ) -> None:
        """Take rows that are sound; ``places`` says where in the file each is."""
        self._vectors[self._taken : self._taken + len(keys)] = vectors
        self._keys.append(keys.alias("key"))
        self._places.append(places)
        self._taken += len(keys)

    def fault(self, place: int, problem: str) -> ValueError:
        """Return an error that names the place."""
        return ValueError(f"{self._path}, {self._unit} {place:,}: {problem}")

    def refuse(self, place: int, problem: str) -> None:
        """Raise for a bad row, or count it."""
        fault = self.fault(place, problem)
        if self._bad == "error":
            raise fault
        self._refusals += 1
        self._first_refusal = self._first_refusal or str(fault)

    def finish(self) -> KeyedVectors:
        """Return the rows taken; of rows with the same key only the first is sound."""
        keys, places = pl.concat(self._keys), np.concatenate(self._places)
        vectors = self._vectors[: self._taken]
        if keys.n_unique() < len(keys):
            first = keys.is_first_distinct()
            for row in (~first).arg_true():
                self.refuse(int(places[row]), f"key {quoted(keys[row])} appears twice")
            keys, vectors = keys.filter(first), vectors[first.to_numpy()]
        if keys.is_empty():
            raise ValueError(f"no row is sound; the first: {self._first_refusal}")
        if self._refusals:
            warnings.warn(
                f"{self._refusals:,} of {len(self._vectors):,} rows skipped; the first: "
                f"{self._first_refusal}",
                stacklevel=3,
            )
        return KeyedVectors(keys, vectors)


def check_writable(keys: pl.Series, forbidden: str, rule: str) -> None:
    """Raise if a key matches the pattern ``forbidden``; ``rule`` says what keys must be."""
    broken = keys.str.contains(forbidden)
    if broken.any():
        row = first_row(broken)
        raise ValueError(f"keys[{row}] {rule}, got {quoted(keys[row])}")


def as_array(vectors: KeyedVectors) -> NDArray[Any]:
    """Return the matrix as little-endian float32, the order in every file of this room."""
    return vectors.matrix.astype("<f4", copy=False)
