"""Heads of models that have no hidden states: the context itself is what they are asked by."""

from __future__ import annotations

import torch
from torch import Tensor

from widemax.candidates import TopK
from widemax.heads import Head
from widemax.heads.exact.topk import best_keeper
from widemax.validation import check_exclude, check_num_classes, check_whole

_SCORES_AT_ONCE = 2**24


class ContextHead(Head):
    """A head whose ``hidden`` is the context itself, int64 [B, H], -1 where there is nothing.

    What it answers was counted or solved, so that its loss trains nothing and is there to be
    compared. The best classes are sought some rows at a time.
    """

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.num_classes = check_num_classes(num_classes)

    def forward(
        self,
        hidden: Tensor,
        targets: Tensor,
        *,
        weights: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return −log P of each target, [B]."""
        losses = -self.log_prob(hidden, targets[:, None])[:, 0]
        return losses if weights is None else losses * weights

    @torch.no_grad()
    def topk(self, hidden: Tensor, k: int, *, exclude: Tensor | None = None) -> TopK:
        """Return the k best classes, leaving out ``exclude`` [B, E], padded with -1."""
        k = check_whole("k", k, 1, self.num_classes)
        if exclude is not None:
            exclude = check_exclude(exclude, len(hidden), self.num_classes)
        rows_at_once = max(1, _SCORES_AT_ONCE // self.num_classes)
        parts = []
        for start in range(0, max(1, len(hidden)), rows_at_once):
            rows = slice(start, start + rows_at_once)
            scores = self.scores(hidden[rows]).contiguous()
            keeper = best_keeper(scores, k, None if exclude is None else exclude[rows])
            keeper.offer(slice(0, len(scores)), 0, scores)
            parts.append(keeper.result())
        return TopK(
            ids=torch.cat([part.ids for part in parts]),
            scores=torch.cat([part.scores for part in parts]),
        )
