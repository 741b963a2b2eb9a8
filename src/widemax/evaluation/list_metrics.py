"""How good lists of recommendations are: each by its hits, and all together to the catalogue.

The metrics of one list take ``hits`` float64 [B, k], 1 where a place of the list holds a target and
0 elsewhere, and ``num_targets`` int64 [B], at least 1, and return float64 [B].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from widemax.validation import as_int64, check_counts

ListMetric: TypeAlias = Callable[[Tensor, Tensor], Tensor]


def recall(hits: Tensor, num_targets: Tensor) -> Tensor:
    """Return the share of the targets that are in the list: hits / number of targets."""
    return hits.sum(1) / num_targets


def hit_rate(hits: Tensor, num_targets: Tensor) -> Tensor:
    """Return 1 for a list with a hit, else 0; of one target it is the recall."""
    return hits.amax(1)


def precision(hits: Tensor, num_targets: Tensor) -> Tensor:
    """Return the share of the k places that hold a target; empty places count."""
    return hits.sum(1) / hits.shape[1]


def ndcg(hits: Tensor, num_targets: Tensor) -> Tensor:
    """Return Σ over hits of 1 / log2(place + 1), by the sum of min(k, targets) hits in front."""
    discounts = 1 / (_places(hits) + 1).log2()
    ideal = discounts.cumsum(0)[num_targets.clamp(max=hits.shape[1]) - 1]
    return (hits * discounts).sum(1) / ideal


def mrr(hits: Tensor, num_targets: Tensor) -> Tensor:
    """Return 1 / the place of the first hit, 0 without one."""
    return (hits / _places(hits)).amax(1)


def mean_average_precision(hits: Tensor, num_targets: Tensor) -> Tensor:
    """Return Σ over hits of the precision up to their place, by min(k, targets)."""
    precisions = hits.cumsum(1) / _places(hits)
    return (hits * precisions).sum(1) / num_targets.clamp(max=hits.shape[1])


def _places(hits: Tensor) -> Tensor:
    return torch.arange(1, hits.shape[1] + 1, dtype=hits.dtype)


LIST_METRICS: dict[str, ListMetric] = {
    "recall": recall,
    "hit_rate": hit_rate,
    "precision": precision,
    "ndcg": ndcg,
    "mrr": mrr,
    "map": mean_average_precision,
}

BUCKET_METRICS: dict[str, ListMetric] = {"recall": recall, "ndcg": ndcg}

BUCKETS = ("head", "torso", "tail")


def popularity_buckets(counts: Tensor) -> Tensor:
    """Return the bucket of each class, 0 head, 1 torso, 2 tail: each a third of all interactions.

    With the classes in falling count, equal ones by the smaller id, and before(y) the sum of the
    counts ahead of y, it is min(2, ⌊3·before(y) / total⌋): a class across a border belongs to the
    more popular side, and a class without a count is tail.

    >>> popularity_buckets(torch.tensor([4, 3, 2, 2, 1, 0])).tolist()
    [0, 1, 1, 2, 2, 2]
    """
    counts = as_int64("counts", counts)
    check_counts(counts)
    order = counts.sort(descending=True, stable=True).indices
    ranked = counts[order]
    before = ranked.cumsum(0) - ranked
    last = len(BUCKETS) - 1
    bucket = (before * len(BUCKETS) // counts.sum()).clamp(max=last)
    return torch.empty_like(bucket).index_copy_(0, order, bucket)


def exposure_figures(exposure: Tensor, counts: Tensor) -> dict[str, float]:
    """Return what lists, taken together, do to the catalogue.

    With e(y) the lists that class y is in: coverage = share of classes with e > 0;
    gini = Σ_i (2i − V − 1)·e_(i) / (V·Σ e) over e in rising order, 0 when all classes are shown
    alike and 1 − 1/V when one alone is; popularity = Σ e(y)·count(y) / Σ e, the mean training count
    of what is recommended (Adomavicius & Kwon 2012; Yin et al. 2012).

    >>> exposure_figures(torch.tensor([3, 1, 0, 0]), torch.tensor([9, 5, 1, 1]))
    {'coverage': 0.5, 'gini': 0.625, 'popularity': 8.0}
    """
    classes, total = len(exposure), int(exposure.sum())
    if not total:
        raise ValueError(
            f"there is nothing to recommend: each history has all {classes:,} classes, or all that "
            "can be found, and what a user had before is left out"
        )
    rising = exposure.sort().values.double()
    place = torch.arange(1, classes + 1, dtype=torch.float64)
    return {
        "coverage": int((exposure > 0).sum()) / classes,
        "gini": float(((2 * place - classes - 1) * rising).sum()) / (classes * total),
        "popularity": float((exposure.double() * counts.double()).sum()) / total,
    }
