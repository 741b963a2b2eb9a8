"""The rows of gowalla.py: what each model is, and how it is trained.

``fit`` of a setting gives the trained model; two settings that are equal give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from _gowalla import LeaveOneOut, LeaveOneOutBags, Stage, train
from widemax.encoders import YouTubeDNNEncoder
from widemax.heads import SampledHead
from widemax.models import Item2Vec, Model, YouTubeDNN, shuffled_baskets
from widemax.models.embeddings.kernel_steps import Word2VecSteps
from widemax.objectives import Objective, corrected_log_q, info_nce, sampled_softmax
from widemax.optim import RowAdam
from widemax.sampling import (
    InBatchSampler,
    MixtureSampler,
    Sampler,
    UniformSampler,
    UnigramSampler,
)
from widemax.scoring import TableScorer
from widemax.scoring.table import Similarity
from widemax.training.steps import GradientSteps

DIMENSION = 64

Watch = Callable[[Model, int, float], object]
"""Told the model, the epoch that has ended and the seconds of training so far."""

Opponents = Literal["uniform", "by counts", "in-batch", "mixed"]
Correction = Literal["none", "log Q", "corrected log Q"]

OBJECTIVES: dict[Correction, Objective] = {
    "none": info_nce,
    "log Q": sampled_softmax,
    "corrected log Q": corrected_log_q,
}


@dataclass(frozen=True)
class BagSetting:
    """A user as the mean of all their other items, by Adam; chosen on valid."""

    opponents: Opponents = "uniform"
    correction: Correction = "log Q"
    num_samples: int = 800
    """Unless they are the batch."""
    similarity: Similarity = "dot"
    temperature: float = 1.0
    left_out: float = 0.0
    """What share of a user's items is not shown, other ones each time."""
    popularity: float = 0.0
    """What share of an item's log count its bias starts with; at 0 there are no biases."""
    deviation: float = 0.1
    """Of the numbers in the item vectors at the start."""
    targets_a_row: int = 8
    rows_a_batch: int = 320
    learning_rate: float = 5e-3
    weight_decay: float = 0.0
    epochs: int = 40
    seed: int = 0

    def fit(self, stage: Stage, watch: Watch) -> YouTubeDNN:
        torch.manual_seed(self.seed)
        encoder = YouTubeDNNEncoder(stage.num_classes, DIMENSION)
        nn.init.normal_(encoder.items.weight, std=self.deviation)
        model = YouTubeDNN(encoder, self.head(stage, encoder.items))
        steps = GradientSteps(
            # What a user chose elsewhere in the batch is no negative of theirs.
            LeaveOneOut(model, apart=self.by_batch, left_out=self.left_out),
            RowAdam(model.parameters(), weight_decay=self.weight_decay),
            LeaveOneOutBags(stage.train, targets_a_row=self.targets_a_row),
            batch_size=self.rows_a_batch,
            seed=self.seed,
        )
        # The last step is at a small rate, not at 0, which an optimiser refuses.
        last = 1e-3 * self.learning_rate
        train(
            steps,
            epochs=self.epochs,
            rate_at=lambda done: max(last, self.learning_rate * (1 - done)),
            after_epoch=lambda epoch, seconds: watch(model, epoch, seconds),
        )
        return model

    @property
    def by_batch(self) -> bool:
        return self.opponents in ("in-batch", "mixed")

    def told(self) -> str:
        """How it was trained, in a few words."""
        scale = f", τ = {self.temperature:g}" if self.temperature != 1 else ""
        scale += ", biases" if self.popularity else ""
        scale += f", {100 * self.left_out:g} % left out" if self.left_out else ""
        how = " by √count" if self.opponents == "by counts" else ""
        drawn = "" if self.opponents == "in-batch" else f"{self.num_samples:,} candidates{how}, "
        return (
            f"{drawn}batches of {self.rows_a_batch} × ≤ {self.targets_a_row} targets{scale}, "
            f"Adam from {self.learning_rate:g}, L2 {self.weight_decay:g}, {self.epochs} epochs"
        )

    def head(self, stage: Stage, items: nn.Embedding) -> SampledHead:
        scorer = TableScorer.tied(
            items,
            bias=bool(self.popularity),
            similarity=self.similarity,
            temperature=self.temperature,
            sparse=items.sparse,
        )
        if scorer.bias is not None:
            log_counts = (stage.counts + 1).log()
            scorer.bias.data.copy_(self.popularity * (log_counts - log_counts.mean()))
        return SampledHead(
            scorer,
            self.sampler(stage),
            objective=OBJECTIVES[self.correction],
            num_samples=None if self.opponents == "in-batch" else self.num_samples,
        )

    def sampler(self, stage: Stage) -> Sampler:
        size = stage.num_classes
        if self.opponents == "uniform":
            return UniformSampler(size, unique=True)
        if self.opponents == "by counts":
            # One more of each: an item that is never drawn is never told to stay down.
            return UnigramSampler(size, stage.counts + 1, distortion=0.5, unique=True)
        # Each item of each basket is a target once an epoch: its count is its frequency.
        frequency = UnigramSampler(size, stage.counts, distortion=1.0)
        in_batch = InBatchSampler(size, frequency)
        if self.opponents == "in-batch":
            return in_batch
        return MixtureSampler([in_batch, UniformSampler(size)], [0.5, 0.5])


