"""Hard negatives among the batch's own targets."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from widemax.candidates import Candidates
from widemax.sampling.base import Sampler
from widemax.validation import ABSENT, check_num_samples, check_targets

Score = Callable[[Tensor, Tensor], Tensor]
"""``score(hidden [B, D], ids [U])`` returns F(x, y), [B, U]: a scorer, or ``head.scores``."""


class BatchHardNegativeSampler(Sampler):
    """Takes the other rows' targets that the model ranks highest: **no probability sample**.

    Formula: candidates of x = the num_samples classes of the batch with the largest F(x, ·), the
    row's own targets last; with ``semi_hard`` those below F(x, t) come first (t the row's
    lowest-scored positive), so that what beats the target is taken only where nothing else is
    left. log Q = 0 for every candidate and target, which means *not corrected*.

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

    is_probability_sample = False
    per_example = True

    def __init__(self, num_classes: int, score: Score, *, semi_hard: bool = False) -> None:
        super().__init__(num_classes)
        if not callable(score):
            raise ValueError(f"score must be a function (hidden, ids) → scores, got {score!r}")
        self.score = score
        self.semi_hard = semi_hard

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
        if hidden is None or hidden.dim() != 2 or len(hidden) != len(targets):
            raise ValueError(
                f"hidden must have shape [{len(targets)}, D]: hard negatives depend on it; got "
                f"{None if hidden is None else list(hidden.shape)}"
            )
        pool: Tensor = torch.unique(targets[targets != ABSENT])
        number = len(pool) if num_samples is None else check_num_samples(num_samples)
        if number > len(pool):
            raise ValueError(
                f"num_samples must be at most {len(pool):,}, the distinct targets of this batch, "
                f"got {number:,}"
            )
        ids = pool[self._hardest_first(hidden, targets, pool)[:, :number]]
        return Candidates(
            ids=ids,
            log_expected_count=torch.zeros(ids.shape, dtype=torch.float64, device=ids.device),
            target_log_expected_count=torch.zeros(
                targets.shape, dtype=torch.float64, device=targets.device
            ),
        )

    def log_prob(self, ids: Tensor) -> Tensor:
        """Raise ValueError: hard negatives are not drawn from any distribution."""
        raise ValueError(
            "BatchHardNegativeSampler has no log_prob: its candidates are the best of the model, "
            "not draws from a distribution; use InBatchSampler for in-batch candidates with log Q"
        )

    @torch.no_grad()
    def _hardest_first(self, hidden: Tensor, targets: Tensor, pool: Tensor) -> Tensor:
        """Return places in the pool, [B, U]: by group, and within it by falling score."""
        scores = self.score(hidden.detach(), pool)
        table = targets if targets.dim() == 2 else targets[:, None]
        own = (table[:, :, None] == pool).any(1)
        group = 2 * own.long()
        if self.semi_hard and len(pool):
            lowest = scores.masked_fill(~own, torch.inf).amin(-1, keepdim=True)
            group += (~own & (scores >= lowest)).long()
        by_score = scores.sort(dim=-1, descending=True, stable=True).indices
        by_group = group.gather(1, by_score).sort(dim=-1, stable=True).indices
        return by_score.gather(1, by_group)
