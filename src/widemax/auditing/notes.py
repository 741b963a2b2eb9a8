"""What a reader of the figures must know to judge them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from widemax.auditing.proposal import ProposalFit
from widemax.heads import Head, SampledHead
from widemax.objectives import (
    full_logistic,
    gbce,
    info_nce,
    nce,
    negative_sampling,
    sampled_logistic,
    sampled_softmax,
)

_LOGISTIC = (full_logistic, gbce, nce, negative_sampling, sampled_logistic)


def notes_on(head: Head, fit: ProposalFit | None) -> tuple[str, ...]:
    """Return one sentence for each thing that explains a bias without being a fault."""
    objective, options = _unwrap(getattr(head, "objective", None))
    notes = []
    if objective in _LOGISTIC:
        notes.append(
            f"{objective.__name__} is a logistic objective: it does not estimate the softmax's "
            "gradient, and its distance from it is no fault."
        )
    if objective is info_nce:
        notes.append("info_nce leaves log Q out on purpose: it learns log(P/Q).")
    if objective is sampled_softmax and fit is not None and fit.most_expected > 1.001:
        notes.append(
            f"A target is expected {fit.most_expected:.3g} times among the candidates, and only "
            "one copy competes: its gradient is up to 1 / (1 − P) times too large. Draw distinct "
            "classes (unique=True), or use corrected_log_q."
        )
    if fit is not None and fit.divergence == math.inf:
        notes.append("Some classes are never drawn: however many the samples, they never compete.")
    if options.get("label_smoothing") or getattr(head, "label_smoothing", 0.0):
        notes.append("Label smoothing counts as bias: the exact gradient is without it.")
    if not isinstance(head, SampledHead):
        notes.append("The head was compared with its own exact log_prob.")
    return tuple(notes)


def _unwrap(objective: Any) -> tuple[Callable[..., Any] | Any, dict[str, Any]]:
    """Return the function under functools.partial, and the options bound to it."""
    options: dict[str, Any] = {}
    while isinstance(objective, functools.partial):
        options = {**objective.keywords, **options}
        objective = objective.func
    return objective, options
