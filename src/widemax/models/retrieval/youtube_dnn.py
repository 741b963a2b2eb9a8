"""YouTube's candidate generation: the item that a user takes, out of all there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Self

from torch import Tensor, nn

from widemax.data import Sequences, WindowBatch, Windows
from widemax.encoders.youtube_dnn import YouTubeDNNEncoder
from widemax.heads import SampledHead
from widemax.models.retrieval.history import HistoryModel
from widemax.sampling import LogUniformSampler, Sampler, UniformSampler
from widemax.scoring import TableScorer
from widemax.scoring.table import Similarity
from widemax.validation import check_whole

Negatives = Literal["log-uniform", "uniform"]

_MOST_NEGATIVES = 2**20


class YouTubeDNN(HistoryModel):
    """The next item of a user from what he watched, who he is, and how old the example is.

    Formula: P(y | context, user, age) by the head of ``YouTubeDNNEncoder``'s user vector.

    Shapes: as ``Model``; reads ``batch.users`` and ``batch.ages``. No ages, as in ``encode``, are
    ages of 0: now.

    Cost: as ``YouTubeDNNEncoder`` and the head.

    Reference: Covington, Adams & Sargin 2016. Without layers and with one table for history and
    target (``create``'s defaults), this is the mean of a user's items times an item, which is hard
    to beat where nothing but a log without order is known.

    Use when: a log of interactions is to become recommendations, with features of users or
    without. Avoid when: the order of the last items matters most (``SDM``).

    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> model = YouTubeDNN.create(torch.arange(100, 0, -1), dimension=8, num_samples=20)
    >>> windows = model.windows(Sequences.from_lists([[4, 0, 2]]), max_history=5, window=1)
    >>> model(windows.batch(torch.arange(2)), generator=torch.Generator().manual_seed(0)).shape
    torch.Size([2])
    """

    @classmethod
    def create(
        cls,
        counts: Tensor,
        *,
        dimension: int = 64,
        layers: Sequence[int] = (),
        tied: bool = True,
        user_features: nn.Module | None = None,
        oldest_age: float | None = None,
        dropout: float = 0.0,
        num_samples: int = 800,
        negatives: Negatives = "uniform",
        similarity: Similarity = "dot",
        temperature: float = 1.0,
    ) -> Self:
        """Return an untrained model for classes of these counts, with sampled softmax.

        >>> import torch
        >>> model = YouTubeDNN.create(torch.ones(10), dimension=4)
        >>> model.head.scorer.weight is model.encoder.items.weight
        True
        """
        encoder = YouTubeDNNEncoder(
            len(counts),
            dimension,
            layers,
            user_features=user_features,
            oldest_age=oldest_age,
            dropout=dropout,
        )
        head = softmax_head(
            counts,
            encoder.items,
            tied=tied,
            num_samples=num_samples,
            negatives=negatives,
            similarity=similarity,
            temperature=temperature,
        )
        return cls(encoder, head)

    @staticmethod
    def windows_without_order(
        sequences: Sequences, *, max_history: int, positions: Tensor | None = None
    ) -> Windows:
        """Return each item with all others of its sequence that are no further than max_history.

        >>> import torch
        >>> log = Sequences.from_lists([[4, 0, 2]])
        >>> windows = YouTubeDNN.windows_without_order(log, max_history=2)
        >>> windows.batch(torch.arange(3)).context.tolist()
        [[-1, -1, 0, 2], [-1, 4, 2, -1], [4, 0, -1, -1]]
        """
        return Windows(
            sequences,
            before=max_history,
            after=max_history,
            positions=positions,
            require_context=True,
        )

    def hidden(self, batch: WindowBatch) -> Tensor:
        """Return the user vectors, [B, D]."""
        hidden: Tensor = self.encoder(batch.context, batch.users, batch.ages)
        return hidden


def softmax_head(
    counts: Tensor,
    items: nn.Embedding,
    *,
    tied: bool = True,
    num_samples: int = 800,
    negatives: Negatives = "uniform",
    similarity: Similarity = "dot",
    temperature: float = 1.0,
) -> SampledHead:
    """Return the head of models with one label for each example: sampled softmax.

    Formula: see ``sampled_softmax``; F(x, y) = x·v_y, v the vectors of ``items`` where ``tied``.

    Shapes: counts [V], falling; ``items`` [V, D].

    Cost: V·D parameters of its own, none where ``tied``.

    Reference: Covington et al. 2016; Li et al. 2019; Lv et al. 2019.

    Use when: a model of users has no reason for another head. Avoid when: it has.

    >>> import torch
    >>> head = softmax_head(torch.tensor([9, 5, 5, 1]), nn.Embedding(4, 8), num_samples=800)
    >>> head.num_samples, head.scorer.weight.shape
    (2, torch.Size([4, 8]))
    """
    size = len(counts)
    if negatives not in ("log-uniform", "uniform"):
        raise ValueError(f"negatives must be 'log-uniform' or 'uniform', got {negatives!r}")
    num_samples = check_whole("num_samples", num_samples, 1, _MOST_NEGATIVES)
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
    # Distinct draws of nearly all classes would take for ever.
    return SampledHead(scorer, sampler, num_samples=min(num_samples, max(1, size // 2)))
