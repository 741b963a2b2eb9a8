"""Importance sampling: the partition function from samples alone."""

from __future__ import annotations

import torch
from torch import Tensor

from widemax.declarations import declare
from widemax.objectives.base import (
    correct_negatives,
    keeps_hits,
    largest,
    read_negatives,
    read_positives,
    zero_without_positive,
)
from widemax.objectives.log_sum import centre, sum_candidates


@declare.objective("importance-sampling")
@keeps_hits
def importance_sampling(
    target_scores: Tensor,
    candidate_scores: Tensor,
    *,
    target_log_expected_count: Tensor | None = None,
    log_expected_count: Tensor | None,
    hits: Tensor | None = None,
    target_mask: Tensor | None = None,
) -> Tensor:
    """The exact loss with log Z estimated by importance sampling, hits kept.

    Formula: L = −F_t + LSE_i[F_i − log Q_i], i over the draws alone; biased, consistent, and an
    estimate of the negative log-likelihood itself. The target is not corrected.

    Shapes: as ``Objective``; ``hits`` and ``target_log_expected_count`` are not used. A row
    whose every candidate is removed has loss 0.

    Cost: O(B·S).

    Reference: Bengio & Senécal 2003, 2008.

    Use when: the proposal follows the model closely (an adapted n-gram); watch
    ``effective_sample_size``. Avoid when: the proposal is far from the model: the loss is
    unbounded below and training diverges.

    >>> import torch
    >>> loss = importance_sampling(torch.tensor([0.0]), torch.zeros(1, 4),
    ...                            log_expected_count=torch.tensor(0.5).log())
    >>> round(loss.item(), 4)  # log(4 / 0.5)
    2.0794
    """
    if log_expected_count is None:
        raise ValueError("importance_sampling needs log_expected_count")
    positives = read_positives(target_scores, target_mask)
    candidates = sum_candidates(
        candidate_scores, len(positives.scores), log_expected_count=log_expected_count
    )
    empty = torch.isneginf(candidates.top)
    positives, log_sum = centre(positives, candidates)
    losses = log_sum.masked_fill(empty, 0.0) - (positives.share * positives.scores).sum(-1)
    return torch.where(empty, 0.0, zero_without_positive(losses, positives))


def effective_sample_size(candidate_scores: Tensor, log_expected_count: Tensor) -> Tensor:
    """How many equally weighted draws the importance sample is worth.

    Formula: ESS = (Σ r)² / Σ r², with r_i = exp(F_i)/Q_i; between 1 and S, and S where Q ∝ P;
    0 where every candidate is removed.

    Shapes: ``candidate_scores`` [B, S], ``log_expected_count`` [S] or [B, S] → [B].

    Cost: O(B·S).

    Reference: Kong 1992; Bengio & Senécal 2008.

    Use when: judging a proposal or choosing num_samples. Avoid when: draws are distinct
    (``unique=True``): it counts independent ones.

    >>> import torch
    >>> effective_sample_size(torch.zeros(1, 5), torch.zeros(5)).item()
    5.0
    """
    negatives = read_negatives(candidate_scores, candidate_scores.shape[0])
    corrected = correct_negatives(negatives - largest(negatives), log_expected_count)
    ratio = (corrected - largest(corrected)).exp()
    empty = torch.isneginf(corrected).all(-1)
    return torch.where(empty, 0.0, ratio.sum(-1).square() / ratio.square().sum(-1))
