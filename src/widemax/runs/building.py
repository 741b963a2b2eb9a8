"""From the names of a configuration to a model and how it is trained."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from widemax.data import Sequences, Source, Windows
from widemax.encoders import BagEncoder, LSTMEncoder, NNLMEncoder
from widemax.heads import (
    AdaptiveHead,
    FullHead,
    Head,
    HierarchicalHead,
    ImportanceHead,
    SampledHead,
    Tree,
)
from widemax.models import (
    NNLM,
    LSTMLanguageModel,
    Model,
    NGram,
    Segments,
    WordModel,
    keep_probability,
    start_small,
)
from widemax.optim import RowAdagrad, RowAdam, RowSGD, RowwiseAdagrad
from widemax.registry import HEADS, MODELS, OBJECTIVES, SMOOTHINGS
from widemax.runs.config import NOT_DRAWN, STRUCTURED, Config
from widemax.sampling import (
    AllClassesSampler,
    InBatchSampler,
    LearnedUnigramSampler,
    LogUniformSampler,
    Sampler,
    StreamingFrequency,
    UniformSampler,
    UnigramSampler,
)
from widemax.scoring import TableScorer
from widemax.scoring.table import Similarity
from widemax.training.steps import FitSteps, GradientSteps, Steps
from widemax.training.word2vec import Word2VecSteps

_OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "adagrad": RowAdagrad,
    "adam": RowAdam,
    "rowwise-adagrad": RowwiseAdagrad,
    "sgd": RowSGD,
}
_AUTOMATIC = {"text": "cbow"}
_TOP_K = 100


def model_class(config: Config, kind: str) -> type[Model]:
    """Return the model that is named, or the one for this kind of source."""
    name = config.model if config.model != "auto" else _AUTOMATIC.get(kind, "next-item")
    return MODELS[name]


def least_numbers(config: Config, kind: str, num_classes: int) -> int:
    """Return how many numbers the model of a configuration has at least.

    >>> least_numbers(Config(model="nnlm", max_history=3, dimension=2, hidden_size=5), "text", 10)
    50
    """
    named = model_class(config, kind)
    if issubclass(named, NGram):
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
    counts = source.vocabulary.counts
    kind = model_class(config, source.kind)
    if issubclass(kind, NGram):
        return kind(len(counts), SMOOTHINGS[config.smoothing], order=config.order)
    if issubclass(kind, NNLM):
        reader = NNLMEncoder(
            len(counts),
            config.max_history,
            config.dimension,
            config.hidden_size,
            dropout=config.dropout,
            sparse=True,
        )
        return kind(reader, build_head(config, counts, reader.output_dimension))
    if issubclass(kind, LSTMLanguageModel):
        memory = LSTMEncoder(
            len(counts),
            config.dimension,
            config.hidden_size,
            dropout=config.dropout,
            sparse=True,
        )
        return kind(memory, build_head(config, counts, memory.output_dimension))
    return _build_bag(config, counts, kind)


def _build_bag(config: Config, counts: Tensor, kind: type[Model]) -> Model:
    encoder = BagEncoder(len(counts), config.dimension)
    head = build_head(config, counts, config.dimension)
    if not issubclass(kind, WordModel):
        return kind(encoder, head)
    model = kind(encoder, head, keep=keep_probability(counts, config.subsample))
    if config.trainer == "kernel":
        start_small(model)
    return model


def build_steps(config: Config, model: Model, sequences: Sequences, examples: Windows) -> Steps:
    """Return how a configuration trains its model."""
    if isinstance(model, NGram):
        return FitSteps(model, sequences)
    if config.trainer == "kernel":
        assert isinstance(model, WordModel)
        return Word2VecSteps(
            model, sequences, window=config.window, threads=config.threads, seed=config.seed
        )
    batch_size = config.batch_size
    trained_on: Windows | Segments = examples
    if isinstance(model, LSTMLanguageModel):
        # A recurrence over a stretch of text tells each of its words in one go.
        trained_on = model.segments(sequences, length=config.max_history)
        batch_size = max(1, batch_size // config.max_history)
    return GradientSteps(
        model,
        build_optimizer(config, model),
        trained_on,
        batch_size=batch_size,
        seed=config.seed,
        clip_norm=config.clip_norm,
    )


def build_optimizer(config: Config, model: Model) -> torch.optim.Optimizer:
    """Return the optimiser of a configuration on all parameters of the model."""
    rule = _OPTIMIZERS[config.optimizer]
    options = {"lr": config.learning_rate, "weight_decay": config.weight_decay}
    return rule(model.parameters(), **options)  # type: ignore[arg-type]


def build_head(config: Config, counts: Tensor, dimension: int) -> Head:
    """Return the head of a configuration for hidden states and classes in falling count."""
    if config.head in STRUCTURED:
        return _build_structured(config, counts, dimension)
    sampled = config.head in ("sampled", "importance")
    scorer = TableScorer(
        len(counts),
        dimension,
        bias=config.bias,
        similarity=_similarity(config),
        temperature=config.temperature,
        sparse=sampled,
    )
    if config.head == "sampled":
        return SampledHead(
            scorer,
            build_sampler(config, counts),
            objective=OBJECTIVES[config.objective],
            num_samples=_num_samples(config, len(counts)),
        )
    if config.head == "importance":
        sampler = build_sampler(config, counts, unique=False)
        return ImportanceHead(scorer, sampler, num_samples=config.num_samples)
    if config.head == "top-k-softmax":
        return HEADS[config.head](scorer, k=min(_TOP_K, len(counts)))
    return FullHead(scorer) if config.head == "full" else HEADS[config.head](scorer)


def _build_structured(config: Config, counts: Tensor, dimension: int) -> Head:
    if config.head == "hierarchical":
        tree = Tree.huffman(counts)
        head = HierarchicalHead(dimension, tree, bias=config.bias, sparse=True)
        if head.bias is not None:
            head.bias.data.copy_(tree.log_odds(counts))
        return head
    return AdaptiveHead(
        dimension,
        len(counts),
        cutoffs=_cutoffs(len(counts)),
        bias=config.bias,
    )


def _cutoffs(num_classes: int) -> list[int]:
    """Return fixed cutoffs: measured ones would differ when a run is resumed elsewhere."""
    return sorted({max(1, num_classes // 20), max(2, num_classes // 4)} - {num_classes})


def build_sampler(config: Config, counts: Tensor, *, unique: bool = True) -> Sampler:
    """Return the sampler of a configuration."""
    size = len(counts)
    makers: dict[str, Callable[[], Sampler]] = {
        "all": lambda: AllClassesSampler(size),
        "in-batch": lambda: InBatchSampler(size, StreamingFrequency(size)),
        "learned-unigram": lambda: LearnedUnigramSampler(size, unique=unique),
        "log-uniform": lambda: LogUniformSampler(size, unique=unique),
        "uniform": lambda: UniformSampler(size, unique=unique),
        "unigram": lambda: UnigramSampler(
            size, counts, distortion=config.distortion, unique=unique
        ),
    }
    return makers[config.sampler]()


def _num_samples(config: Config, num_classes: int) -> int | None:
    if config.sampler in NOT_DRAWN:
        return None
    # Distinct draws of nearly all classes would take for ever.
    return min(config.num_samples, max(1, num_classes // 2))


def _similarity(config: Config) -> Similarity:
    return "cosine" if config.similarity == "cosine" else "dot"
