"""One row for each head and each way to put one together: the contract tests run over all."""

from functools import partial

import torch

from widemax import objectives as wo
from widemax.heads import FullHead, SampledHead
from widemax.sampling import (
    AllClassesSampler,
    InBatchSampler,
    LearnedUnigramSampler,
    LogUniformSampler,
    MixtureSampler,
    PartitionSampler,
    QueueSampler,
    StreamingFrequency,
    UniformSampler,
    UnigramSampler,
)
from widemax.scoring import TableScorer

NUM_CLASSES = 40
DIMENSION = 5


def counts():
    return torch.arange(NUM_CLASSES, 0, -1)


def every_class_once():
    """A partition whose only part is the whole catalogue, so that every target is in it."""
    return PartitionSampler.from_targets(
        torch.arange(NUM_CLASSES), NUM_CLASSES, max_classes=NUM_CLASSES
    )


SAMPLERS = {
    "all": lambda: (AllClassesSampler(NUM_CLASSES), None),
    "in-batch": lambda: (
        InBatchSampler(NUM_CLASSES, UnigramSampler(NUM_CLASSES, counts(), distortion=1.0)),
        None,
    ),
    "in-batch, streaming": lambda: (
        InBatchSampler(NUM_CLASSES, StreamingFrequency(NUM_CLASSES)),
        None,
    ),
    "learned-unigram": lambda: (LearnedUnigramSampler(NUM_CLASSES), 12),
    "log-uniform": lambda: (LogUniformSampler(NUM_CLASSES), 12),
    "log-uniform, unique": lambda: (LogUniformSampler(NUM_CLASSES, unique=True), 12),
    "mixture": lambda: (
        MixtureSampler(
            [
                InBatchSampler(NUM_CLASSES, UnigramSampler(NUM_CLASSES, counts(), distortion=1.0)),
                UniformSampler(NUM_CLASSES),
            ],
            [0.5, 0.5],
        ),
        12,
    ),
    "partition": lambda: (every_class_once(), None),
    "queue": lambda: (
        QueueSampler(
            NUM_CLASSES, UnigramSampler(NUM_CLASSES, counts(), distortion=1.0), capacity=8
        ),
        None,
    ),
    "uniform": lambda: (UniformSampler(NUM_CLASSES), 12),
    "uniform, per example": lambda: (UniformSampler(NUM_CLASSES, per_example=True), 12),
    "unigram": lambda: (UnigramSampler(NUM_CLASSES, counts()), 12),
    "unigram, unique per example": lambda: (
        UnigramSampler(NUM_CLASSES, counts(), unique=True, per_example=True),
        12,
    ),
}

OBJECTIVES = {
    "corrected-log-q": wo.corrected_log_q,
    "full-logistic": wo.full_logistic,
    "full-softmax": wo.full_softmax,
    "gbce": wo.gbce,
    "importance-sampling": wo.importance_sampling,
    "info-nce": wo.info_nce,
    "nce": wo.nce,
    "negative-sampling": wo.negative_sampling,
    "sampled-logistic": wo.sampled_logistic,
    "sampled-softmax": wo.sampled_softmax,
    "sampled-softmax, smoothed": partial(wo.sampled_softmax, label_smoothing=0.1),
}

SCORERS = {
    "table": lambda: TableScorer(NUM_CLASSES, DIMENSION),
    "table, bias": lambda: TableScorer(NUM_CLASSES, DIMENSION, bias=True),
    "table, sparse": lambda: TableScorer(NUM_CLASSES, DIMENSION, bias=True, sparse=True),
    "table, cosine": lambda: TableScorer(
        NUM_CLASSES, DIMENSION, bias=True, similarity="cosine", temperature=0.2
    ),
}

# Its gradient is not that of its value: the weights of its two parts are held still.
STOPS_GRADIENTS = {"corrected-log-q"}


def full_heads():
    for name, scorer in SCORERS.items():
        yield f"full, {name}", partial(lambda scorer: FullHead(scorer()), scorer), True
    yield (
        "full, smoothed",
        lambda: FullHead(SCORERS["table, bias"](), label_smoothing=0.1),
        True,
    )


def sampled_heads():
    for sampler_name, make_sampler in SAMPLERS.items():
        for objective_name, objective in OBJECTIVES.items():

            def make(make_sampler=make_sampler, objective=objective):
                sampler, num_samples = make_sampler()
                scorer = SCORERS["table, bias"]()
                return SampledHead(scorer, sampler, objective=objective, num_samples=num_samples)

            yield (
                f"{sampler_name} × {objective_name}",
                make,
                objective_name not in STOPS_GRADIENTS,
            )


HEADS = {name: (make, gradients) for name, make, gradients in [*full_heads(), *sampled_heads()]}