@dataclass(frozen=True)
class Item2VecSetting:
    """Skip-gram on baskets that are shuffled for each epoch; chosen on valid."""

    window: int = 20
    negatives: int = 5
    distortion: float = 0.25
    learning_rate: float = 0.05
    epochs: int = 20
    seed: int = 0

    def fit(self, stage: Stage, watch: Watch) -> Item2Vec:
        torch.manual_seed(self.seed)
        model = Item2Vec.create(
            stage.counts,
            dimension=DIMENSION,
            num_samples=self.negatives,
            distortion=self.distortion,
        )
        generator = torch.Generator().manual_seed(self.seed)
        seconds = 0.0
        for epoch in range(self.epochs):
            # One thread: the same seed, the same bits.
            steps = Word2VecSteps(
                model,
                shuffled_baskets(stage.train, generator=generator),
                window=self.window,
                threads=1,
                seed=self.seed * self.epochs + epoch,
            )
            seconds += train(steps, epochs=1, rate_at=self._rate_in(epoch))
            watch(model, epoch + 1, seconds)
        return model

    def told(self) -> str:
        """How it was trained, in a few words."""
        return (
            f"window {self.window}, {self.negatives} negatives by count^{self.distortion:g}, rate "
            f"from {self.learning_rate:g}, {self.epochs} epochs"
        )

    def _rate_in(self, epoch: int) -> Callable[[float], float]:
        return lambda done: self.learning_rate * (1 - (epoch + done) / self.epochs)


Setting = BagSetting | Item2VecSetting


@dataclass(frozen=True)
class Row:
    """One line of the table, and what it must reach."""

    title: str
    setting: Setting
    note: str = ""
    least: tuple[float, float] | None = None
    """Recall@20 and NDCG@20."""
    hoped: tuple[float, float] | None = None
    """What would be better still; reported, not asked for."""


_COSINE: dict[str, Any] = {
    "similarity": "cosine",
    "temperature": 0.1,
    "popularity": 0.5,
    "deviation": 0.05,
}


def _in_batch(correction: Correction, opponents: Opponents = "in-batch") -> BagSetting:
    """One budget for all: about 512 targets a batch against about as many candidates."""
    return BagSetting(
        opponents=opponents,
        correction=correction,
        num_samples=512,
        **_COSINE,
        targets_a_row=4,
        rows_a_batch=144,
        learning_rate=3e-3,
        epochs=10,
    )


ROWS = {
    "cosine": Row(
        title="YouTubeDNN, cosine",
        setting=BagSetting(
            **_COSINE,
            opponents="by counts",
            left_out=0.3,
            num_samples=2_000,
            rows_a_batch=100,
            learning_rate=2e-3,
            epochs=40,
        ),
        least=(0.1754, 0.1473),
        hoped=(0.1837, 0.1493),
    ),
    "item2vec": Row(title="Item2Vec", setting=Item2VecSetting(), least=(0.1326, 0.1057)),
    "in_batch": Row(title="in-batch, no correction", setting=_in_batch("none")),
    "in_batch_log_q": Row(title="in-batch, log Q", setting=_in_batch("log Q")),
    "in_batch_corrected": Row(
        title="in-batch, corrected log Q", setting=_in_batch("corrected log Q")
    ),
    "mixed_log_q": Row(
        title="half in-batch, half uniform, log Q", setting=_in_batch("log Q", "mixed")
    ),
}
"""In the order in which they are trained."""

ABLATION = ("in_batch", "in_batch_log_q", "in_batch_corrected", "mixed_log_q")
