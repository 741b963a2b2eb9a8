"""What the experiment on Gowalla shares: the data, training on whole histories, the judging.

Each line of gowalla/train.txt, valid.txt and test.txt is a user and their items, without an order
that means anything. Settings are chosen by valid after training on train alone; the test is asked
once, after training on train and valid together. Every ranking is over all items, without those
that the user had in what the model was trained on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from _common import DATA
from widemax.data import Holdout, Sequences
from widemax.data.sequences import offsets_of
from widemax.encoders import YouTubeDNNEncoder
from widemax.encoders.contexts import mean_rows
from widemax.encoders.users import Tower
from widemax.evaluation import RecommendationReport, evaluate_recommendations
from widemax.heads import SampledHead
from widemax.kernels.data.slices import joined_slices
from widemax.models import Model, YouTubeDNN
from widemax.scoring.rows import gather_rows
from widemax.training.steps import Steps

LONGEST_HISTORY = 1_000
K = 20


@dataclass(frozen=True, eq=False)
class Stage:
    """Baskets to train on, with the counts of all classes there, and questions to judge by."""

    train: Sequences
    asked: Holdout
    counts: Tensor

    @property
    def num_classes(self) -> int:
        return len(self.counts)


@dataclass(frozen=True, eq=False)
class Gowalla:
    """What settings are chosen by, and what is asked once."""

    tuning: Stage
    final: Stage


def load_gowalla() -> Gowalla | None:
    """The data, or None where they are missing."""
    files = [DATA / "gowalla" / f"{part}.txt" for part in ("train", "valid", "test")]
    if not all(file.is_file() for file in files):
        return None
    return stages_of(*(read_lists(file) for file in files))


def read_lists(file: Path) -> Sequences:
    """One sequence for each user 0, 1, …; a line begins with the user."""
    lines = [[int(word) for word in line.split()] for line in file.read_text().splitlines()]
    users = [line[0] for line in lines]
    if users != list(range(len(lines))):
        raise ValueError(f"{file} must have a line for each user 0, 1, … in this order")
    return Sequences.from_lists([line[1:] for line in lines])


def stages_of(train: Sequences, valid: Sequences, test: Sequences) -> Gowalla:
    """Number the classes by their counts before the test, and put the questions.

    The numbers are names only: counts are those of what a stage trains on.
    """
    final = joined(train, valid)
    num_classes = 1 + max(int(part.values.max()) for part in (train, valid, test))
    order = torch.bincount(final.values, minlength=num_classes).argsort(
        descending=True, stable=True
    )
    ranks = torch.empty_like(order)
    ranks[order] = torch.arange(num_classes)
    train, valid, test, final = (
        Sequences(ranks[part.values], part.offsets) for part in (train, valid, test, final)
    )
    return Gowalla(stage_of(train, valid, num_classes), stage_of(final, test, num_classes))


def stage_of(train: Sequences, coming: Sequences, num_classes: int) -> Stage:
    users = ((train.lengths > 0) & (coming.lengths > 0)).nonzero()[:, 0]
    asked = Holdout(train.chosen(users), coming.chosen(users), users)
    return Stage(train, asked, torch.bincount(train.values, minlength=num_classes))


def joined(first: Sequences, second: Sequences) -> Sequences:
    """Each user's items of both."""
    users = torch.arange(len(first))
    owners = [users.repeat_interleave(part.lengths) for part in (first, second)]
    order = torch.cat(owners).argsort(stable=True)
    values = torch.cat([first.values, second.values])[order]
    return Sequences(values, offsets_of(first.lengths + second.lengths))


@dataclass(frozen=True, eq=False)
class BagBatch:
    """Some users' items [U, H], padded with -1, and targets [B] that are among their owner's."""

    bags: Tensor
    targets: Tensor
    owners: Tensor
    """The row in ``bags`` of each target, [B]."""
    users: Tensor
    """The number of the user of each target, [B]."""


