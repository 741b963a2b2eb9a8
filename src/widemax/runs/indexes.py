"""The nearest-neighbour indexes of a run: built into its folder, used where they are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from widemax.candidates import TopK
from widemax.data import WindowBatch
from widemax.heads import FullHead, ScorerHead
from widemax.index import Index, IndexReport, build_index, load_index, save_index
from widemax.index.building import Kind
from widemax.models import Model
from widemax.scoring import TableScorer

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


def build_indexes(
    folder: Path,
    model: Model,
    vectors: Tensor,
    asked: WindowBatch | None,
    kind: Kind,
    recall: float,
    memory: int = 0,
) -> list[BuiltIndex]:
    """Build what ``recommend`` and ``similar`` search in; without histories only the latter."""
    built = []
    if asked is not None:
        assert isinstance(model.head, ScorerHead)
        with torch.no_grad():
            queries = model.hidden(asked)
        built.append(_build(folder / RECOMMEND, model.head, queries, kind, recall, memory))
    chosen = torch.linspace(0, len(vectors) - 1, min(NUM_QUERIES, len(vectors))).long()
    head = similar_head(vectors)
    built.append(_build(folder / SIMILAR, head, vectors[chosen], kind, recall, memory))
    return built


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


def search(
    index: Index,
    model: Model,
    batch: WindowBatch,
    k: int,
    exclude: Tensor | None,
    allowed: Tensor | None = None,
) -> TopK:
    """Return what an index finds for a batch, of all classes or those that are allowed."""
    return index.search(model.hidden(batch), k, exclude=exclude, allowed=allowed)
