"""What a history is worth in a log: how much of it to read, and whether its order has a direction.

Found by simple rules that are counted in seconds, asked what validation asks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from widemax.data import Holdout, Sequences
from widemax.models.baselines.item_knn import ItemKNN
from widemax.models.options import LAST_FEW, LENGTHS
from widemax.validation import ABSENT

_MOST_INTERACTIONS = 500_000
"""Of a longer log that much is counted, of users at random."""
_MOST_SCORES = 2**28
"""Of a catalogue beyond that, divided by the questions, fewer questions are asked."""
_MOST_CLASSES = 2**20
"""Larger catalogues are not counted: their neighbours take too much memory."""
_NUM_NEIGHBOURS = 50
_K = 20
_ROWS = 64
_OFTEN = 10
"""Interactions of an item, on average, from which it can be learned in two tables."""
_SURELY = 2.0
"""Standard errors by which one rule must be ahead of another."""

Scores = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class OrderTest:
    """What was found."""

    history: int
    """How many of the last items to read."""
    directed: bool
    """Whether what follows an item is another thing than what comes before it, and often enough."""
    popular: bool = False
    """Whether histories say no more than what all choose."""


def tested_order(
    train: Sequences, asked: Holdout, num_classes: int, *, with_seen: bool
) -> OrderTest:
    """Compare rankings by more and fewer of the last items, and by followers with neighbours.

    By NDCG@20 of the first target of each question, user by user. As many items are worth reading
    as item-knn does not surely rank worse by than by the best number; order has a direction where
    followers of the last item, counted, rank surely better than its neighbours on either side, and
    items are not so rare that two tables of them would learn less than one;
    histories say no more than popularity where that ranks as well as either.
    """
    if num_classes > _MOST_CLASSES or not len(asked):
        return OrderTest(LAST_FEW, directed=False)
    if len(asked) == 1:
        # It proves nothing, and to count one long history takes the square of its length.
        return OrderTest(max(LENGTHS), directed=False)
    often = len(train.values) >= _OFTEN * num_classes
    train = _some(train)
    asked = asked.chosen(torch.arange(min(len(asked), max(1, _MOST_SCORES // num_classes))))
    neighbours = ItemKNN(num_classes, num_neighbours=min(_NUM_NEIGHBOURS, num_classes))
    neighbours.fit(train.weighed_by(None))
    by_length = {
        length: _ndcg(neighbours.head.scores, asked, length, with_seen) for length in LENGTHS
    }
    best = max(by_length.values(), key=lambda each: float(each.mean()))
    history = max(length for length, each in by_length.items() if not _is_ahead(best, each))
    followers, preceding = _followers(train, num_classes), _followers(_reversed(train), num_classes)
    one_way = _ndcg(followers, asked, 1, with_seen)
    both_ways = _ndcg(lambda last: followers(last) + preceding(last), asked, 1, with_seen)
    counts = torch.bincount(train.values, minlength=num_classes).float()
    by_counts = _ndcg(lambda last: counts.repeat(len(last), 1), asked, 1, with_seen)
    return OrderTest(
        history,
        directed=often and _is_ahead(one_way, both_ways),
        popular=bool(by_counts.mean() >= max(best.mean(), one_way.mean())),
    )


def _some(train: Sequences) -> Sequences:
    """Return whole users of a log, at random but the same each time, up to a number of items."""
    if len(train.values) <= _MOST_INTERACTIONS:
        return train
    users = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))
    users = users[train.lengths[users] <= _MOST_INTERACTIONS]
    return train.chosen(users[train.lengths[users].cumsum(0) <= _MOST_INTERACTIONS])


def _reversed(train: Sequences) -> Sequences:
    return Sequences(train.values.flip(0), len(train.values) - train.offsets.flip(0))


def _followers(train: Sequences, num_classes: int) -> Scores:
    """Return scores of all classes [B, V] by how often they came right behind the last item."""
    values = train.values
    inner = torch.ones(len(values), dtype=torch.bool)
    inner[train.offsets[:-1][train.lengths > 0]] = False  # nothing comes before the first
    place = inner.nonzero()[:, 0]
    before, behind = values[place - 1], values[place]
    order = before.argsort(stable=True)
    behind = behind[order]
    ends = torch.bincount(before, minlength=num_classes).cumsum(0)
    # What is chosen most comes first among what never followed.
    counts = torch.bincount(values, minlength=num_classes).float()
    floor = counts / counts.sum().clamp(min=1) / 2

    def scores(context: Tensor) -> Tensor:
        found = floor.repeat(len(context), 1)
        for row, last in enumerate(context[:, -1].tolist()):
            if last != ABSENT:
                mine = behind[ends[last - 1] if last else 0 : ends[last]]
                found[row].index_put_((mine,), torch.ones(()), accumulate=True)
        return found

    return scores


def _ndcg(scores: Scores, asked: Holdout, length: int, with_seen: bool) -> Tensor:
    """Return the NDCG of the first target of each question, float64 [N]."""
    found = []
    for rows in torch.split(torch.arange(len(asked)), _ROWS):
        context = asked.batch(rows, max_history=length).context
        given = scores(context).clone()
        if not with_seen:
            seen = asked.seen(rows)
            users, places = (seen != ABSENT).nonzero(as_tuple=True)
            given[users, seen[users, places]] = -torch.inf
        own = given.gather(1, asked.targets.values[asked.targets.offsets[rows]][:, None])
        # Of the others that score alike half are ahead.
        ahead = (given > own).sum(1) + ((given == own).sum(1) - 1) / 2
        gain = 1 / torch.log2(ahead.double() + 2)
        found.append(torch.where((ahead < _K) & own[:, 0].isfinite(), gain, 0.0))
    return torch.cat(found)


def _is_ahead(one: Tensor, other: Tensor) -> bool:
    """Return whether the mean of a rule is surely above that of another, question by question."""
    if len(one) < 2:
        return False
    difference = one - other
    error = difference.std() / len(difference) ** 0.5
    return bool(difference.mean() > _SURELY * error)
