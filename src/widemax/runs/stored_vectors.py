"""The vectors of a run, read from its files without torch, which takes seconds to load."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from widemax.config.toml import read_toml
from widemax.filters import Filters
from widemax.limits import check_whole
from widemax.runs.catalogue import Catalogue, Neighbour
from widemax.runs.chosen_checkpoint import BEST, chosen_because, trained_checkpoint
from widemax.runs.description import CONFIG, check_run, check_unchanged
from widemax.storage.arrays import map_arrays
from widemax.training.checkpoint_files import Checkpoint
from widemax.vocabulary.spelling import Key

Vectors: TypeAlias = NDArray[np.float32]


class StoredVectors:
    """What a run answers by its vectors alone: which keys are similar, and analogies.

    The answers are those of ``Run``, which has the model too.
    """

    def __init__(self, folder: Path, found: Checkpoint, chosen: str, vectors: Vectors) -> None:
        self.folder, self.step, self.chosen = folder, found.step, chosen
        self.catalogue = Catalogue(folder)
        self.vectors = vectors

    @classmethod
    def open(cls, folder: Path, checkpoint: str | int = BEST) -> StoredVectors | None:
        """Return the vectors of a run; None if only its model has them: they are computed."""
        check_run(folder)
        metric = str(read_toml(check_unchanged(folder, CONFIG)).get("metric", ""))
        found = trained_checkpoint(folder, checkpoint)
        vectors = _table(found) if found.vectors else None
        if vectors is None:
            return None
        return cls(folder, found, chosen_because(folder, found, checkpoint, metric), vectors)

    def similar(
        self,
        key: Key,
        *,
        filters: Filters | None = None,
        leave_out: Sequence[Key] = (),
        k: int = 10,
        exact: bool = True,
    ) -> list[Neighbour]:
        """Return the ``k`` keys whose vectors have the largest cosine with that of ``key``.

        ``filters`` name values of features that items must have, ``leave_out`` keys that must not
        be among the answers, as of ``Run.recommend``.
        All are compared, whatever ``exact`` is: an index is searched by ``Run``.
        """
        own = self.catalogue.ids([key], strict=True)[0]
        allowed = self.catalogue.columns.allowed(filters) if filters else None
        left_out = [own, *self.catalogue.ids(leave_out, strict=True)]
        return self._nearest(self.vectors[own], k, left_out, allowed)

    def analogy(self, a: Key, b: Key, c: Key, *, k: int = 10) -> list[Neighbour]:
        """Return what c is to as a is to b: the keys nearest to b − a + c, of unit vectors."""
        ids = self.catalogue.ids([a, b, c], strict=True)
        return self._nearest(analogy_of(self.vectors[ids]), k, ids)

    def _nearest(
        self,
        query: Vectors,
        k: int,
        left_out: Sequence[int],
        allowed: NDArray[np.bool_] | None = None,
    ) -> list[Neighbour]:
        k = check_whole("k", k, 1, 2**31)
        ids, scores = nearest(self.vectors, query, k, left_out=left_out, allowed=allowed)
        return self.catalogue.neighbours(ids.tolist(), scores.tolist())


def _table(found: Checkpoint) -> Vectors | None:
    """Return the vectors of a checkpoint, mapped; None if NumPy has no such numbers."""
    table = map_arrays(found.model_file())[0].get(found.vectors)
    if table is None or table.dtype not in (np.float32, np.float16):
        return None
    return table.astype(np.float32, copy=False)


def analogy_of(rows: NDArray[Any]) -> NDArray[Any]:
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
