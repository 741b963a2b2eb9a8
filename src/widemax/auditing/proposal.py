"""How well a sampler's proposal fits the model, and what else explains a bias or a spread."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from widemax.heads import Head, SampledHead
from widemax.objectives import (
    effective_sample_size,
    full_logistic,
    gbce,
    info_nce,
    nce,
    negative_sampling,
    sampled_logistic,
    sampled_softmax,
)

_DRAWS = 16
_MAX_SCORES = 2**22
_MAX_LOG_MASS = 1e-3
"""How far the logarithm of the sum of a proposal's probabilities may be from 0."""
_LOGISTIC = (full_logistic, gbce, nce, negative_sampling, sampled_logistic)


class ProposalFit(NamedTuple):
    """What a few draws and log q say about the proposal; None where it has no meaning."""

    effective_sample_size: float | None
    divergence: float | None
    """Mean over the examples of KL(P ‖ q), q the probability of one draw, in nats."""
    max_expected_count: float
    """The largest expected count of a target among the candidates."""
    from_batch: bool
    """Whether candidates come from the batch."""


@torch.no_grad()
def measure_proposal(
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
        max_expected_count=float(torch.stack(counts).amax().exp()),
        from_batch=from_batch,
    )


def _divergence(head: SampledHead, hidden: Tensor) -> float | None:
    every_class = torch.arange(head.num_classes, device=hidden.device)
    try:
        log_proposal = head.sampler.log_prob(every_class)
    except ValueError:
        # A proposal that depends on the example has no log q of a class alone.
        return None
    if abs(float(log_proposal.logsumexp(0))) > _MAX_LOG_MASS:
        # For example a running estimate of the frequencies: a divergence needs probabilities.
        return None
    total = 0.0
    for rows in torch.split(hidden, max(1, _MAX_SCORES // head.num_classes)):
        log_prob = head.log_prob(rows).double()
        terms = log_prob.exp() * (log_prob - log_proposal)
        # 0 · log 0 = 0: a class the model rules out costs nothing, drawn or not.
        total += float(terms.masked_fill(log_prob.exp() == 0, 0.0).sum())
    return total / len(hidden)


def notes_on(head: Head, fit: ProposalFit | None) -> tuple[str, ...]:
    """Return one sentence for each thing that explains a bias without being a fault."""
    objective: Any = getattr(head, "objective", None)
    options: dict[str, Any] = {}
    while isinstance(objective, functools.partial):
        options = {**objective.keywords, **options}
        objective = objective.func
    notes = []
    if objective in _LOGISTIC:
        notes.append(
            f"{objective.__name__} is a logistic objective: it does not estimate the softmax's "
            "gradient, and its distance from it is not a fault."
        )
    if objective is info_nce:
        notes.append("info_nce leaves log Q out on purpose: it learns log(P/Q).")
    if objective is sampled_softmax and fit is not None and fit.max_expected_count > 1.001:
        notes.append(
            f"A target is expected {fit.max_expected_count:.3g} times among the candidates, and "
            "only one copy competes: its gradient is up to 1 / (1 − P) times too large. Take the "
            "objective corrected_log_q, or draw fewer classes, or distinct ones where the sampler "
            "can (unique=True)."
        )
    if fit is not None and fit.divergence == math.inf:
        notes.append("Some classes are never drawn: they never compete, whatever num_samples is.")
    if options.get("label_smoothing") or getattr(head, "label_smoothing", 0.0):
        notes.append("Label smoothing counts as bias: the exact gradient is without it.")
    if not isinstance(head, SampledHead):
        notes.append("The head was compared with its own exact log_prob.")
    return tuple(notes)
