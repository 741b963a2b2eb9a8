"""From a configuration to a model of text, or of sequences without features."""

from __future__ import annotations

from widemax.data import Source
from widemax.encoders import BagEncoder, LSTMEncoder, NNLMEncoder
from widemax.models import (
    CBOW,
    NNLM,
    LSTMLanguageModel,
    Model,
    NextItem,
    NGram,
    SkipGram,
    WordModel,
    keep_probability,
    start_small,
)
from widemax.registry import SMOOTHINGS
from widemax.runs.config.config import Config
from widemax.runs.heads import build_head


def build_ngram(config: Config, source: Source) -> Model:
    """Return an n-gram model, not counted yet."""
    return NGram(len(source.vocabulary), SMOOTHINGS[config.smoothing], order=config.order)


def build_nnlm(config: Config, source: Source) -> Model:
    """Return a feed-forward language model."""
    counts = source.vocabulary.counts
    encoder = NNLMEncoder(
        len(counts),
        config.max_history,
        config.dimension,
        config.hidden_size,
        dropout=config.dropout,
        sparse=True,
    )
    return NNLM(encoder, build_head(config, counts, encoder.output_dimension))


def build_lstm(config: Config, source: Source) -> Model:
    """Return a recurrent language model."""
    counts = source.vocabulary.counts
    encoder = LSTMEncoder(
        len(counts), config.dimension, config.hidden_size, dropout=config.dropout, sparse=True
    )
    return LSTMLanguageModel(encoder, build_head(config, counts, encoder.output_dimension))


def build_next_item(config: Config, source: Source) -> Model:
    """Return the model of the mean of what was before."""
    counts = source.vocabulary.counts
    head = build_head(config, counts, config.dimension)
    return NextItem(BagEncoder(len(counts), config.dimension), head)


def build_cbow(config: Config, source: Source) -> Model:
    """Return a CBOW model."""
    return _build_words(CBOW, config, source)


def build_skip_gram(config: Config, source: Source) -> Model:
    """Return a skip-gram model."""
    return _build_words(SkipGram, config, source)


def _build_words(kind: type[WordModel], config: Config, source: Source) -> Model:
    counts = source.vocabulary.counts
    encoder = BagEncoder(len(counts), config.dimension)
    head = build_head(config, counts, config.dimension)
    model = kind(encoder, head, keep=keep_probability(counts, config.subsample))
    if config.trainer == "kernel":
        start_small(model)
    return model
