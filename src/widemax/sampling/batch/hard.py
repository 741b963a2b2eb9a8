"""Hard negatives among the batch's own targets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor

from widemax.candidates import Candidates
from widemax.declarations import Need, Option, Setup, declare
from widemax.sampling.base import NUM_SAMPLES, with_log_count_zero
from widemax.sampling.conditional.hard import ModelRankedSampler
from widemax.validation import ABSENT, check_num_samples, check_targets

Score = Callable[[Tensor, Tensor], Tensor]
"""``score(hidden [B, D], ids [U])`` returns F(x, y), [B, U]: a scorer, or ``head.scores``."""


@declare.sampler(
    "batch-hard-negatives",
    options=[
        NUM_SAMPLES,
        Option("semi_hard", False, "Whether classes that score below the target are taken first."),
    ],
    needs=[
        Need(
            "objective",
            trait="uncorrected",
            why="has no log Q, so the objective must not correct by it",
        )
    ],
)
class BatchHardNegativeSampler(ModelRankedSampler):
    """Takes the other rows' targets that the model ranks highest: **no probability sample**.

    Formula: candidates of x = the num_samples classes of the batch with the largest F(x, ·), the
    row's own targets last; with ``semi_hard`` those below F(x, t) come first (t the row's
    lowest-scored positive), so that what beats the target is taken only where nothing else is
    left. log Q = 0 for every candidate and target, which means *not corrected*.
    With ``allow_fewer`` a batch of fewer classes gives all it has.

    Shapes: hidden [B, D] → candidates [B, S], S at most the number of distinct targets.

    Cost: O(B·U·D) for U distinct targets in the batch.

    Reference: Schroff et al. 2015 (semi-hard), Hermans et al. 2017 (batch hard).

    Use when: class vectors are costly and only those of the batch are at hand. Avoid when:
    probabilities are wanted (``InBatchSampler`` with log Q), or the whole catalogue can be
    searched (``HardNegativeSampler``).

    >>> import torch
    >>> import widemax as wm
    >>> scorer = wm.TableScorer(4, 1)
    >>> _ = scorer.weight.data.copy_(torch.tensor([[1.0], [3.0], [2.0], [0.0]]))
    >>> hard = BatchHardNegativeSampler(4, scorer)
    >>> targets, hidden = torch.tensor([2, 1, 3]), torch.ones(3, 1)
    >>> hard.sample(1, targets, hidden=hidden).ids.tolist()
    [[1], [2], [1]]
    >>> BatchHardNegativeSampler(4, scorer, semi_hard=True).sample(
    ...     1, targets, hidden=hidden).ids.tolist()
    [[3], [2], [1]]
    """

    def __init__(
        self, num_classes: int, score: Score, *, semi_hard: bool = False, allow_fewer: bool = False
    ) -> None:
        super().__init__(num_classes)
        if not callable(score):
            raise ValueError(f"score must be a function (hidden, ids) → scores, got {score!r}")
        self.score = score
        self.semi_hard, self.allow_fewer = semi_hard, allow_fewer

    @classmethod
    def build(cls, setup: Setup) -> Self:
        """Return the sampler of a run, which asks the scorer of its head."""
        semi_hard = setup.options.semi_hard
        # The last batch of an epoch may be short.
        return cls(setup.num_classes, setup.scorer.forward, semi_hard=semi_hard, allow_fewer=True)

    def available(self, targets: Tensor) -> int:
        """Return the number of distinct targets of the batch."""
        return len(torch.unique(targets[targets != ABSENT]))

    def sample(
        self,
        num_samples: int | None,
        targets: Tensor,
        *,
        hidden: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Candidates:
        """Return the ``num_samples`` hardest classes of the batch; None: all of them."""
        targets = check_targets(targets, self.num_classes)
        hidden = self._check_hidden(hidden, len(targets))
        pool: Tensor = torch.unique(targets[targets != ABSENT])
        number = len(pool) if num_samples is None else check_num_samples(num_samples)
        if self.allow_fewer:
            number = min(number, len(pool))
        if number > len(pool):
            raise ValueError(
                f"num_samples must be at most {len(pool):,}, the distinct targets of this batch, "
                f"got {number:,}"
            )
        ids = pool[self._hardest_first(hidden, targets, pool)[:, :number]]
        return with_log_count_zero(ids, targets)

    @torch.no_grad()
    def _hardest_first(self, hidden: Tensor, targets: Tensor, pool: Tensor) -> Tensor:
        """Return places in the pool, [B, U]: by group, and within it by falling score."""
        scores = self.score(hidden, pool)
        table = targets if targets.dim() == 2 else targets[:, None]
        own = (table[:, :, None] == pool).any(1)
        group = 2 * own.long()
        if self.semi_hard and len(pool):
            lowest = scores.masked_fill(~own, torch.inf).amin(-1, keepdim=True)
            group += (~own & (scores >= lowest)).long()
        by_score = scores.sort(dim=-1, descending=True, stable=True).indices
        by_group = group.gather(1, by_score).sort(dim=-1, stable=True).indices
        return by_score.gather(1, by_group)
