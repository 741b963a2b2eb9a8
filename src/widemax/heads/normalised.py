"""Heads whose scores serve as log-probabilities: log Z is trained towards 0."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from widemax.declarations import Option, declare
from widemax.heads.base import BatchHead, ScorerHead
from widemax.heads.batch import Batch
from widemax.objectives.base import read_positives
from widemax.scoring import Scorer
from widemax.validation import check_positive

_ROWS_AT_ONCE = 8192

ALPHA = Option("alpha", 0.1, "Weight of the penalty that keeps log Z near 0.", least=1e-9, most=1e9)


class _NormalisedHead(BatchHead, ScorerHead):
    """What both heads share: −F_t, and the weight α of the penalty on log Z."""

    def __init__(self, scorer: Scorer, alpha: float, ignore_index: int) -> None:
        super().__init__(scorer, ignore_index=ignore_index)
        self.alpha = check_positive("alpha", alpha)

    def _mean_target_scores(self, batch: Batch) -> Tensor:
        """Return F(x, t), [B]; the mean where there are several positives."""
        positives = read_positives(self._target_scores(batch), batch.target_mask)
        return (positives.share * positives.scores).sum(-1)


@declare.head("self-normalised", options=[ALPHA], traits=["vectors"])
class SelfNormalisedHead(_NormalisedHead):
    """The exact softmax with a penalty on log Z, so that F is log P at test time.

    Formula: L = −F(x, t) + log Z(x) + α·(log Z(x))². The first two terms do not see a constant
    added to F, so that the third is free to bring log Z to 0.

    Shapes: as ``Head``.

    Cost: O(B·V·D) to train, tile by tile, never [B, V]; O(S·D) a row to score S classes at test
    with ``scores``, where the exact ``log_prob`` has O(V·D).

    Reference: Devlin et al. 2014.

    Use when: training may be slow but scoring must not. Avoid when: training must be fast too
    (``InfrequentHead``, or NCE), or log P must be exact (``log_prob`` always is).

    Biases that start at −log V make log Z start near 0. ``log_normalizer_statistics`` measures what
    is left of log Z at the end: the error of F as a log-probability.

    >>> from widemax.scoring import TableScorer
    >>> head = SelfNormalisedHead(TableScorer(100, 8), alpha=0.1)
    >>> _ = head.scorer.weight.data.zero_()
    >>> round(head(torch.randn(1, 8), torch.tensor([3])).item(), 4)  # log 100 + (log 100)² / 10
    6.7259
    """

    def __init__(self, scorer: Scorer, *, alpha: float = 0.1, ignore_index: int = -100) -> None:
        super().__init__(scorer, alpha, ignore_index)

    def batch_losses(self, batch: Batch, generator: torch.Generator | None) -> Tensor:
        """Return the loss of each example, [B]; nothing is drawn."""
        log_normalizer = self.log_normalizer(batch.hidden)
        penalty = self.alpha * log_normalizer.square()
        return log_normalizer - self._mean_target_scores(batch) + penalty


@declare.head(
    "infrequent",
    options=[
        ALPHA,
        Option(
            "fraction",
            0.1,
            "Fraction of the examples whose log Z is computed.",
            least=1e-6,
            most=1.0,
        ),
    ],
    traits=["vectors"],
    usual={"alpha": 10.0},
)
class InfrequentHead(_NormalisedHead):
    """Computes log Z for a random fraction of the examples only, and uses F as log P.

    Formula: L = −F(x, t) + [chosen]·(α/γ)·(log Z(x))²; each example is chosen with probability
    γ = ``fraction``. On average L = −log P(t | x) − log Z + α·(log Z)²: P is learned as by the
    exact softmax, and log Z settles at 1/(2α), not at 0.

    Shapes: as ``Head``.

    Cost: O(B·D + γ·B·V·D) to train; O(S·D) a row to score S classes at test with ``scores``.

    Reference: Andreas & Klein 2015.

    Use when: the exact softmax is too slow and F must be log P without a proposal to draw from.
    Avoid when: batches are so small that for many steps no example is chosen: nothing then holds
    F back.

    Biases that start at −log V make log Z start near 0; without them, the penalty (α/γ)·(log V)² of
    the first steps is large. Losses of single batches are no likelihoods: they may be negative.

    >>> from widemax.scoring import TableScorer
    >>> head = InfrequentHead(TableScorer(100, 8), alpha=10.0, fraction=0.5)
    >>> _ = head.scorer.weight.data.zero_()
    >>> losses = head(torch.randn(1000, 8), torch.zeros(1000, dtype=torch.int64),
    ...               generator=torch.Generator().manual_seed(0))
    >>> round((losses > 0).float().mean().item(), 1)
    0.5
    """

    def __init__(
        self,
        scorer: Scorer,
        *,
        alpha: float = 10.0,
        fraction: float = 0.1,
        ignore_index: int = -100,
    ) -> None:
        if check_positive("fraction", fraction) > 1:
            raise ValueError(f"fraction must be above 0 and at most 1, got {fraction!r}")
        super().__init__(scorer, alpha, ignore_index)
        self.fraction = float(fraction)

    def batch_losses(self, batch: Batch, generator: torch.Generator | None) -> Tensor:
        """Return the loss of each example, [B]; those with a penalty are drawn."""
        losses = -self._mean_target_scores(batch)
        uniform = torch.rand(len(losses), device=losses.device, generator=generator)
        factor = self.alpha / self.fraction
        if torch.compiler.is_compiling():  # whose shapes may not depend on values
            penalty = factor * self.log_normalizer(batch.hidden).square()
            return losses + penalty.masked_fill(uniform >= self.fraction, 0.0).to(losses.dtype)
        chosen = (uniform < self.fraction).nonzero()[:, 0]
        if not len(chosen):
            return losses
        penalty = factor * self.log_normalizer(batch.hidden[chosen]).square()
        return losses.index_add(0, chosen, penalty.to(losses.dtype))


@dataclass(frozen=True, kw_only=True)
class LogNormalizerStatistics:
    """How far scores are from log-probabilities: log Z(x) = F(x, y) − log P(y | x) of examples."""

    mean: float
    """It can be subtracted from the scores."""
    std: float
    """Over the examples, not corrected; it cannot be subtracted."""
    max_abs: float
    """The largest error of a score as a log-probability."""


@torch.no_grad()
def log_normalizer_statistics(head: ScorerHead, hidden: Tensor) -> LogNormalizerStatistics:
    """Measure how well the scores of a head normalise themselves, on hidden states [B, D].

    It costs O(B·V·D), some rows at a time.

    >>> import widemax as wm
    >>> head = wm.FullHead(wm.TableScorer(100, 8))
    >>> round(log_normalizer_statistics(head, torch.zeros(5, 8)).mean, 4)  # log 100
    4.6052
    """
    if not len(hidden):
        raise ValueError("hidden must have at least one row, got none")
    blocks = torch.split(hidden, _ROWS_AT_ONCE)
    log_normalizer = torch.cat([head.log_normalizer(rows).double() for rows in blocks])
    return LogNormalizerStatistics(
        mean=log_normalizer.mean().item(),
        std=log_normalizer.std(correction=0).item(),
        max_abs=log_normalizer.abs().max().item(),
    )
