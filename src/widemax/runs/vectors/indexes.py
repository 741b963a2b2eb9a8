"""The nearest-neighbour indexes of a run: built into its folder, used where they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from widemax.candidates import TopK
from widemax.data import WindowBatch
from widemax.filters import Filters
from widemax.heads import FullHead, ScorerHead
from widemax.index import Index, IndexReport, build_index, load_index, save_index
from widemax.index.building import Kind
from widemax.models import Model
from widemax.runs.folder.catalogue import Catalogue, Neighbour
from widemax.runs.folder.description import INDEX
from widemax.runs.vectors.key_vectors import KeyVectors
from widemax.scoring import TableScorer
from widemax.validation import ABSENT, check_whole
from widemax.vocabulary.spelling import Key

RECOMMEND, SIMILAR = "recommend", "similar"
NUM_QUERIES = 1000
"""Most questions by which the recall of an index is measured."""


@dataclass(frozen=True, kw_only=True)
class BuiltIndex:
    """An index that was built: what for, of which kind, and how much it finds."""

    purpose: str
    """recommend or similar."""
    kind: str
    """exact, ivf, ivf8 or hnsw."""
    report: IndexReport
    """How much of the exact answer it finds, and how fast."""


class RunIndexes:
    """The indexes that were built of a run, each read when it is first searched."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / INDEX
        self._read: dict[str, Index | None] = {}

    def to_recommend(self, model: Model) -> Index | None:
        """Return what hidden states are searched in; None if none was built, or can be."""
        if RECOMMEND not in self._read:
            self._read[RECOMMEND] = self._recommend_index(model)
        return self._read[RECOMMEND]

    def to_compare(self, vectors: KeyVectors) -> Index | None:
        """Return what the vectors of keys are searched in; None if none was built."""
        if SIMILAR not in self._read:
            self._read[SIMILAR] = self._similar_index(vectors)
        return self._read[SIMILAR]

    def _recommend_index(self, model: Model) -> Index | None:
        if not searches_by_product(model):
            return None
        assert isinstance(model.head, ScorerHead)
        return stored_index(self._folder / RECOMMEND, model.head)

    def _similar_index(self, vectors: KeyVectors) -> Index | None:
        folder = self._folder / SIMILAR
        return stored_index(folder, similar_head(vectors.table())) if folder.is_dir() else None

    def build(
        self,
        model: Model,
        vectors: KeyVectors,
        asked: WindowBatch | None,
        kind: Kind,
        *,
        recall: float,
        memory: int = 0,
    ) -> list[BuiltIndex]:
        """Build what ``recommend`` and ``similar`` search in; without histories only the latter."""
        table, built = vectors.table(), []
        if asked is not None:
            assert isinstance(model.head, ScorerHead)
            with torch.no_grad():
                queries = model.hidden(asked)
            folder = self._folder / RECOMMEND
            built.append(_build(folder, model.head, queries, kind, recall, memory))
        chosen = torch.linspace(0, len(table) - 1, min(NUM_QUERIES, len(table))).long()
        head = similar_head(table)
        built.append(_build(self._folder / SIMILAR, head, table[chosen], kind, recall, memory))
        self._read.clear()
        return built

    def change(
        self, model: Model, vectors: KeyVectors, *, remove: Sequence[int], restore: Sequence[int]
    ) -> int:
        """Never find some classes, or do so again, and return how many are left out now."""
        # Read again: another process may have changed them.
        self._read.clear()
        indexes = {RECOMMEND: self.to_recommend(model), SIMILAR: self.to_compare(vectors)}
        there = {name: index for name, index in indexes.items() if index is not None}
        if not there:
            raise ValueError(
                f"{self._folder.parent} has no index yet: build it first (widemax index)"
            )
        gone, back = (torch.tensor(ids, dtype=torch.int64) for ids in (remove, restore))
        for name, index in there.items():
            index.remove(gone)
            index.restore(back)
            save_index(self._folder / name, index)
        return max(len(index.removed) for index in there.values())


def _build(
    folder: Path, head: ScorerHead, queries: Tensor, kind: Kind, recall: float, memory: int
) -> BuiltIndex:
    index, report = build_index(kind, head, queries, recall=recall, memory=memory)
    save_index(folder, index)
    return BuiltIndex(purpose=folder.name, kind=index.kind, report=report)


def searches_by_product(model: Model) -> bool:
    """Return whether a model ranks classes by the product of hidden states and class vectors."""
    product = isinstance(model.head, ScorerHead) and type(model).topk is Model.topk
    return product and model.never_recommended is None


def similar_head(vectors: Tensor) -> FullHead:
    """Return a head that scores by the cosine with these vectors, [V, D]."""
    scorer = TableScorer(*vectors.shape, similarity="cosine")
    scorer.weight.data.copy_(vectors)
    return FullHead(scorer)


def stored_index(folder: Path, head: ScorerHead) -> Index | None:
    """Return the index in a folder; None if none was built. One of another model is refused."""
    return load_index(folder, head) if folder.is_dir() else None


def similar_by_index(
    index: Index,
    vectors: Tensor,
    catalogue: Catalogue,
    key: Key,
    *,
    filters: Filters | None,
    leave_out: Sequence[Key],
    k: int,
) -> list[Neighbour]:
    """Return what ``NearestKeys.similar`` does, as far as an index of the vectors finds it."""
    own = catalogue.ids([key], strict=True)[0]
    left_out = [own, *catalogue.ids(leave_out, strict=True)]
    found = index.search(
        vectors[[own]],
        min(check_whole("k", k, 1, 2**31), len(vectors)),
        exclude=torch.tensor([left_out]),
        allowed=torch.from_numpy(catalogue.columns.allowed(filters)) if filters else None,
    )
    return catalogue.neighbours(*first_row(found))


def first_row(found: TopK) -> tuple[list[int], list[float]]:
    """Return the classes of the first row and their scores, without the gaps."""
    ids, scores = found.ids.tolist()[0], found.scores.tolist()[0]
    if ABSENT not in ids:
        return ids, scores
    there = [place for place, row in enumerate(ids) if row != ABSENT]
    return [ids[place] for place in there], [scores[place] for place in there]
