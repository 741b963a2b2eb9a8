"""Names and what they stand for: the one place where a string becomes a class or a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from widemax.heads import FullHead, Head, SampledHead
from widemax.objectives import (
    corrected_log_q,
    full_logistic,
    full_softmax,
    gbce,
    importance_sampling,
    info_nce,
    nce,
    negative_sampling,
    sampled_logistic,
    sampled_softmax,
)
from widemax.sampling import (
    AllClassesSampler,
    InBatchSampler,
    LearnedUnigramSampler,
    LogUniformSampler,
    MixtureSampler,
    PartitionSampler,
    QueueSampler,
    Sampler,
    UniformSampler,
    UnigramSampler,
)
from widemax.scoring import Scorer, TableScorer

SAMPLERS: Mapping[str, type[Sampler]] = {
    "all": AllClassesSampler,
    "in-batch": InBatchSampler,
    "learned-unigram": LearnedUnigramSampler,
    "log-uniform": LogUniformSampler,
    "mixture": MixtureSampler,
    "partition": PartitionSampler,
    "queue": QueueSampler,
    "uniform": UniformSampler,
    "unigram": UnigramSampler,
}

OBJECTIVES: Mapping[str, Callable[..., Tensor]] = {
    "corrected-log-q": corrected_log_q,
    "full-logistic": full_logistic,
    "full-softmax": full_softmax,
    "gbce": gbce,
    "importance-sampling": importance_sampling,
    "info-nce": info_nce,
    "nce": nce,
    "negative-sampling": negative_sampling,
    "sampled-logistic": sampled_logistic,
    "sampled-softmax": sampled_softmax,
}

SCORERS: Mapping[str, type[Scorer]] = {"table": TableScorer}

HEADS: Mapping[str, type[Head]] = {"full": FullHead, "sampled": SampledHead}
