"""How well the draws of a sampler stand for all classes."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from widemax.auditing.measuring.drawing import BeforeBatch
from widemax.heads.base import SamplerHead
from widemax.objectives import effective_sample_size
from widemax.validation import ABSENT

_DRAWS = 16
_AT_ONCE = 64


class ProposalFit(NamedTuple):
    """What a few draws say about the proposal."""

    effective_sample_size: Tensor | None
    """Of each example, [N]; None for distinct draws, of which the formula knows nothing."""
    max_expected_count: float
    """The largest expected count of a target among the candidates."""
    from_batch: bool
    """Whether candidates come from the batch."""
    num_candidates: float
    """How many classes compete with the target of an example, on average."""


@torch.no_grad()
def measure_proposal(
    head: SamplerHead,
    hidden: Tensor,
    targets: Tensor,
    *,
    batch_size: int | None,
    generator: torch.Generator | None,
    before_batch: BeforeBatch | None,
) -> ProposalFit:
    """Return how the sampler's proposal fits P(y | x) on these examples."""
    sizes = torch.zeros(len(hidden), dtype=torch.float64, device=hidden.device)
    largest, candidates, from_batch, batches = 0.0, 0, False, 0
    at_once = _AT_ONCE if batch_size is None else batch_size
    for _ in range(_DRAWS):
        for rows in torch.split(torch.arange(len(hidden), device=hidden.device), at_once):
            if before_batch is not None:
                before_batch(rows)
            own = hidden[rows]
            drawn = head.sampler.sample(
                _possible(head, targets[rows]), targets[rows], hidden=own, generator=generator
            )
            scores = head.scores(own, drawn.ids)
            sizes[rows] += effective_sample_size(scores, drawn.log_expected_count).double()
            present = targets[rows] != ABSENT
            largest = max(largest, float(drawn.target_log_expected_count[present].amax().exp()))
            from_batch = from_batch or drawn.rows is not None
            candidates, batches = candidates + drawn.ids.shape[-1], batches + 1
    return ProposalFit(
        effective_sample_size=None if head.sampler.unique else sizes / _DRAWS,
        max_expected_count=largest,
        from_batch=from_batch,
        num_candidates=candidates / batches,
    )


def _possible(head: SamplerHead, targets: Tensor) -> int | None:
    """Return how many candidates to ask for: the last batch may have fewer than the others."""
    available = head.sampler.available(targets)
    if head.num_samples is None or available is None:
        return head.num_samples
    return min(head.num_samples, available)
