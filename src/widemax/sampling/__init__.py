"""Proposals: which classes compete with the targets, and how likely each was to be drawn."""

from widemax.sampling.all_classes import AllClassesSampler
from widemax.sampling.base import DrawnSampler, Sampler
from widemax.sampling.batch.hard import BatchHardNegativeSampler
from widemax.sampling.batch.in_batch import Frequency, InBatchSampler
from widemax.sampling.batch.queue import QueueSampler
from widemax.sampling.batch.streaming import StreamingFrequency
from widemax.sampling.conditional.adaptive_ngram import AdaptiveNGramSampler
from widemax.sampling.conditional.hard import HardNegativeSampler
from widemax.sampling.conditional.kneser_ney import KneserNeySampler
from widemax.sampling.conditional.market import MarketSampler
from widemax.sampling.conditional.ngram import NGramSampler
from widemax.sampling.conditional.partition import PartitionSampler
from widemax.sampling.count_file import read_counts
from widemax.sampling.learned_unigram import LearnedUnigramSampler
from widemax.sampling.log_uniform import LogUniformSampler
from widemax.sampling.mixture import MixtureSampler
from widemax.sampling.uniform import UniformSampler
from widemax.sampling.unigram import UnigramSampler

__all__ = [
    "AdaptiveNGramSampler",
    "AllClassesSampler",
    "BatchHardNegativeSampler",
    "DrawnSampler",
    "Frequency",
    "HardNegativeSampler",
    "InBatchSampler",
    "KneserNeySampler",
    "LearnedUnigramSampler",
    "LogUniformSampler",
    "MarketSampler",
    "MixtureSampler",
    "NGramSampler",
    "PartitionSampler",
    "QueueSampler",
    "Sampler",
    "StreamingFrequency",
    "UniformSampler",
    "UnigramSampler",
    "read_counts",
]
