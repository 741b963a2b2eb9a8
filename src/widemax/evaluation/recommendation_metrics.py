"""How good one list of recommendations is: each metric is one function of its hits.

All take ``hits`` float64 [B, k], 1 where a place of the list holds a target and 0 elsewhere, and
``num_targets`` int64 [B], at least 1, and return float64 [B].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

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
