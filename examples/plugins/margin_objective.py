"""An objective of your own.

    widemax --plugin examples/plugins/margin_objective.py train log.csv --folder run \
        --objective margin --margin 0.5
"""

from __future__ import annotations

from torch import Tensor

import widemax as wm
from widemax.objectives.base import at_least_float32


@wm.declare.objective(
    "margin",
    options=[wm.Option("margin", 1.0, "How far the target must lead.", most=1e3)],
    traits=["uncorrected"],
)
def margin_loss(
    target_scores: Tensor,
    candidate_scores: Tensor,
    *,
    target_log_expected_count: Tensor | None,
    log_expected_count: Tensor | None,
    hits: Tensor | None,
    target_mask: Tensor | None = None,
    margin: float = 1.0,
) -> Tensor:
    """Return the sum over candidates of max(0, margin + F(candidate) − F(target)).

    It learns an order, not probabilities: log Q is not used.
    """
    scores = at_least_float32("candidate_scores", candidate_scores)
    if hits is not None:
        scores = scores.masked_fill(hits, float("-inf"))
    targets = at_least_float32("target_scores", target_scores)
    if targets.dim() == 1:
        return (margin + scores - targets[:, None]).clamp(min=0).sum(-1)
    losses = (margin + scores[:, None] - targets[..., None]).clamp(min=0).sum(-1)
    if target_mask is None:
        return losses.mean(-1)
    return (losses * target_mask).sum(-1) / target_mask.sum(-1).clamp(min=1)
