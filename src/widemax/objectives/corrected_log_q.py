"""Corrected log Q: the positive is exact, only the negatives are sampled."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from widemax.declarations import declare
from widemax.devices import by_kernels
from widemax.objectives.base import (
    Positives,
    like_positives,
    read_positives,
    zero_without_positive,
)
from widemax.objectives.log_sum import centre, sum_candidates


@declare.objective("corrected-log-q")
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

    Use when: one label per example, few samples, rare targets: for one of them its bias is a
    fraction of that of ``sampled_softmax`` (averaged over targets as they are drawn, both are
    even); or draws with replacement meet likely targets. Avoid when: the value of the loss is of
    interest.

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
    candidates = sum_candidates(
        candidate_scores, len(positives.scores), log_expected_count=log_expected_count, hits=hits
    )
    num_valid = _count_competing(candidate_scores, hits)
    # The weights of all scores add up to 0, so a shift changes nothing; see ``centre``.
    positives, log_sum = centre(positives, candidates)
    # Rows without a negative get a harmless stand-in here and loss 0 below: no NaN in the graph.
    empty = torch.isneginf(log_sum)
    num_samples = max(1, candidate_scores.shape[1])
    # −log Q'(d) = −log(expected count) + log S + log(1 − Q(t)).
    log_scale = _log_other_prob(target_log_expected_count, positives, num_samples)
    log_sum = log_sum.masked_fill(empty, 0.0) + (log_scale + math.log(num_samples))
    pull, push = _weights(positives, log_sum - num_valid.clamp(min=1).to(log_sum.dtype).log())
    losses = push * log_sum - (pull * positives.scores).sum(-1)
    return torch.where(empty, 0.0, zero_without_positive(losses, positives))


@torch.no_grad()
def _count_competing(candidate_scores: Tensor, hits: Tensor | None) -> Tensor:
    competing = candidate_scores != -math.inf
    return (competing if hits is None else competing & ~hits).sum(-1)


def _log_other_prob(
    target_log_expected_count: Tensor, positives: Positives, num_samples: int
) -> Tensor:
    """Return log(1 − Q(t)), the log probability that a draw is not a positive, [B]."""
    log_count = like_positives(
        "target_log_expected_count", target_log_expected_count, positives.scores
    )
    if by_kernels(log_count) and bool(log_count[positives.present()].isnan().any()):
        raise ValueError("target_log_expected_count must not be NaN")
    # In the wider of both dtypes: 1 − Q(t) loses digits where the proposal favours the target.
    log_count = log_count.to(torch.promote_types(log_count.dtype, positives.scores.dtype))
    target_prob = (log_count.exp() / num_samples).masked_fill(~positives.present(), 0.0)
    # Estimated counts may claim that only positives are drawn: the logarithm stays finite.
    other_prob = (1 - target_prob.sum(-1)).clamp(min=torch.finfo(torch.float32).tiny)
    return other_prob.log().to(positives.scores.dtype)


@torch.no_grad()
def _weights(positives: Positives, log_negative_sum: Tensor) -> tuple[Tensor, Tensor]:
    """Return 1/T − P̂_t of each positive, [B, T], and 1 − Σ P̂_t, [B]."""
    scores = positives.scores.masked_fill(~positives.present(), -math.inf)
    prob = torch.cat([scores, log_negative_sum[:, None]], dim=-1).softmax(-1)
    # The last entry is 1 − Σ P̂_t with all its digits, also where P̂ rounds to 1.
    push = prob[:, -1]
    pull = torch.where(positives.share == 1, push[:, None], positives.share - prob[:, :-1])
    return pull, push
