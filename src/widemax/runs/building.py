"""From a configuration to a model and how it is trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch import nn

from widemax.data import ItemGraph, Sequences, Source, Windows, sessions_of
from widemax.models import (
    EGES,
    NNLM,
    Airbnb,
    Baseline,
    Item2Vec,
    LSTMLanguageModel,
    Model,
    NGram,
    SASRec,
    WordModel,
    YouTubeDNN,
)
from widemax.models.embeddings.kernel_steps import Word2VecSteps
from widemax.optim import RowAdagrad, RowAdam, RowSGD, RowwiseAdagrad
from widemax.registry import MODELS
from widemax.runs import retrieval_models, word_models
from widemax.runs.config.config import Config
from widemax.runs.splitting import Split
from widemax.training.steps import Examples, FitSteps, GradientSteps, Steps

_OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "adagrad": RowAdagrad,
    "adam": RowAdam,
    "rowwise-adagrad": RowwiseAdagrad,
    "sgd": RowSGD,
}

BUILDERS: Mapping[str, Callable[[Config, Source], Model]] = MappingProxyType(
    {
        "airbnb": retrieval_models.build_airbnb,
        "cbow": word_models.build_cbow,
        "ease": retrieval_models.build_ease,
        "eges": retrieval_models.build_eges,
        "ials": retrieval_models.build_ials,
        "item-knn": retrieval_models.build_item_knn,
        "item2vec": retrieval_models.build_item2vec,
        "lstm": word_models.build_lstm,
        "mind": retrieval_models.build_mind,
        "n-gram": word_models.build_ngram,
        "next-item": word_models.build_next_item,
        "nnlm": word_models.build_nnlm,
        "popularity": retrieval_models.build_popularity,
        "sasrec": retrieval_models.build_sasrec,
        "sdm": retrieval_models.build_sdm,
        "skip-gram": word_models.build_skip_gram,
        "two-tower": retrieval_models.build_two_tower,
        "youtube-dnn": retrieval_models.build_youtube_dnn,
    }
)
"""How each model of the registry is made."""


def least_numbers(config: Config, kind: str, num_classes: int) -> int:
    """Return how many numbers the model of a configuration has at least.

    >>> least_numbers(Config(model="nnlm", max_history=3, dimension=2, hidden_size=5), "text", 10)
    50
    """
    named = MODELS[config.model_for(kind)]
    if issubclass(named, NGram | Baseline):
        return 0
    vectors, units = num_classes * config.dimension, config.hidden_size
    if issubclass(named, NNLM):
        return vectors + units * config.max_history * config.dimension
    if issubclass(named, LSTMLanguageModel):
        return vectors + 4 * units * (units + config.dimension)
    return vectors


def build_model(config: Config, source: Source) -> Model:
    """Return the untrained model of a configuration, seeded by it."""
    torch.manual_seed(config.seed)
    return BUILDERS[config.model_for(source.kind)](config, source)


def build_steps(config: Config, model: Model, source: Source, split: Split) -> Steps:
    """Return how a configuration trains its model."""
    if isinstance(model, NGram | Baseline):
        return FitSteps(model, split.sequences)
    sequences = _sessions(config, model, split.sequences)
    if config.trainer == "kernel":
        assert isinstance(model, WordModel)
        return Word2VecSteps(
            model, sequences, window=config.window, threads=config.threads, seed=config.seed
        )
    batch_size = config.batch_size
    if isinstance(model, LSTMLanguageModel | SASRec):
        # One pass over a stretch tells each of its words or items.
        batch_size = max(1, batch_size // config.max_history)
    return GradientSteps(
        model,
        build_optimizer(config, model),
        _examples(config, model, source, split, sequences),
        batch_size=batch_size,
        seed=config.seed,
        clip_norm=config.clip_norm,
    )


def _sessions(config: Config, model: Model, sequences: Sequences) -> Sequences:
    """Return what stood together: the sequences, for some models cut where nothing came long."""
    if not config.session_gap or not isinstance(model, Item2Vec | EGES):
        return sequences
    return sessions_of(sequences, gap=config.session_gap)[0]


def _examples(
    config: Config, model: Model, source: Source, split: Split, sequences: Sequences
) -> Examples:
    """Return what a model is trained on by gradients."""
    if isinstance(model, LSTMLanguageModel | SASRec):
        return model.segments(sequences, length=config.max_history)
    if isinstance(model, EGES):
        seeded = torch.Generator().manual_seed(config.seed)
        graph = ItemGraph.from_sequences(sequences, num_items=len(source.vocabulary))
        sequences = graph.walks(config.walks, config.walk_length, generator=seeded)
    if isinstance(model, Airbnb):
        return model.windows(
            sequences,
            max_history=config.max_history,
            window=config.window,
            goals=split.goals,
        )
    if isinstance(model, YouTubeDNN) and source.kind == "lists":
        # Lines of items have no order: all others of a user tell each.
        return model.windows_without_order(sequences, max_history=config.max_history)
    windows: Windows = model.windows(
        sequences, max_history=config.max_history, window=config.window
    )
    return windows


def build_optimizer(config: Config, model: nn.Module) -> torch.optim.Optimizer:
    """Return the optimiser of a configuration on all parameters of the model."""
    rule = _OPTIMIZERS[config.optimizer]
    options = {"lr": config.learning_rate, "weight_decay": config.weight_decay}
    return rule(model.parameters(), **options)  # type: ignore[arg-type]
