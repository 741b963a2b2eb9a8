"""Every sampler the contract is checked for: name -> how to build it and what to ask of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from widemax.data import Sequences
from widemax.ngrams import NGramModel
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
from widemax.sampling.conditional.kneser_ney import KneserNeySampler

NUM_CLASSES = 300
COUNTS = [1000 // (1 + (7 * y) % NUM_CLASSES) for y in range(NUM_CLASSES)]
"""Zipf's law in shuffled order; the rarest have count 3."""


@dataclass(frozen=True)
class SamplerCase:
    build: Callable[[], Sampler]
    num_samples: int | None = None
    memory: int = 0
    draw_targets: Callable[[torch.Generator], Tensor] | None = None


def frequency() -> UnigramSampler:
    return UnigramSampler(NUM_CLASSES, COUNTS, distortion=1.0)


_FREQUENCY = frequency()


def draw_by_frequency(generator: torch.Generator) -> Tensor:
    return _FREQUENCY.draw((256,), generator=generator)


def trained_unigram(**options: bool) -> LearnedUnigramSampler:
    sampler = LearnedUnigramSampler(NUM_CLASSES, **options)
    sampler.update(torch.arange(NUM_CLASSES).repeat_interleave(torch.tensor(COUNTS)))
    return sampler


def selected_partition() -> PartitionSampler:
    parts = [torch.arange(0, NUM_CLASSES, 2), torch.arange(5, 255)]
    sampler = PartitionSampler(NUM_CLASSES, parts)
    sampler.select(1)
    return sampler


def kneser_ney() -> KneserNeySampler:
    """After a context that was seen often, in a text drawn by frequency."""
    text = frequency().draw((20_000,), generator=torch.Generator().manual_seed(0))
    sentences = Sequences(text, torch.arange(0, 20_001, 20))
    sampler = KneserNeySampler(NGramModel.modified_kneser_ney(sentences, NUM_CLASSES, order=3))
    sampler.set_context(text.mode().values.expand(1, 2))
    return sampler


SAMPLER_CASES: dict[str, SamplerCase] = {
    "uniform": SamplerCase(lambda: UniformSampler(NUM_CLASSES)),
    "uniform unique": SamplerCase(lambda: UniformSampler(NUM_CLASSES, unique=True)),
    "uniform per example": SamplerCase(lambda: UniformSampler(NUM_CLASSES, per_example=True)),
    "one class": SamplerCase(lambda: UniformSampler(1)),
    "one class unique": SamplerCase(lambda: LogUniformSampler(1, unique=True)),
    "log-uniform": SamplerCase(lambda: LogUniformSampler(NUM_CLASSES)),
    "log-uniform unique": SamplerCase(lambda: LogUniformSampler(NUM_CLASSES, unique=True)),
    "log-uniform unique per example": SamplerCase(
        lambda: LogUniformSampler(NUM_CLASSES, unique=True, per_example=True)
    ),
    "unigram": SamplerCase(lambda: UnigramSampler(NUM_CLASSES, COUNTS)),
    "unigram unique": SamplerCase(lambda: UnigramSampler(NUM_CLASSES, COUNTS, unique=True)),
    "unigram reserved shard": SamplerCase(
        lambda: UnigramSampler(NUM_CLASSES, COUNTS, num_reserved_ids=10, num_shards=3, shard=2)
    ),
    "unigram one drawable": SamplerCase(lambda: UnigramSampler(3, [0, 5, 0], unique=True)),
    "learned unigram of few counts": SamplerCase(lambda: LearnedUnigramSampler(3)),
    "learned unigram": SamplerCase(trained_unigram),
    "learned unigram unique per example": SamplerCase(
        lambda: trained_unigram(unique=True, per_example=True)
    ),
    "in-batch": SamplerCase(lambda: InBatchSampler(NUM_CLASSES, frequency())),
    "in-batch subset": SamplerCase(
        lambda: InBatchSampler(NUM_CLASSES, frequency()), num_samples=200
    ),
    "queue": SamplerCase(lambda: QueueSampler(NUM_CLASSES, frequency(), capacity=700), memory=3),
    "mixture": SamplerCase(
        lambda: MixtureSampler(
            [InBatchSampler(NUM_CLASSES, frequency()), UniformSampler(NUM_CLASSES)], [1.0, 1.0]
        ),
        num_samples=512,
        draw_targets=draw_by_frequency,
    ),
    "mixture with queue": SamplerCase(
        lambda: MixtureSampler(
            [
                QueueSampler(NUM_CLASSES, frequency(), capacity=512),
                UnigramSampler(NUM_CLASSES, COUNTS, distortion=0.5),
            ],
            [0.25, 0.75],
        ),
        num_samples=1024,
        memory=2,
        draw_targets=draw_by_frequency,
    ),
    "mixture per example": SamplerCase(
        lambda: MixtureSampler(
            [
                UniformSampler(NUM_CLASSES, per_example=True),
                LogUniformSampler(NUM_CLASSES, per_example=True),
            ],
            [0.75, 0.25],
        ),
    ),
    "partition": SamplerCase(selected_partition),
    "kneser-ney": SamplerCase(kneser_ney),
    "all classes": SamplerCase(lambda: AllClassesSampler(NUM_CLASSES)),
}
