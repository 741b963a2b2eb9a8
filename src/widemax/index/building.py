"""An index of a head: which kind, how broad its search, and how much it finds."""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor

from widemax.heads import ScorerHead
from widemax.index.base import Index
from widemax.index.exact import ExactIndex
from widemax.index.faiss_index import FaissIndex, HNSWIndex, IVFIndex
from widemax.index.recall import ExactAnswer, IndexReport
from widemax.validation import check_positive

FEWEST_FOR_APPROXIMATE = 50_000
"""Below so many classes an exact search is quick enough, and always right."""

INDEX_CLASSES: dict[str, type[Index]] = {
    each.kind: each for each in (ExactIndex, HNSWIndex, IVFIndex)
}

Kind = Literal["auto", "exact", "hnsw", "ivf"]


def build_index(
    kind: Kind, head: ScorerHead, queries: Tensor, *, recall: float = 0.95, **options: Any
) -> tuple[Index, IndexReport]:
    """Build an index, broad enough for these queries, and report what it finds of the exact answer.

    "auto" is exact below 50,000 classes and "ivf" from there on. The breadth of an approximate
    search doubles until recall@10, measured on ``queries``, is at least ``recall``: give hidden
    states of users as they will come, [B, D] or [B, K, D]; a thousand estimate the recall to about
    0.01. ``options`` are those of the index.

    >>> import torch
    >>> import widemax as wm
    >>> index, report = build_index("auto", wm.FullHead(wm.TableScorer(99, 8)), torch.randn(5, 8))
    >>> index.kind, report.recall
    ('exact', 1.0)
    """
    if kind not in ("auto", *INDEX_CLASSES):
        raise ValueError(f"kind must be one of auto, {', '.join(INDEX_CLASSES)}, got {kind!r}")
    if check_positive("recall", recall) > 1:
        raise ValueError(f"recall must be at most 1, got {recall}")
    if kind == "auto":
        kind = "exact" if head.num_classes < FEWEST_FOR_APPROXIMATE else "ivf"
    if kind == "exact" and options:
        raise ValueError(f"an exact index takes no options, got {', '.join(options)}")
    exact = ExactIndex(head)
    # Before the index is built, which may take minutes: the queries may be wrong.
    answer = ExactAnswer(exact, queries, min(10, exact.num_classes))
    index = exact if kind == "exact" else INDEX_CLASSES[kind](head, **options)
    report = answer.compare(index)
    while isinstance(index, FaissIndex) and report.recall < recall:
        if index.breadth >= index.largest_breadth:
            break
        index.breadth = min(2 * index.breadth, index.largest_breadth)
        report = answer.compare(index)
    return index, report
