"""How well a sampler's proposal fits the model: what explains a bias or a spread."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from widemax.heads import SampledHead
from widemax.objectives import effective_sample_size

_DRAWS = 16
_MAX_SCORES = 2**22
_NOT_NORMALISED = 1e-3


class ProposalFit(NamedTuple):
    """What a few draws and log q say of the proposal; None where it has no meaning."""

    effective_sample_size: float | None
    divergence: float | None
    """Mean over the examples of KL(P ‖ q), q the probability of one draw, in nats."""
    most_expected: float
    """The largest expected count of a target among the candidates."""
    from_batch: bool
    """Whether candidates come from the batch."""


@torch.no_grad()
def fit_of_proposal(
    head: SampledHead, hidden: Tensor, targets: Tensor, generator: torch.Generator | None
) -> ProposalFit:
    """Return how the sampler's proposal fits P(y | x) on these examples."""
    sizes, counts, from_batch = [], [], False
    for _ in range(_DRAWS):
        drawn = head.sampler.sample(head.num_samples, targets, hidden=hidden, generator=generator)
        scores = head.scores(hidden, drawn.ids)
        sizes.append(effective_sample_size(scores, drawn.log_expected_count).mean())
        counts.append(drawn.target_log_expected_count.amax())
        from_batch = from_batch or drawn.rows is not None
    # Distinct draws are no importance sample: the formula counts independent ones.
    distinct = bool(getattr(head.sampler, "unique", False))
    return ProposalFit(
        effective_sample_size=None if distinct else float(torch.stack(sizes).mean()),
        divergence=_divergence(head, hidden),
        most_expected=float(torch.stack(counts).amax().exp()),
        from_batch=from_batch,
    )


def _divergence(head: SampledHead, hidden: Tensor) -> float | None:
    every_class = torch.arange(head.num_classes, device=hidden.device)
    try:
        log_proposal = head.sampler.log_prob(every_class)
    except ValueError:
        # A proposal that depends on the example has no log q of a class alone.
        return None
    if abs(float(log_proposal.logsumexp(0))) > _NOT_NORMALISED:
        # A running estimate of the frequencies, say: a divergence needs probabilities.
        return None
    total = 0.0
    for rows in torch.split(hidden, max(1, _MAX_SCORES // head.num_classes)):
        log_prob = head.log_prob(rows).double()
        terms = log_prob.exp() * (log_prob - log_proposal)
        # 0 · log 0 = 0: a class the model rules out costs nothing, drawn or not.
        total += float(terms.masked_fill(log_prob.exp() == 0, 0.0).sum())
    return total / len(hidden)
