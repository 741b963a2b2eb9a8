"""A model asked what was held out, in validation and test alike: words, lists, the next item."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from widemax.candidates import ClassBlock
from widemax.data import Holdout, WindowBatch, Windows
from widemax.evaluation import (
    RankingReport,
    RecommendationReport,
    evaluate_ranking,
    evaluate_recommendations,
)
from widemax.evaluation.prediction import evaluate_products
from widemax.heads import ScorerHead
from widemax.models import Model

USUAL_K = 20
"""The length of list of a metric that names none."""


def judge_words(
    model: Model, asked: Windows, *, k: int = USUAL_K, keep_per_example: bool = False
) -> RankingReport:
    """Rank the words of a text among all classes, each given those before it."""
    read = model.reading(asked)
    if read is None:
        # A softmax of scores is had with their ranks; other heads have a log P of their own.
        plain = isinstance(model.head, ScorerHead) and type(model).log_prob is Model.log_prob
        plain = plain and type(model.head).log_prob is ScorerHead.log_prob
        products = _products_of(model, asked) if plain else None
        if products is not None:
            return evaluate_products(products, asked, k=k, keep_per_example=keep_per_example)
        return evaluate_ranking(
            model.scores if plain else model.log_prob,
            asked,
            k=k,
            keep_per_example=keep_per_example,
            normalised=not plain,
        )

    def log_prob(batch: WindowBatch) -> Tensor:
        return model.head.log_prob(batch.context)

    return evaluate_ranking(log_prob, read, k=k, keep_per_example=keep_per_example)


def _products_of(
    model: Model, asked: Windows
) -> Callable[[WindowBatch], Sequence[ClassBlock]] | None:
    """Return what gives the products that classes are ranked by; None if they are not all."""
    head = model.head
    if type(model).scores is not Model.scores or model.never_recommended is not None:
        return None
    if not isinstance(head, ScorerHead) or not len(asked):
        return None

    def products(batch: WindowBatch) -> Sequence[ClassBlock] | None:
        hidden = model.hidden(batch)
        return head.products(hidden) if hidden.dim() == 2 else None

    with torch.no_grad():
        some = products(asked.batch(torch.arange(1)))
    return None if some is None else lambda batch: products(batch) or []


def judge_users(
    model: Model,
    asked: Holdout,
    *,
    ks: tuple[int, ...],
    max_history: int,
    counts: Tensor | None = None,
    with_seen: bool = False,
) -> RecommendationReport:
    """Recommend to users from all classes but what they had, and compare with what they chose."""
    most = model.head.num_classes
    return evaluate_recommendations(
        model.topk,
        asked,
        ks=tuple(k for k in ks if k <= most) or (most,),
        max_history=max_history,
        counts=counts,
        exclude_seen=not with_seen,
    )


def judge_next(
    model: Model, asked: Holdout, *, max_history: int, keep_per_example: bool = False
) -> RankingReport:
    """Rank the first item that each user chose among all classes, those they had included."""
    examples: Any = NextItems(asked, max_history)
    return evaluate_ranking(model.log_prob, examples, keep_per_example=keep_per_example)


class NextItems:
    """The next item of each user of a holdout, as examples to rank."""

    def __init__(self, holdout: Holdout, reach: int) -> None:
        self.holdout, self.reach = holdout, reach

    def __len__(self) -> int:
        return len(self.holdout)

    def batch(self, rows: Tensor) -> WindowBatch:
        """Return the examples ``rows`` [B]."""
        targets = self.holdout.targets
        asked = self.holdout.batch(rows, max_history=self.reach)
        return WindowBatch(
            context=asked.context,
            targets=targets.values[targets.offsets[rows]],
            users=asked.users,
            ages=asked.ages,
            vocabulary=asked.vocabulary,
        )


def asked_first(asked: Holdout, most: int, *, max_history: int) -> WindowBatch:
    """Return what is known of the first users of a holdout, at most so many."""
    return asked.batch(torch.arange(min(most, len(asked))), max_history=max_history)
