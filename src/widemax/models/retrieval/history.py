"""What models share that predict the next item of a user from those before it."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from widemax.data import Sequences, Windows
from widemax.heads import SampledHead
from widemax.models.base import Model
from widemax.sampling import LogUniformSampler, Sampler, UniformSampler
from widemax.scoring import TableScorer
from widemax.scoring.table import Similarity
from widemax.validation import check_whole

Negatives = Literal["log-uniform", "uniform"]

_USUAL_SAMPLES, _MOST_SAMPLES = 800, 2**20


class HistoryModel(Model):
    """A model whose examples are items, each with the history before it.

    One that also knows its users has a ``hidden`` of its own.
    """

    @staticmethod
    def windows(
        sequences: Sequences, *, max_history: int, window: int, positions: Tensor | None = None
    ) -> Windows:
        """Return each item with those before it; the first of a sequence has none: no example."""
        return Windows(sequences, before=max_history, positions=positions, require_context=True)


def softmax_head(
    counts: Tensor,
    items: nn.Embedding,
    *,
    tied: bool = True,
    num_samples: int | None = None,
    negatives: Negatives = "uniform",
    similarity: Similarity = "dot",
    temperature: float = 1.0,
) -> SampledHead:
    """Return a sampled softmax on the vectors of ``items`` [V, D], or on new ones if not ``tied``.

    ``counts`` [V] must fall. The ``num_samples`` negatives are distinct, which takes ever longer
    to draw the nearer they come to all classes: at most half of them, and 800 or that by default.

    >>> import torch
    >>> head = softmax_head(torch.tensor([9, 5, 5, 1]), nn.Embedding(4, 8))
    >>> head.num_samples, head.scorer.weight.shape
    (2, torch.Size([4, 8]))
    """
    size = len(counts)
    if negatives not in ("log-uniform", "uniform"):
        raise ValueError(f"negatives must be 'log-uniform' or 'uniform', got {negatives!r}")
    half = max(1, size // 2)
    if num_samples is None:
        num_samples = min(_USUAL_SAMPLES, half)
    num_samples = check_whole("num_samples", num_samples, 1, _MOST_SAMPLES)
    if num_samples > half:
        raise ValueError(
            f"num_samples must be at most {half:,}, half of the {size:,} classes, as they are "
            f"drawn without repeats, got {num_samples:,}"
        )
    if tied:
        scorer = TableScorer.tied(
            items, similarity=similarity, temperature=temperature, sparse=items.sparse
        )
    else:
        scorer = TableScorer(
            size,
            items.embedding_dim,
            similarity=similarity,
            temperature=temperature,
            sparse=items.sparse,
        )
    sampler: Sampler = UniformSampler(size, unique=True)
    if negatives == "log-uniform":
        sampler = LogUniformSampler(size, counts=counts, unique=True)
    return SampledHead(scorer, sampler, num_samples=num_samples)
