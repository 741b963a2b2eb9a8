"""The same items for everyone: those chosen most often."""

from __future__ import annotations

import torch
from torch import Tensor

from widemax.data import Sequences
from widemax.declarations import declare
from widemax.models.baselines.base import Baseline
from widemax.models.options import WEIGHTS
from widemax.validation import MAX_TABLE_CLASSES, check_num_classes


@declare.model(
    "popularity",
    options=WEIGHTS,
    slots=["trainer"],
    traits=["fitted"],
    usual={"trainer": "fit"},
)
class Popularity(Baseline):
    """Recommends what most users have chosen, whatever the history.

    Formula: F(x, y) = log P(y) = log((n_y + 1) / Σ (n + 1)), n_y the users who chose y, or the sum
    of their weights.

    Reference: Laplace's rule of succession keeps unseen items possible.

    Use when: a floor is wanted that every other recommender must beat. Avoid when: users differ.

    >>> model = Popularity(4)
    >>> model.fit(Sequences.from_lists([[0, 2], [2], [2, 3]]))
    >>> model.head.topk(torch.tensor([[2]]), 2, exclude=torch.tensor([[2]])).ids.tolist()
    [[0, 3]]
    >>> round(model.head.log_prob(torch.tensor([[-1]])).exp()[0, 2].item(), 4)  # 4 of 9
    0.4444
    """

    counts: Tensor

    def __init__(self, num_classes: int) -> None:
        super().__init__(check_num_classes(num_classes, limit=MAX_TABLE_CLASSES))
        self.register_buffer("counts", torch.zeros(num_classes, dtype=torch.float64))

    def fit_sets(self, sets: Sequences, weights: Tensor | None = None) -> None:
        """Count the users of each item."""
        self.counts.copy_(torch.bincount(sets.values, weights, minlength=self.num_classes))

    def table_answers(self) -> dict[str, str | float]:
        """Return which buffer answers."""
        return {"rule": "counts", "table.counts": "counts"}

    def set_scores(self, sets: Tensor) -> Tensor:
        """Return the same scores for every history, [B, V]."""
        smoothed = self.counts + 1
        log_share = (smoothed / smoothed.sum()).log().to(torch.get_default_dtype())
        return log_share.expand(len(sets), -1)
