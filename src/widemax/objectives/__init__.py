"""Objectives: pure functions from scores to one loss per example."""

from widemax.objectives.base import Objective
from widemax.objectives.corrected_log_q import corrected_log_q
from widemax.objectives.factored_softmax import takes_inner_product
from widemax.objectives.importance import effective_sample_size, importance_sampling
from widemax.objectives.logistic import (
    full_logistic,
    gbce,
    nce,
    negative_sampling,
    sampled_logistic,
)
from widemax.objectives.softmax import full_softmax, info_nce, sampled_softmax

__all__ = [
    "Objective",
    "corrected_log_q",
    "effective_sample_size",
    "full_logistic",
    "full_softmax",
    "gbce",
    "importance_sampling",
    "info_nce",
    "nce",
    "negative_sampling",
    "sampled_logistic",
    "sampled_softmax",
    "takes_inner_product",
]
