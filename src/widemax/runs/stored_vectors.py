"""The vectors of a run, read from its files without torch: what is similar, within half a second."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Vectors: TypeAlias = NDArray[np.floating[Any]]

_READABLE = ("F32", "F16", "F64")
"""What NumPy has a type for; others are read with torch."""


def nearest(
    vectors: Vectors, query: Vectors, k: int, *, left_out: Sequence[int] = ()
) -> tuple[NDArray[np.int64], Vectors]:
    """Return the ids and cosines of the k rows [V, D] nearest to a query [D], best first.

    Of equal ones the smaller id comes first; rows of length 0 have the cosine 0.

    >>> rows = np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]], np.float32)
    >>> ids, cosines = nearest(rows, rows[0], 2, left_out=[0])
    >>> ids.tolist(), cosines.round(3).tolist()
    ([2, 1], [0.707, 0.0])
    """
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float32))
    length = float(np.linalg.norm(query))
    scores = vectors @ query / np.maximum(lengths * length, np.finfo(np.float32).tiny)
    scores[list(left_out)] = -np.inf
    count = min(k, len(scores) - len(set(left_out)))
    if count <= 0:
        return np.empty(0, np.int64), scores[:0]
    some = np.flatnonzero(scores >= np.partition(scores, -count)[-count])
    best = some[np.lexsort((some, -scores[some]))][:count]
    return best, scores[best]
