"""Keys and one vector for each: what the files of this room hold."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from widemax.vocabulary.keys import Keys, as_keys, first_row
from widemax.vocabulary.spelling import MOST_COMPARED, not_among, quoted

# torch is loaded by what returns tensors: vectors are written to files without it.
if TYPE_CHECKING:
    from torch import Tensor


class KeyedVectors:
    """Distinct keys and one finite vector for each, which never change.

    Key i belongs to row i of the matrix, a tensor or an array. Keys that are whole numbers become
    their decimal text, other floating types float32. A float32 matrix on the CPU is not copied: a
    model that continues to train on it needs a ``clone``.

    >>> import torch
    >>> vectors = KeyedVectors(["tea", "rum"], torch.tensor([[1.0, 0.0], [0.5, 2.0]]))
    >>> vectors
    KeyedVectors(2 keys, dimension 2: 'tea', 'rum')
    >>> vectors.vector("rum").tolist()
    [0.5, 2.0]
    """

    def __init__(self, keys: Keys, vectors: Tensor | NDArray[Any]) -> None:
        self._keys = as_keys(keys).cast(pl.String)
        self._matrix = _as_matrix(vectors)
        if len(self._keys) != len(self._matrix):
            raise ValueError(
                f"vectors must have one row for each of the {len(self._keys):,} keys, "
                f"got {len(self._matrix):,}"
            )
        if self._keys.n_unique() < len(self._keys):
            row = first_row(~self._keys.is_first_distinct())
            raise ValueError(f"keys[{row}] is {quoted(self._keys[row])}, which appears twice")
        broken = ~finite_rows(self._matrix)
        if broken.any():
            row = int(np.flatnonzero(broken)[0])
            raise ValueError(
                f"vectors must be finite in float32, got NaN or inf in row {row} "
                f"(key {quoted(self._keys[row])})"
            )

    @property
    def keys(self) -> pl.Series:
        """The keys in the order of the rows."""
        return self._keys

    @property
    def matrix(self) -> NDArray[np.float32]:
        """The matrix as an array, float32 [V, D]."""
        return self._matrix

    @property
    def vectors(self) -> Tensor:
        """The matrix, float32 [V, D]."""
        import torch

        return torch.from_numpy(self._matrix)

    @property
    def dimension(self) -> int:
        """The length D of each vector."""
        return int(self._matrix.shape[1])

    def vector(self, key: str) -> Tensor:
        """Return the vector of one key, [D]; for many, gather rows of ``vectors``."""
        row = self._row_by_key.get(key)
        if row is None:
            raise ValueError(
                f"key {not_among(key, self._keys.head(MOST_COMPARED).to_list(), len(self))}"
            )
        return self.vectors[row]

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._row_by_key

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, KeyedVectors):
            return NotImplemented
        return self._keys.equals(other._keys) and np.array_equal(self._matrix, other._matrix)

    __hash__ = None  # type: ignore[assignment]  # a hash would have to read every number

    def __repr__(self) -> str:
        first = ", ".join(quoted(key) for key in self._keys.head(3))
        more = ", …" if len(self) > 3 else ""
        return f"KeyedVectors({len(self):,} keys, dimension {self.dimension:,}: {first}{more})"

    @cached_property
    def _row_by_key(self) -> Mapping[object, int]:
        return {key: row for row, key in enumerate(self._keys)}


def finite_rows(vectors: NDArray[Any]) -> NDArray[np.bool_]:
    """Return whether each row of [V, D] is free of NaN and inf, bool [V]."""
    # The extremes of a row are finite only if all of it is, and need no second [V, D].
    found: NDArray[np.bool_] = np.isfinite(vectors.min(axis=1)) & np.isfinite(vectors.max(axis=1))
    return found


def _as_matrix(vectors: Tensor | NDArray[Any]) -> NDArray[np.float32]:
    if not isinstance(vectors, np.ndarray):
        from widemax.validation import check_tensor

        check_tensor("vectors", vectors)
    if vectors.ndim != 2 or 0 in vectors.shape:
        raise ValueError(
            "vectors must have shape [V, D] with at least one row and one column, "
            f"got {list(vectors.shape)}"
        )
    if isinstance(vectors, np.ndarray):
        floating = bool(np.issubdtype(vectors.dtype, np.floating))
    else:
        floating = vectors.is_floating_point()
    if not floating:
        raise ValueError(f"vectors must be floating point, got dtype {vectors.dtype}")
    if not isinstance(vectors, np.ndarray):
        vectors = vectors.detach().cpu().float().contiguous().numpy()
    with np.errstate(over="ignore"):  # what float32 cannot hold is named with its row
        return np.ascontiguousarray(vectors, np.float32)
