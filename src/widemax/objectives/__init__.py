"""Objectives: pure functions from scores to one loss per example."""

from widemax.objectives.base import (
    FactoredObjective,
    FromFactors,
    Objective,
    find_from_factors,
    is_keeping_hits,
)
from widemax.objectives.corrected_log_q import corrected_log_q
from widemax.objectives.importance import effective_sample_size, importance_sampling
from widemax.objectives.logistic import (
    full_logistic,
    gbce,
    nce,
    negative_sampling,
    sampled_logistic,
)
from widemax.objectives.softmax import full_softmax, info_nce, sampled_softmax
from widemax.objectives.starting import Prior, find_initial_scores

__all__ = [
    "FactoredObjective",
    "FromFactors",
    "Objective",
    "Prior",
    "corrected_log_q",
    "effective_sample_size",
    "find_from_factors",
    "find_initial_scores",
    "full_logistic",
    "full_softmax",
    "gbce",
    "importance_sampling",
    "info_nce",
    "is_keeping_hits",
    "nce",
    "negative_sampling",
    "sampled_logistic",
    "sampled_softmax",
]
