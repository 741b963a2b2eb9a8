"""Which keys have the nearest vectors: what is similar to one, and analogies, without torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widemax.filters import Filters
from widemax.limits import check_whole
from widemax.runs.folder.catalogue import Catalogue, Neighbour
from widemax.vocabulary.spelling import Key


class NearestKeys:
    """Answers by comparing a vector with those of all keys."""

    def __init__(self, catalogue: Catalogue, vectors: NDArray[Any]) -> None:
        self._catalogue, self._vectors = catalogue, vectors

    def similar(
        self, key: Key, *, filters: Filters | None, leave_out: Sequence[Key], k: int
    ) -> list[Neighbour]:
        """Return the ``k`` keys whose vectors have the largest cosine with that of ``key``."""
        own = self._catalogue.ids([key], strict=True)[0]
        left_out = [own, *self._catalogue.ids(leave_out, strict=True)]
        allowed = self._catalogue.columns.allowed(filters) if filters else None
        return self._nearest(self._vectors[own], k, left_out, allowed)

    def analogy(self, a: Key, b: Key, c: Key, *, k: int) -> list[Neighbour]:
        """Return what c is to as a is to b: the keys nearest to b − a + c, of unit vectors."""
        ids = self._catalogue.ids([a, b, c], strict=True)
        return self._nearest(_analogy(self._vectors[ids]), k, ids)

    def _nearest(
        self,
        query: NDArray[Any],
        k: int,
        left_out: Sequence[int],
        allowed: NDArray[np.bool_] | None = None,
    ) -> list[Neighbour]:
        k = check_whole("k", k, 1, 2**31)
        ids, scores = nearest(self._vectors, query, k, left_out=left_out, allowed=allowed)
        return self._catalogue.neighbours(ids.tolist(), scores.tolist())


def _analogy(rows: NDArray[Any]) -> NDArray[Any]:
    """Return b − a + c of the rows a, b, c [3, D], each of length 1."""
    a, b, c = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    query: NDArray[Any] = b - a + c
    return query


def nearest(
    vectors: NDArray[Any],
    query: NDArray[Any],
    k: int,
    *,
    left_out: Sequence[int] = (),
    allowed: NDArray[np.bool_] | None = None,
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return the ids and cosines of the k rows [V, D] nearest to a query [D], best first.

    Of equal ones the smaller id comes first; rows of length 0 have the cosine 0. ``allowed``, bool
    [V], are the rows that may be among them.

    >>> rows = np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]], np.float32)
    >>> ids, cosines = nearest(rows, rows[0], 2, left_out=[0])
    >>> ids.tolist(), [round(float(each), 3) for each in cosines]
    ([2, 1], [0.707, 0.0])
    """
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float32))
    length = float(np.linalg.norm(query))
    scores = vectors @ query / np.maximum(lengths * length, np.finfo(np.float32).tiny)
    passing = np.ones(len(scores), np.bool_) if allowed is None else allowed.copy()
    passing[list(left_out)] = False
    scores[~passing] = -np.inf
    return best_rows(scores, min(k, int(passing.sum())))


def best_rows(scores: NDArray[Any], count: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return where the largest scores [V] are, and the scores; of equal ones the first come first.

    >>> rows, scores = best_rows(np.array([0.5, 2.0, 0.5]), 2)
    >>> rows.tolist(), scores.tolist()
    ([1, 0], [2.0, 0.5])
    """
    if count <= 0:
        return np.empty(0, np.int64), scores[:0]
    some = np.flatnonzero(scores >= np.partition(scores, -count)[-count])
    best = some[np.lexsort((some, -scores[some]))][:count]
    return best, scores[best]
