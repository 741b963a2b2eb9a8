"""From the names of a configuration to a head."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from widemax.heads import (
    AdaptiveHead,
    FullHead,
    Head,
    HierarchicalHead,
    ImportanceHead,
    SampledHead,
    Tree,
)
from widemax.registry import HEADS, OBJECTIVES
from widemax.runs.config.config import NOT_DRAWN, STRUCTURED, Config
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
from widemax.scoring import Scorer, TableScorer
from widemax.scoring.table import Similarity

_TOP_K = 100


def build_head(
    config: Config, counts: Tensor, dimension: int, *, items: nn.Embedding | None = None
) -> Head:
    """Return the head of a configuration for hidden states and classes in falling count.

    ``items`` are class vectors that the encoder has already, to be learnt together.
    """
    if config.head in STRUCTURED:
        return _build_structured(config, counts, dimension)
    return head_on(config, _table(config, len(counts), dimension, items), counts)


def head_on(config: Config, scorer: Scorer, counts: Tensor) -> Head:
    """Return the head of a configuration on a scorer; trees and clusters have none."""
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


def _table(
    config: Config, num_classes: int, dimension: int, items: nn.Embedding | None
) -> TableScorer:
    # Only heads that draw leave most rows alone.
    sparse = config.head in ("sampled", "importance")
    similarity, temperature = similarity_of(config), config.temperature
    if items is not None:
        return TableScorer.tied(
            items,
            bias=config.bias,
            similarity=similarity,
            temperature=temperature,
            sparse=sparse,
        )
    return TableScorer(
        num_classes,
        dimension,
        bias=config.bias,
        similarity=similarity,
        temperature=temperature,
        sparse=sparse,
    )


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


def similarity_of(config: Config) -> Similarity:
    """Return how two vectors are compared."""
    return "cosine" if config.similarity == "cosine" else "dot"
