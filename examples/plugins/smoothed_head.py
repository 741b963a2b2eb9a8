"""A head of your own: the exact softmax with smoothed labels.

    widemax --plugin examples/plugins/smoothed_head.py train log.csv --folder run \
        --head smoothed-full --label-spread 0.1
"""

from __future__ import annotations

import torch
from torch import Tensor

import widemax as wm
from widemax.heads import BatchHead, ScorerHead
from widemax.heads.batch import Batch


@wm.declare.head(
    "smoothed-full",
    options=[
        wm.Option("label_spread", 0.1, "Fraction of the label spread over all classes.", most=0.9)
    ],
    traits=["vectors"],
)
class SmoothedFullHead(ScorerHead, BatchHead):
    """The exact softmax with a fraction of the label spread over all classes."""

    def __init__(self, scorer: wm.Scorer, *, label_spread: float) -> None:
        super().__init__(scorer)
        self.label_spread, self.ignore_index = label_spread, -100

    def batch_losses(self, batch: Batch, generator: torch.Generator | None) -> Tensor:
        """Return the losses of the examples that count."""
        log_prob = self.log_prob(batch.hidden)
        targets = batch.targets if batch.targets.dim() == 2 else batch.targets[:, None]
        there = targets >= 0
        own = log_prob.gather(1, targets.clamp(min=0)) * there
        own = own.sum(-1) / there.sum(-1)
        return -(1 - self.label_spread) * own - self.label_spread * log_prob.mean(-1)
