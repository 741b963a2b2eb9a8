"""How a model of a run is judged: by one rule when it is validated and when it is tested."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from widemax.candidates import ClassBlock, TopK
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
from widemax.training.stopping import Validation
from widemax.validation import ABSENT

USUAL_K = 20
"""The length of list of a metric that names none."""

_MOSTLY = 0.5
_ENOUGH_USERS = 100
_SHOWN = ("recall", "ndcg", "hit_rate")


PROTOCOLS = {
    "last": "leave-one-out: the last item of every user",
    "last-of-some": "the last item of some users",
    "time": "all that users chose in the last tenth of the time",
    "user": "the last item of users of whom nothing was trained on",
    "files": "all items of the test file",
}
"""What is asked in the test, by the setting ``split``."""


def looks_ahead(questions: float, events: float) -> str:
    """Return a warning that users are asked for what lies before some of what is trained on.

    >>> print(looks_ahead(0.5, 0.25))
    leave-one-out looks ahead: 50.0 % of the test items lie before some of the training data, on \
average before 25.0 % of it; --split time trains on the past alone
    """
    return (
        f"leave-one-out looks ahead: {questions:.1%} of the test items lie before some of the "
        f"training data, on average before {events:.1%} of it; --split time trains on the "
        "past alone"
    ).replace("%", " %")


def asks_few(asked: Sequence[tuple[int, int]], users: int) -> str:
    """Return a warning that a split by time asks too few users to judge by; "" if it does not.

    ``asked`` says of validation and of the test how many are asked, and how many would be at most.

    >>> asks_few([(50, 50), (1000, 9000)], 9_500)
    ''
    >>> print(asks_few([(900, 1000), (2, 1000)], 5_000))
    --split time can ask 2 of 5,000 users, too few to judge by: the others have items on one side \
of its moments alone; --split last asks every user
    """
    few = [number for number, most in asked if number < min(_ENOUGH_USERS, most, users / 10)]
    if not few:
        return ""
    return (
        f"--split time can ask {min(few):,} of {users:,} users, too few to judge by: the others "
        "have items on one side of its moments alone; --split last asks every user"
    )


def asks_new(share: float) -> str:
    """Return a note on the share of the test's targets that nobody chose in training.

    >>> print(asks_new(0.25))
    25.0 % of the targets of the test are items that nobody chose in training: a model finds them \
by features alone (--item-features)
    """
    return (
        f"{share:.1%} of the targets of the test are items that nobody chose in training: a model "
        "finds them by features alone (--item-features)"
    ).replace("%", " %")


def k_of(metric: str) -> int:
    """Return the length of list that a metric looks at.

    >>> k_of("ndcg@10"), k_of("loss")
    (10, 20)
    """
    found = re.search(r"@([0-9]+)$", metric)
    return int(found[1]) if found else USUAL_K


def ranks_seen(setting: str, asked: Windows | Holdout | None) -> bool:
    """Return whether what users had before is ranked too: where most of what they choose is that.

    >>> from widemax.data import Sequences
    >>> train, held = Holdout.of_last(Sequences.from_lists([[4, 0, 4], [1, 2, 1], [3, 5]]))
    >>> ranks_seen("auto", held), ranks_seen("left-out", held)
    (True, False)
    """
    if setting != "auto" or not isinstance(asked, Holdout) or not len(asked):
        return setting == "ranked"
    width = 1 + max(int(part.values.max()) for part in (asked.histories, asked.targets))
    known, wanted = (
        torch.arange(len(part)).repeat_interleave(part.lengths) * width + part.values
        for part in (asked.histories, asked.targets)
    )
    return bool(torch.isin(wanted, known).double().mean() > _MOSTLY)


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
