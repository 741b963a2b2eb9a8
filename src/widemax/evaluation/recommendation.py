"""Recommendations judged over the whole catalogue: no sampled candidates, no [N, V] matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from widemax.candidates import TopK
from widemax.data import Holdout, Sequences, WindowBatch
from widemax.evaluation.list_metrics import (
    BUCKET_METRICS,
    BUCKETS,
    LIST_METRICS,
    ListMetric,
    exposure_figures,
    popularity_buckets,
)
from widemax.evaluation.recommendation_report import Mean, PopularityBucket, RecommendationReport
from widemax.validation import ABSENT, as_int64, check_counts, check_ids, check_whole

# Seen classes that stand at once, padded: 32 MB.
_SEEN_AT_ONCE = 2**22
# Lists whose metrics are computed at once, whatever their number in a call of topk.
_LISTS_AT_ONCE = 2**16
_MOST_AT_ONCE = 2**20


class Recommender(Protocol):
    """Gives the k best classes of each example, best first: ``model.topk``."""

    def __call__(self, batch: WindowBatch, k: int, /, *, exclude: Tensor | None = None) -> TopK:
        """Return the k best classes of each example, leaving out ``exclude`` [B, E]."""


@torch.no_grad()
def evaluate_recommendations(
    topk: Recommender,
    holdout: Holdout,
    *,
    ks: Sequence[int] = (5, 10, 20, 50),
    max_history: int = 50,
    counts: Tensor | None = None,
    exclude_seen: bool = True,
    rows_at_once: int = 2048,
    keep_per_user: bool = False,
    progress: Callable[[int], object] | None = None,
) -> RecommendationReport:
    """Ask for the best classes of every user of a holdout, and compare them with the targets.

    ``topk`` takes a ``WindowBatch`` of B users, the largest of ``ks`` and ``exclude`` [B, E], and
    returns lists [B, k]: ``model.topk``, the model in ``eval`` mode. ``counts`` int64 [V] are the
    training counts of the classes, without which nothing is said about the catalogue;
    ``max_history`` is what ``topk`` may read of a history, all of which is left out of its lists.
    A target that stands twice in a user's list counts once. With ``exclude_seen`` a target that
    the user had before cannot be found and still counts as a target; ``report.unreachable`` says
    how many. Batches have at most ``rows_at_once`` users of similar history lengths, so that little
    of ``exclude`` is padding. This is the protocol of He et al. 2020 (LightGCN), over all classes.

    >>> from widemax.data import Sequences
    >>> def most_popular(batch, k, *, exclude):
    ...     lists = [[y for y in range(4) if y not in seen][:k] for seen in exclude.tolist()]
    ...     return TopK(ids=torch.tensor(lists), scores=torch.zeros(len(lists), k))
    >>> histories = Sequences.from_lists([[0], [1, 3]])
    >>> held = Holdout(histories, Sequences.from_lists([[1, 3], [2]]), torch.arange(2))
    >>> report = evaluate_recommendations(most_popular, held, ks=(1, 2))
    >>> report.metrics()["recall@1"], report.metrics()["recall@2"], report.metrics()["mrr@2"]
    (0.25, 0.75, 0.75)
    """
    if not len(holdout):
        raise ValueError("there are no users to evaluate on")
    if counts is not None:
        counts = as_int64("counts", counts)
        check_counts(counts)
        check_ids("targets of holdout", holdout.targets.values, len(counts))
    ks = _check_ks(ks, _MOST_AT_ONCE if counts is None else len(counts))
    rows_at_once = check_whole("rows_at_once", rows_at_once, 1, _MOST_AT_ONCE)
    wanted = _Targets(holdout)
    lists = _Lists(wanted, ks, counts)
    for rows in _batches(holdout, rows_at_once):
        batch = holdout.batch(rows, max_history=max_history)
        exclude = holdout.seen(rows) if exclude_seen else None
        lists.add(rows, topk(batch, ks[-1], exclude=exclude).ids)
        if progress is not None:
            progress(len(rows))
    means, per_user = {}, {}
    for name, values in lists.values(LIST_METRICS, lists.hits > 0, wanted.per_user()):
        means[name] = Mean.of(values)
        if keep_per_user:
            per_user[name] = values
    return RecommendationReport(
        ks=ks,
        users=len(holdout),
        targets=len(wanted.keys),
        new=0 if counts is None else int((counts[wanted.classes] == 0).sum()),
        unreachable=wanted.already_in(holdout.histories) if exclude_seen else 0,
        means=means,
        catalogue=lists.catalogue(),
        buckets=tuple(lists.bucket(number) for number in range(len(lists.bucket_names))),
        per_user=per_user if keep_per_user else None,
    )


def _check_ks(ks: Sequence[int], most: int) -> tuple[int, ...]:
    """Return the lengths of lists, each once, in rising order."""
    if not len(ks):
        raise ValueError("ks must hold a length of list, got none")
    return tuple(sorted({check_whole("each of ks", k, 1, most) for k in ks}))


def _batches(holdout: Holdout, rows_at_once: int) -> Iterator[Tensor]:
    """Yield rows by rising length of history, fewer at once where histories are long."""
    lengths = holdout.histories.lengths
    order = lengths.argsort(stable=True)
    start = 0
    while start < len(order):
        stop = min(start + rows_at_once, len(order))
        longest = max(1, int(lengths[order[stop - 1]]))
        stop = min(stop, start + max(1, _SEEN_AT_ONCE // longest))
        yield order[start:stop]
        start = stop


class _Targets:
    """The distinct targets of each user, as sorted keys user·width + class."""

    def __init__(self, holdout: Holdout) -> None:
        self.users = len(holdout)
        self.width = int(holdout.targets.values.max()) + 1
        # A target that stands in the list twice is one target.
        self.keys: Tensor = torch.unique(self._keys(holdout.targets))

    @property
    def classes(self) -> Tensor:
        """The class of each target, int64 [T]."""
        return self.keys % self.width

    def per_user(self, chosen: Tensor | None = None) -> Tensor:
        """Return how many targets each user has, int64 [N], or how many that are chosen [T]."""
        owners = self.keys // self.width
        owners = owners if chosen is None else owners[chosen]
        return torch.bincount(owners, minlength=self.users)

    def found(self, rows: Tensor, ids: Tensor) -> Tensor:
        """Return which places of lists [B, k] for users [B] hold a target, bool [B, k]."""
        keys = rows[:, None] * self.width + ids
        # Classes that are nobody's target would be read as another user's.
        return self._places(keys)[1] & (ids >= 0) & (ids < self.width)

    def already_in(self, histories: Sequences) -> int:
        """Return how many targets their users had before."""
        had = torch.zeros(len(self.keys), dtype=torch.bool)
        places, is_there = self._places(self._keys(histories))
        had[places[is_there]] = True
        return int(had.sum())

    def _places(self, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Return where each key stands among the targets, and whether it does."""
        places = torch.searchsorted(self.keys, keys).clamp_(max=len(self.keys) - 1)
        return places, self.keys[places] == keys

    def _keys(self, sequences: Sequences) -> Tensor:
        owners = torch.arange(len(sequences)).repeat_interleave(sequences.lengths)
        known = sequences.values < self.width
        return owners[known] * self.width + sequences.values[known]


