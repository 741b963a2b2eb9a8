"""An index of a head: which kind, how broad its search, and how much it finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from widemax.heads import ScorerHead
from widemax.index.base import Index
from widemax.index.exact import ExactIndex
from widemax.index.faiss_index import FaissIndex, HNSWIndex, IVF8Index, IVFIndex
from widemax.index.recall import ExactAnswer, IndexReport
from widemax.validation import check_positive, check_whole

FEWEST_FOR_APPROXIMATE = 50_000
"""Below so many classes an exact search is quick enough, and always right."""

INDEX_CLASSES: dict[str, type[Index]] = {
    each.kind: each for each in (ExactIndex, HNSWIndex, IVFIndex, IVF8Index)
}

Kind = Literal["auto", "exact", "hnsw", "ivf", "ivf8"]

_NARROWINGS = 3
"""How often the range is halved in which the least breadth lies that finds enough."""


def build_index(
    kind: Kind,
    head: ScorerHead,
    queries: Tensor,
    *,
    recall: float = 0.95,
    memory: int = 0,
    **options: Any,
) -> tuple[Index, IndexReport]:
    """Build an index, broad enough for these queries, and report what it finds of the exact answer.

    "auto" goes by size and memory, see ``kind_for``; ``memory`` is how many bytes the index may
    take, 0 for half of what the machine has free. The breadth of an approximate search doubles
    until recall@10, measured on ``queries``, is at least ``recall``, and then shrinks as far as it
    stays so: give hidden states of users as they will come, [B, D] or [B, K, D]; a thousand
    estimate the recall to about 0.01. ``options`` are those of the index.

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
        free = check_whole("memory", memory, 0, 2**62) or free_memory() // 2
        kind = kind_for(head.num_classes, head.scorer.dimension, free)
    if kind == "exact" and options:
        raise ValueError(f"an exact index takes no options, got {', '.join(options)}")
    exact = ExactIndex(head)
    # Before the index is built, which may take minutes: the queries may be wrong.
    answer = ExactAnswer(exact, queries, min(10, exact.num_classes))
    index = exact if kind == "exact" else INDEX_CLASSES[kind](head, **options)
    if not isinstance(index, FaissIndex):
        return index, answer.compare(index)
    return index, _broadened(index, answer, recall)


def _broadened(index: FaissIndex, answer: ExactAnswer, recall: float) -> IndexReport:
    """Give an index about the least breadth that finds enough, and return what it finds."""
    report, too_narrow = answer.compare(index), 0
    while report.recall < recall and index.breadth < index.largest_breadth:
        too_narrow = index.breadth
        index.breadth = min(2 * index.breadth, index.largest_breadth)
        report = answer.compare(index)
    if report.recall < recall:
        return report
    enough = index.breadth
    for _ in range(_NARROWINGS):
        middle = (too_narrow + enough) // 2
        if middle == too_narrow:
            break
        index.breadth = middle
        tried = answer.compare(index)
        if tried.recall < recall:
            too_narrow = middle
        else:
            enough, report = middle, tried
    index.breadth = enough
    return report


def kind_for(num_classes: int, dimension: int, memory: int) -> Literal["exact", "ivf", "ivf8"]:
    """Return the kind of index for so many classes, and so many bytes beside their vectors.

    Below 50,000 classes, or where there is no room for anything else, it is exact.

    >>> kind_for(10_000, 64, 2**30), kind_for(10**6, 64, 2**30), kind_for(10**6, 64, 2**27)
    ('exact', 'ivf', 'ivf8')
    """
    if num_classes < FEWEST_FOR_APPROXIMATE:
        return "exact"
    coordinates = dimension + 2  # the bias, and what puts all on one sphere
    if num_classes * (4 * coordinates + 8) <= memory:
        return "ivf"
    return "ivf8" if num_classes * (coordinates + 8) <= memory else "exact"


def free_memory() -> int:
    """Return how many bytes are free, or could be made so; plenty where the system does not say.

    >>> free_memory() > 2**20
    True
    """
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return (
            next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) * 1024
        )
    except (OSError, StopIteration, ValueError):
        return 2**62
