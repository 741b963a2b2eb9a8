"""Corrected log Q: the positive is exact, only the negatives are sampled."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from widemax.objectives.base import Positives, read_negatives, read_positives, zero_without_positive


def corrected_log_q(
    target_scores: Tensor,
    candidate_scores: Tensor,
    *,
    target_log_expected_count: Tensor | None,
    log_expected_count: Tensor | None,
    hits: Tensor | None,
    target_mask: Tensor | None = None,
) -> Tensor:
    """Sampled softmax whose positive is neither corrected nor sampled.

    Formula: with Q per draw and Q'(d) = Q(d)/(1 − Q(t)), L = sg(1 − P̂)·(LSE_d[F_d − log Q'(d)]
    − F_t), P̂ = e^{F_t} / (e^{F_t} + mean_d e^{F_d − log Q'(d)}), d over the negatives that are
    no hits. It rests on ∇ = (1 − P_t)·[∇F_t − Σ_{d≠t} P(d | d≠t) ∇F_d] with only the inner sum
    sampled. With T positives: L = Σ_t sg(P̂_t − 1/T)·F_t + sg(1 − Σ P̂_t)·LSE_d, which is the
    same for T = 1.

    Shapes: as ``Objective``. The value is a surrogate: its gradient is meant, not its size. A row
    whose every negative is removed has loss 0.

    Cost: O(B·S).

    Reference: Khrylchenko et al. 2025, arXiv 2507.09331.

    Use when: one label per example, few samples, rare targets: its bias is a fraction of that of
    ``sampled_softmax``. Avoid when: the loss value itself is to be read.

    >>> import torch
    >>> loss = corrected_log_q(torch.tensor([0.0]), torch.tensor([[0.0, 0.0]]),
    ...     target_log_expected_count=torch.tensor([2 / 3]).log(),
    ...     log_expected_count=torch.tensor([2 / 3, 2 / 3]).log(), hits=None)
    >>> round(loss.item(), 4)  # three classes, P = 1/3: 2/3 * log(2 * 2)
    0.9242
    """
    if target_log_expected_count is None or log_expected_count is None:
        raise ValueError("corrected_log_q needs target_log_expected_count and log_expected_count")
    positives = read_positives(target_scores, target_mask)
    negatives = read_negatives(candidate_scores, positives.scores.shape[0], hits)
    if negatives.shape[1] == 0:
        return (positives.scores * 0.0).sum(-1)
    corrected = negatives - _log_conditional(
        log_expected_count, target_log_expected_count, positives, negatives
    )
    num_valid = (corrected > -math.inf).sum(-1)
    # Rows without a negative get a harmless stand-in here and loss 0 below: no NaN in the graph.
    corrected = corrected.masked_fill((num_valid == 0)[:, None], 0.0)
    log_sum = corrected.logsumexp(-1)
    weight = _positive_prob(positives, log_sum - num_valid.clamp(min=1).log())
    losses = ((weight - positives.share) * positives.scores).sum(-1)
    losses = losses + (1 - weight.sum(-1)) * log_sum
    return torch.where(num_valid > 0, zero_without_positive(losses, positives), 0.0)


def _log_conditional(
    log_expected_count: Tensor,
    target_log_expected_count: Tensor,
    positives: Positives,
    negatives: Tensor,
) -> Tensor:
    """Return log Q'(d): the chance per draw of d, given that the draw is no positive."""
    num_samples = negatives.shape[1]
    log_count = target_log_expected_count.view(positives.scores.shape).to(negatives.dtype)
    target_prob = (log_count.exp() / num_samples).masked_fill(~positives.present, 0.0)
    # A proposal that draws only positives leaves no negative: the row gets loss 0 anyway.
    other_prob = (1 - target_prob.sum(-1, keepdim=True)).clamp(
        min=torch.finfo(negatives.dtype).tiny
    )
    log_prob = log_expected_count.to(negatives.dtype) - math.log(num_samples)
    return log_prob - other_prob.log()


@torch.no_grad()
def _positive_prob(positives: Positives, log_negative_sum: Tensor) -> Tensor:
    """Return P̂ of each positive, [B, T], 0 where it is absent."""
    scores = positives.scores.masked_fill(~positives.present, -math.inf)
    return torch.cat([scores, log_negative_sum[:, None]], dim=-1).softmax(-1)[:, :-1]
