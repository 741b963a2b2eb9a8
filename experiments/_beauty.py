"""What the experiment on Beauty shares: the data, training with a watch on valid, the judging.

Each line of beauty/beauty.txt is a user and an item, in the order of time. The last item of a user
is for the test, the one before it for validation, all before are for training. An item's id is its
rank by training count; items that training never shows come last. Every ranking is over all items,
without those that the user already had.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import polars as pl
import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from _common import DATA, state_of
from widemax.data import Holdout, Sequences
from widemax.data.sequences import offsets_of
from widemax.evaluation.recommendation import evaluate_recommendations
from widemax.models import Model
from widemax.training.steps import GradientSteps

MAX_HISTORY = 50


@dataclass(frozen=True, eq=False)
class Beauty:
    """The parts of the data; a holdout's histories are all that came before its targets."""

    train: Sequences
    valid: Holdout
    test: Holdout
    counts: Tensor

    @property
    def num_classes(self) -> int:
        return len(self.counts)


def load_beauty() -> Beauty | None:
    """The data, or None where they are missing."""
    file = DATA / "beauty/beauty.txt"
    if not file.is_file():
        return None
    log = pl.read_csv(file, separator=" ", has_header=False, new_columns=["user", "item"])
    log = log.sort("user", maintain_order=True)
    _, items = log["item"].to_torch().unique(return_inverse=True)
    _, lengths = log["user"].to_torch().unique_consecutive(return_counts=True)
    return split_by_last(Sequences(items, offsets_of(lengths)))


def split_by_last(sequences: Sequences) -> Beauty:
    """Hold out the last two values of each sequence, and number classes by training counts."""
    train, _ = sequences.split_last()[0].split_last()
    num_classes = int(sequences.values.max()) + 1
    counts = torch.bincount(train.values, minlength=num_classes)
    order = counts.argsort(descending=True, stable=True)
    ranks = torch.empty_like(order)
    ranks[order] = torch.arange(num_classes)
    known, test = Holdout.of_last(Sequences(ranks[sequences.values], sequences.offsets))
    train, valid = Holdout.of_last(known)
    return Beauty(train, valid, test, counts[order])


class Quality(NamedTuple):
    """How often the target is among the ten best, and how far up."""

    hit_rate: float
    ndcg: float


def judge(model: Model, holdout: Holdout) -> Quality:
    """Rank all items for each user of a holdout."""
    model.eval()
    report = evaluate_recommendations(model.topk, holdout, ks=(10,), max_history=MAX_HISTORY)
    return Quality(report.means["hit_rate@10"].value, report.means["ndcg@10"].value)


@dataclass
class History:
    """Valid NDCG@10 after the epochs that were measured; the model is in the best of its states."""

    seconds: float = 0.0
    ndcg: dict[int, float] = field(default_factory=dict)

    @property
    def best_epoch(self) -> int:
        return max(self.ndcg, key=lambda epoch: self.ndcg[epoch])


def train(
    model: Model,
    steps: GradientSteps,
    watched: Holdout,
    *,
    epochs: int,
    learning_rate: float,
    averaging: float,
    measure_every: int = 1,
    patience: int,
    progress: Callable[[str], object],
) -> History:
    """Train, and leave the model in the state that has the best NDCG@10 on ``watched``.

    States are running means over the steps, each step weighing ``averaging`` times as much as the
    next: the steps of a constant rate go around the place where they lead. Ends early when
    ``patience`` epochs have brought nothing better.
    """
    mean = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(averaging))
    history, best_state = History(), state_of(model)
    for epoch in range(1, epochs + 1):
        start = time.perf_counter()
        for step in range((epoch - 1) * steps.per_epoch, epoch * steps.per_epoch):
            steps.take(step, learning_rate)
            mean.update_parameters(model)
        history.seconds += time.perf_counter() - start
        if epoch % measure_every:
            continue
        quality = judge(mean.module, watched)
        history.ndcg[epoch] = quality.ndcg
        if history.best_epoch == epoch:
            best_state = state_of(mean.module)
        progress(
            f"epoch {epoch:>3}  {history.seconds:7.0f} s  valid HR@10 {quality.hit_rate:.4f}  "
            f"NDCG@10 {quality.ndcg:.4f}"
        )
        if epoch - history.best_epoch >= patience:
            break
    model.load_state_dict(best_state)
    return history