class LeaveOneOutBags:
    """Each item of a user as a target, by all their others: a few targets of one user to a row.

    What rows cost is the reading of the bag; all targets of a row share it.
    """

    def __init__(self, baskets: Sequences, *, targets_a_row: int) -> None:
        self.baskets = baskets
        # A single item has no others to be told by.
        rows = torch.where(baskets.lengths > 1, -(-baskets.lengths // targets_a_row), 0)
        self._users = torch.arange(len(baskets)).repeat_interleave(rows)
        within = torch.arange(len(self._users)) - offsets_of(rows)[:-1].repeat_interleave(rows)
        self._starts = baskets.offsets[self._users] + within * targets_a_row
        ends = baskets.offsets[self._users + 1]
        self._lengths = (ends - self._starts).clamp(max=targets_a_row)

    def __len__(self) -> int:
        return len(self._users)

    @property
    def num_targets(self) -> int:
        return int(self._lengths.sum())

    def batch(self, rows: Tensor) -> BagBatch:
        users, starts, lengths = self._users[rows], self._starts[rows], self._lengths[rows]
        values = self.baskets.values.numpy()
        targets = torch.from_numpy(joined_slices(values, starts.numpy(), lengths.numpy()))
        owners = torch.arange(len(rows)).repeat_interleave(lengths)
        sizes = self.baskets.lengths[users]
        places = torch.arange(int(sizes.max()))
        bags = self.baskets.values[
            (self.baskets.offsets[users, None] + places).clamp(max=len(values) - 1)
        ]
        bags = bags.masked_fill(places >= sizes[:, None], -1)
        return BagBatch(bags, targets, owners, users[owners])


class LeaveOneOut(nn.Module):
    """Trains a model whose user is the mean of their items, without reading them for each target.

    Formula: with m the mean of a user's n items, that of the n − 1 others than t is
    (n·m − v_t) / (n − 1). The losses are those of the model on all other items as a context. In
    training a share of each user's items, ``left_out``, is not shown.
    """

    def __init__(self, model: YouTubeDNN, *, apart: bool = False, left_out: float = 0.0) -> None:
        super().__init__()
        encoder, head = model.encoder, model.head
        if not isinstance(encoder, YouTubeDNNEncoder) or not _is_plain_mean(encoder.tower):
            raise ValueError("model must have nothing but the mean: no layers, features or dropout")
        if not isinstance(head, SampledHead):
            raise ValueError(f"model must have a sampled head, got {type(head).__name__}")
        self.items, self.head, self.apart, self.left_out = encoder.items, head, apart, left_out

    def forward(self, batch: BagBatch, *, generator: torch.Generator | None = None) -> Tensor:
        """Return the loss of each target; ``apart``, targets of one user do not compete."""
        hidden = self.hidden(batch, generator)
        queries = batch.users if self.apart else None
        losses: Tensor = self.head(hidden, batch.targets, query_ids=queries, generator=generator)
        return losses

    def hidden(self, batch: BagBatch, generator: torch.Generator | None = None) -> Tensor:
        """Return the mean of all other items of each target's owner that are shown, [B, D]."""
        table, sparse = self.items.weight, self.items.sparse
        bags = batch.bags
        if self.training and self.left_out:
            drawn = torch.rand(bags.shape, generator=generator)
            bags = bags.masked_fill(drawn < self.left_out, -1)
        lengths = (bags >= 0).sum(1, keepdim=True)
        sums = mean_rows(table, bags, sparse=sparse) * lengths
        shown = (bags[batch.owners] == batch.targets[:, None]).any(1, keepdim=True)
        own = gather_rows(table, batch.targets, sparse=sparse)
        others = lengths[batch.owners] - shown.long()
        return (sums[batch.owners] - own * shown) / others.clamp(min=1)


def _is_plain_mean(tower: Tower) -> bool:
    return not (len(tower.layers) or tower.extras or tower.dropout.p)


def judge(model: Model, asked: Holdout, counts: Tensor | None = None) -> RecommendationReport:
    """Rank all items for each user who is asked about."""
    model.eval()
    return evaluate_recommendations(
        model.topk, asked, ks=(K,), max_history=LONGEST_HISTORY, counts=counts
    )


def train(
    steps: Steps,
    *,
    epochs: int,
    rate_at: Callable[[float], float],
    after_epoch: Callable[[int, float], object] = lambda epoch, seconds: None,
) -> float:
    """Train with a rate for each share of the way; return the seconds, told after each epoch."""
    seconds = 0.0
    for epoch in range(epochs):
        start = time.perf_counter()
        for step in range(epoch * steps.per_epoch, (epoch + 1) * steps.per_epoch):
            steps.take(step, rate_at(step / (epochs * steps.per_epoch)))
        steps.publish()
        seconds += time.perf_counter() - start
        after_epoch(epoch + 1, seconds)
    return seconds
