"""Which figures of an audit mean something for which head and objective."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from widemax.auditing.measuring.proposal import ProposalFit
from widemax.heads import AdaptiveHead, FullHead, Head, HierarchicalHead
from widemax.heads.base import SamplerHead
from widemax.heads.normalised import InfrequentHead, SelfNormalisedHead
from widemax.heads.sparse import SparseHead
from widemax.objectives import (
    full_logistic,
    gbce,
    info_nce,
    nce,
    negative_sampling,
    sampled_logistic,
    sampled_softmax,
)

Aim = Literal["softmax", "exact", "other"]


class Meaning(NamedTuple):
    """What a head is trained for, and so what its distance from the softmax says."""

    aim: Aim
    """"softmax": the bias should be 0; "exact": it is, by construction; "other": it need not be."""
    sentence: str
    """What is learned, where that is not the softmax of the scores."""


_NCE = (
    "The logistic objective nce learns log P with log Z near 0: its gradient is not the softmax's, "
    "and the distance is no fault. What judges it is log Z, whose mean and spread should be near "
    "0, and the spread of a step."
)
_LOG_ODDS = (
    "The logistic objective {} learns log odds, a regression for each class: its gradient is not "
    "the softmax's, and the distance is no fault. log Z has no meaning here; the spread of a step "
    "has."
)
_OBJECTIVES: dict[Callable[..., Any], str] = {
    nce: _NCE,
    negative_sampling: (
        "The logistic objective negative_sampling learns log(P/Q): its gradient is not the "
        "softmax's, and the distance is no fault. log Z has no meaning here; the spread of a step "
        "has."
    ),
    sampled_logistic: _LOG_ODDS.format("sampled_logistic"),
    full_logistic: _LOG_ODDS.format("full_logistic"),
    gbce: _LOG_ODDS.format("gbce"),
    info_nce: (
        "The objective info_nce leaves log Q out on purpose: it learns log(P/Q), and the distance "
        "from the softmax is what popularity makes of it."
    ),
}
_HEADS: tuple[tuple[type[Head], Meaning], ...] = (
    (
        SparseHead,
        Meaning(
            "other",
            "A sparse head gives most classes probability 0 on purpose: its gradient is that of "
            "its own distribution, and the distance from the softmax is no fault.",
        ),
    ),
    (
        SelfNormalisedHead,
        Meaning(
            "other",
            "The penalty on log Z is added to the exact softmax: the distance is that penalty, and "
            "should be small where log Z is near 0.",
        ),
    ),
    (
        InfrequentHead,
        Meaning(
            "other",
            "The normaliser log Z is computed for a part of the examples and held near a "
            "constant: single gradients differ from the softmax's by that penalty, and what "
            "judges the head is the spread of log Z.",
        ),
    ),
    (FullHead, Meaning("exact", "The full softmax is exact: its bias is 0 by construction.")),
    (
        HierarchicalHead,
        Meaning(
            "exact",
            "A tree is normalised and trained exactly: its bias is 0 by construction. It is "
            "another distribution than a flat softmax, which an audit does not judge.",
        ),
    ),
    (
        AdaptiveHead,
        Meaning(
            "exact",
            "The adaptive softmax is normalised and trained exactly: its bias is 0 by "
            "construction. Its rare classes have shorter vectors, which an audit does not judge.",
        ),
    ),
)


def unwrapped(objective: Any) -> tuple[Any, dict[str, Any]]:
    """Return the function of an objective and the options that are bound to it.

    >>> from functools import partial
    >>> unwrapped(partial(sampled_softmax, label_smoothing=0.1))[1]
    {'label_smoothing': 0.1}
    """
    options: dict[str, Any] = {}
    while isinstance(objective, functools.partial):
        options = {**objective.keywords, **options}
        objective = objective.func
    return objective, options


def meaning_of(head: Head) -> Meaning:
    """Return what a head is trained for.

    >>> import widemax as wm
    >>> meaning_of(wm.FullHead(wm.TableScorer(5, 2))).aim
    'exact'
    """
    if isinstance(head, SamplerHead):
        objective, _ = unwrapped(getattr(head, "objective", None))
        sentence = _OBJECTIVES.get(objective, "")
        return Meaning("other" if sentence else "softmax", sentence)
    for kind, meaning in _HEADS:
        if isinstance(head, kind):
            smoothed = getattr(head, "label_smoothing", 0.0)
            return meaning if not smoothed else Meaning("other", "")
    return Meaning("softmax", "")


def notes_on(head: Head, fit: ProposalFit | None, divergence: float | None) -> tuple[str, ...]:
    """Return one sentence for each thing that explains a bias without being a fault."""
    meaning = meaning_of(head)
    objective, options = unwrapped(getattr(head, "objective", None))
    notes = [meaning.sentence] if meaning.sentence else []
    if fit is not None and objective is sampled_softmax and fit.max_expected_count > 1.001:
        notes.append(
            f"A target is expected {fit.max_expected_count:.3g} times among the candidates, and "
            "only one copy competes: its gradient is up to 1 / (1 − P) times too large. Take the "
            "objective corrected_log_q (--objective corrected-log-q), or draw fewer classes, or "
            "distinct ones where the sampler can (unique=True, --unique)."
        )
    if divergence == float("inf"):
        notes.append("Some classes are never drawn: they never compete, whatever num_samples is.")
    sampler = head.proposal
    if sampler is not None and not sampler.is_probability_sample:
        notes.append("The candidates are chosen, not drawn: there is no log Q to correct by.")
    if options.get("label_smoothing") or getattr(head, "label_smoothing", 0.0):
        notes.append("Label smoothing counts as bias: the exact gradient is without it.")
    return tuple(notes)
