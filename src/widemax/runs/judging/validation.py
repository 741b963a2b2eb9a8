"""Validating a model in its training, and what it must have come to by then."""

from __future__ import annotations

import re
from collections.abc import Callable

import torch
from torch import Tensor

from widemax.candidates import TopK
from widemax.data import Holdout, WindowBatch, Windows
from widemax.evaluation import evaluate_recommendations
from widemax.models import Model
from widemax.runs.judging.held_out import USUAL_K, judge_next, judge_words
from widemax.training.stopping import Validation
from widemax.validation import ABSENT

_SHOWN = ("recall", "ndcg", "hit_rate")


def validation_of(
    model: Model,
    asked: Windows | Holdout | None,
    metric: str,
    *,
    max_history: int,
    with_seen: bool = False,
) -> Callable[[], Validation] | None:
    """Return what judges a model as it is when called; None if nobody is asked."""
    if asked is None or not len(asked):
        return None
    if isinstance(asked, Windows):
        return lambda: _validation_of_words(model, asked, metric)
    most = model.head.num_classes
    return lambda: _validation_of_users(model, asked, metric, max_history, with_seen, most)


def floor_of(
    asked: Windows | Holdout | None, counts: Tensor, metric: str, *, with_seen: bool
) -> float | None:
    """Return what a metric comes to where everybody is recommended what was chosen most.

    None for a text, or a metric that is not of lists.
    """
    if not isinstance(asked, Holdout) or metric == "loss":
        return None
    k = min(k_of(metric), len(counts))
    report = evaluate_recommendations(
        _most_chosen(counts), asked, ks=(k,), exclude_seen=not with_seen
    )
    return report.metrics()[f"{metric.partition('@')[0]}@{k}"]


def _most_chosen(counts: Tensor) -> Callable[..., TopK]:
    """Return what recommends the classes with the largest counts to everybody."""
    order = counts.argsort(descending=True, stable=True)

    def topk(batch: WindowBatch, k: int, *, exclude: Tensor | None = None) -> TopK:
        rows = torch.arange(len(batch.context))[:, None] * len(order)
        # So many that k are left however many of them a user had.
        first = order[: k + (0 if exclude is None else exclude.shape[1])].expand(len(rows), -1)
        had = torch.zeros_like(first, dtype=torch.bool)
        if exclude is not None:
            had = torch.isin(first + rows, (exclude + rows)[exclude >= 0])
        ids = first.gather(1, had.long().argsort(dim=1, stable=True)[:, :k])
        left_out = had.sum(1, keepdim=True) > first.shape[1] - 1 - torch.arange(k)
        return TopK(ids=ids.masked_fill(left_out, ABSENT), scores=torch.zeros(ids.shape))

    return topk


def _validation_of_words(model: Model, asked: Windows, metric: str) -> Validation:
    report = judge_words(model, asked, k=k_of(metric), keep_per_example=True)
    assert report.per_example is not None
    return Validation(report.metrics(), report.per_example.get(metric))


def _validation_of_users(
    model: Model, asked: Holdout, metric: str, max_history: int, with_seen: bool, most: int
) -> Validation:
    k = k_of(metric)
    report = evaluate_recommendations(
        model.topk,
        asked,
        ks=(min(k, most),),
        max_history=max_history,
        exclude_seen=not with_seen,
        keep_per_user=True,
    )
    # Of fewer classes than k all are listed, which is what @k means then.
    (length,), found, values = report.ks, report.metrics(), report.per_user
    assert values is not None
    figures = {f"{name}@{k}": found[f"{name}@{length}"] for name in _SHOWN}
    figures["mrr"] = found[f"mrr@{length}"]
    if metric != "loss":
        return Validation(figures, values[f"{metric.partition('@')[0]}@{length}"])
    next_items = judge_next(model, asked, max_history=max_history, keep_per_example=True)
    assert next_items.per_example is not None
    figures["loss"] = next_items.loss
    return Validation(figures, next_items.per_example["loss"])


def k_of(metric: str) -> int:
    """Return the length of list that a metric looks at.

    >>> k_of("ndcg@10"), k_of("loss")
    (10, 20)
    """
    found = re.search(r"@([0-9]+)$", metric)
    return int(found[1]) if found else USUAL_K
