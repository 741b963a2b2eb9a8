"""Models: an encoder, a head, and how examples are cut from sequences."""

from widemax.models.bag import BagModel, NextItem
from widemax.models.base import Model
from widemax.models.language import NNLM, LSTMLanguageModel
from widemax.models.ngram import NGram, NGramHead
from widemax.models.segments import SegmentBatch, Segments
from widemax.models.word2vec import CBOW, SkipGram, WordModel, keep_probability, start_small

__all__ = [
    "CBOW",
    "NNLM",
    "BagModel",
    "LSTMLanguageModel",
    "Model",
    "NGram",
    "NGramHead",
    "NextItem",
    "SegmentBatch",
    "Segments",
    "SkipGram",
    "WordModel",
    "keep_probability",
    "start_small",
]
