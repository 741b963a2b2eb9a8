"""The vectors of a run, read from its files without torch, which takes seconds to load."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from widemax.config.toml import read_toml
from widemax.filters import Filters
from widemax.runs.folder.catalogue import Catalogue, Neighbour
from widemax.runs.folder.chosen_checkpoint import BEST, chosen_because, trained_checkpoint
from widemax.runs.folder.description import CONFIG, check_run, check_unchanged
from widemax.runs.vectors.nearest import NearestKeys
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
        self._nearest = NearestKeys(self.catalogue, vectors)

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
        return self._nearest.similar(key, filters=filters, leave_out=leave_out, k=k)

    def analogy(self, a: Key, b: Key, c: Key, *, k: int = 10) -> list[Neighbour]:
        """Return what c is to as a is to b: the keys nearest to b − a + c, of unit vectors."""
        return self._nearest.analogy(a, b, c, k=k)


def _table(found: Checkpoint) -> Vectors | None:
    """Return the vectors of a checkpoint, mapped; None if NumPy has no such numbers."""
    table = map_arrays(found.model_file())[0].get(found.vectors)
    if table is None or table.dtype not in (np.float32, np.float16):
        return None
    return table.astype(np.float32, copy=False)
