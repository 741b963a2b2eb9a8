"""The names of the room: each is imported when it is first asked for."""

from .all_classes import AllClassesSampler as AllClassesSampler
from .base import DrawnSampler as DrawnSampler
from .base import Sampler as Sampler
from .batch.hard import BatchHardNegativeSampler as BatchHardNegativeSampler
from .batch.in_batch import Frequency as Frequency
from .batch.in_batch import InBatchSampler as InBatchSampler
from .batch.queue import QueueSampler as QueueSampler
from .batch.streaming import StreamingFrequency as StreamingFrequency
from .conditional.adaptive_ngram import AdaptiveNGramSampler as AdaptiveNGramSampler
from .conditional.hard import HardNegativeSampler as HardNegativeSampler
from .conditional.kneser_ney import KneserNeySampler as KneserNeySampler
from .conditional.market import MarketSampler as MarketSampler
from .conditional.ngram import NGramSampler as NGramSampler
from .conditional.partition import PartitionSampler as PartitionSampler
from .count_file import read_counts as read_counts
from .learned_unigram import LearnedUnigramSampler as LearnedUnigramSampler
from .log_uniform import LogUniformSampler as LogUniformSampler
from .mixture import MixtureSampler as MixtureSampler
from .uniform import UniformSampler as UniformSampler
from .unigram import UnigramSampler as UnigramSampler
