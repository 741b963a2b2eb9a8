"""The exact softmax as a head."""

from __future__ import annotations

import torch
from torch import Tensor

from widemax.declarations import declare
from widemax.heads.base import BatchHead, ScorerHead
from widemax.heads.batch import Batch, label_shares
from widemax.heads.exact.blockwise import block_cross_entropy
from widemax.heads.interests import best_over_all, check_interests
from widemax.scoring import Scorer
from widemax.validation import check_fraction


@declare.head("full", traits=["vectors"])
class FullHead(BatchHead, ScorerHead):
    """The exact softmax cross-entropy, without the [B, V] matrix.

    Formula: L = ``cross_entropy(scorer(hidden), targets, reduction="none")``.

    Shapes: as ``Head``.

    Cost: O(B·V·D), four matrix products where the plain way has three, and still faster because a
    tile of scores stays in the cache. Memory: the gradient of the table and a few tiles.

    Reference: the tiling is that of Wijmans et al. 2024 (cut cross-entropy).

    Use when: V is up to some 100,000, and as the truth for every shortcut. Avoid when: the step
    is too slow for you (``SampledHead``).

    >>> import widemax as wm
    >>> head = wm.FullHead(wm.TableScorer(1000, 16))
    >>> _ = head.scorer.weight.data.zero_()
    >>> round(head(torch.randn(1, 16), torch.tensor([3])).item(), 4)  # log 1000
    6.9078
    """

    def __init__(
        self, scorer: Scorer, *, label_smoothing: float = 0.0, ignore_index: int = -100
    ) -> None:
        super().__init__(scorer, ignore_index=ignore_index)
        self.label_smoothing = check_fraction("label_smoothing", label_smoothing)

    def batch_losses(self, batch: Batch, generator: torch.Generator | None) -> Tensor:
        """Return the exact loss of each example, [B]; nothing is drawn."""
        blocks = self._blocks(batch.hidden)
        shares, smoothing = label_shares(batch.targets, blocks[0].queries), self.label_smoothing
        return block_cross_entropy(blocks, batch.target_ids, shares, label_smoothing=smoothing)

    def interest_losses(
        self,
        interests: Tensor,
        user: Tensor,
        targets: Tensor,
        *,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return the exact losses where a class scores max_k F(x_k, y), a target F(user, t), [B].

        Interests x are [B, K, D], user [B, D], targets [B]; nothing is drawn.
        """
        batch = self._read_batch(user, targets, None, generator)
        interests = check_interests(interests, user, targets)
        kept = interests if batch.rows is None else interests[batch.rows]
        target, smoothing = self._target_scores(batch).flatten(), self.label_smoothing
        best = best_over_all(self.scorer, kept, batch.targets, target)
        # A class ruled out by its bias makes the mean −inf, and 0 · −inf would be NaN.
        labelled = (1 - smoothing) * target + smoothing * best.mean if smoothing else target
        return batch.finish(best.log_normalizer - labelled)