class _Lists:
    """What is kept of all lists: where each has a hit, and how often each class is in one."""

    def __init__(self, wanted: _Targets, ks: tuple[int, ...], counts: Tensor | None) -> None:
        self.wanted, self.ks, self.counts = wanted, ks, counts
        # 0 is a miss; a hit is 1 + the bucket of its class.
        self.hits = torch.zeros(wanted.users, ks[-1], dtype=torch.uint8)
        self.bucket_names = BUCKETS if counts is not None else ()
        num_classes = 0 if counts is None else len(counts)
        self.bucket_of = None if counts is None else popularity_buckets(counts)
        self.exposure = torch.zeros(len(ks), num_classes, dtype=torch.int64)

    def add(self, rows: Tensor, ids: Tensor) -> None:
        """Take the lists [B, k] of some users."""
        ids = self._check(ids.cpu(), len(rows))
        hits = self.wanted.found(rows, ids).to(torch.uint8)
        if self.bucket_of is not None:
            hits *= 1 + self.bucket_of[ids.clamp(min=0)].to(torch.uint8)
            for k, exposure in zip(self.ks, self.exposure, strict=True):
                shown = ids[:, :k]
                shown = shown[shown != ABSENT]
                exposure.index_add_(0, shown, torch.ones_like(shown))
        self.hits[rows] = hits

    def _check(self, ids: Tensor, rows: int) -> Tensor:
        if ids.shape != (rows, self.ks[-1]):
            raise ValueError(
                f"topk must return ids of shape [{rows}, {self.ks[-1]}], got {list(ids.shape)}"
            )
        num_classes = torch.iinfo(torch.int64).max if self.counts is None else len(self.counts)
        ids = check_ids("ids of topk", ids, num_classes, absent=True)
        ordered = ids.sort(dim=1).values
        twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != ABSENT)
        if bool(twice.any()):
            worst = int(ordered[:, 1:][twice][0])
            raise ValueError(f"topk must name a class once in a list, got {worst:,} twice")
        return ids

    def values(
        self, metrics: dict[str, ListMetric], hits: Tensor, num_targets: Tensor
    ) -> Iterator[tuple[str, Tensor]]:
        """Yield the name of each metric at each k and its values for these lists, float64 [n]."""
        starts = range(0, len(hits), _LISTS_AT_ONCE)
        blocks = [slice(start, start + _LISTS_AT_ONCE) for start in starts]
        for name, metric in metrics.items():
            for k in self.ks:
                parts = [metric(hits[own, :k].double(), num_targets[own]) for own in blocks]
                yield f"{name}@{k}", torch.cat(parts)

    def bucket(self, number: int) -> PopularityBucket:
        """Return how the targets of one bucket were found, by the users who have one."""
        assert self.bucket_of is not None
        num_targets = self.wanted.per_user(self.bucket_of[self.wanted.classes] == number)
        users = num_targets.nonzero()[:, 0]
        hits = self.hits[users] == number + 1
        values = self.values(BUCKET_METRICS, hits, num_targets[users]) if len(users) else ()
        return PopularityBucket(
            name=self.bucket_names[number],
            classes=int((self.bucket_of == number).sum()),
            users=len(users),
            targets=int(num_targets.sum()),
            means={name: Mean.of(value) for name, value in values},
        )

    def catalogue(self) -> dict[str, float]:
        """Return coverage, Gini and popularity at each k, if counts are known."""
        if self.counts is None:
            return {}
        figures = [exposure_figures(exposure, self.counts) for exposure in self.exposure]
        return {f"{n}@{k}": figures[i][n] for n in figures[0] for i, k in enumerate(self.ks)}
