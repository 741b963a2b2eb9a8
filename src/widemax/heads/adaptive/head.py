"""Adaptive softmax: frequent classes in the head, rare ones in clusters of smaller dimension."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, Self

import torch
from torch import Tensor, nn

from widemax.candidates import TopK
from widemax.declarations import Option, Setup, declare
from widemax.heads.adaptive.clusters import OpenPart, TailCluster, cluster_cross_entropy
from widemax.heads.adaptive.cost_model import CostModel
from widemax.heads.adaptive.cutoffs import (
    check_cutoffs,
    check_falling_counts,
    choose_cutoffs,
    reduced_dimension,
)
from widemax.heads.base import BatchHead
from widemax.heads.batch import Batch, label_shares
from widemax.heads.exact.linear import linear_log_normalizer, linear_scores
from widemax.scoring.base import BIAS
from widemax.validation import ABSENT, Counts, check_ignore_index, check_num_classes


@declare.head(
    "adaptive",
    slots=[],
    options=[
        BIAS,
        Option(
            "reduction",
            4.0,
            "Factor by which vectors get shorter from one cluster to the next.",
            least=1.0,
            most=64.0,
        ),
    ],
)
class AdaptiveHead(BatchHead):
    """The adaptive softmax: exactly normalised, and cheap because rare classes are rarely opened.

    Formula: log P(y | x) = log_softmax(W x + b)_y for the classes before the first cutoff;
    log_softmax(W x + b)_cluster + log_softmax(V_i P_i x)_y for class y of cluster i. P_i has
    D / ``reduction``^i rows.

    Shapes: as ``Head``. Class ids are in order of falling frequency.

    Cost: O(B·C_0·D + Σ_i B_i·(D + C_i)·D_i) a step, for C_i classes and B_i targets in cluster i.
    Nothing of size [B, V] is allocated, except by ``log_prob`` of all classes. ``topk`` opens only
    the clusters that are likelier than the k-th best class so far.

    Reference: Grave et al. 2017.

    Use when: class frequencies are skewed (words, items) and exact probabilities are wanted at
    a small part of the full cost. Avoid when: they are even, or rare classes need vectors as
    good as those of frequent ones.

    ``cutoffs="auto"`` needs ``counts`` and chooses for batches of ``batch_size`` by
    ``cost_model``, measured on this machine if not given: store ``head.cutoffs`` with the weights.

    >>> _ = torch.manual_seed(0)
    >>> head = AdaptiveHead(16, 1000, cutoffs=[100, 400])
    >>> loss = head(torch.randn(8, 16), torch.randint(1000, (8,))).mean()
    >>> round(head.log_prob(torch.randn(2, 16)).exp().sum().item(), 4)
    2.0
    """

    tables = ("weight",)
    """What has a row for each class, of the frequent ones."""

    def __init__(
        self,
        dimension: int,
        num_classes: int,
        *,
        cutoffs: Sequence[int] | Literal["auto"] = "auto",
        counts: Counts | None = None,
        reduction: float = 4.0,
        bias: bool = False,
        batch_size: int = 1024,
        cost_model: CostModel | None = None,
        ignore_index: int = -100,
    ) -> None:
        check_num_classes(num_classes)
        if dimension < 1:
            raise ValueError(f"dimension must be at least 1, got {dimension:,}")
        if not reduction >= 1:
            raise ValueError(f"reduction must be at least 1, got {reduction!r}")
        if counts is not None:
            counts = check_falling_counts(counts, num_classes)
        if isinstance(cutoffs, str):
            if cutoffs != "auto":
                raise ValueError(f"cutoffs must be 'auto' or a list of class ids, got {cutoffs!r}")
            if counts is None:
                raise ValueError("counts must be given when cutoffs is 'auto'")
            cutoffs = choose_cutoffs(
                counts,
                dimension,
                batch_size=batch_size,
                reduction=reduction,
                cost_model=cost_model,
            )
        super().__init__()
        self.dimension = dimension
        self.num_classes = num_classes
        self.cutoffs = check_cutoffs(list(cutoffs), num_classes)
        self.reduction = reduction
        self.ignore_index = check_ignore_index(ignore_index)
        limits = [*self.cutoffs, self.num_classes]
        self.shortlist = limits[0]
        self.weight = nn.Parameter(torch.empty(self.shortlist + len(self.cutoffs), dimension))
        nn.init.normal_(self.weight, std=dimension**-0.5)
        self.bias = nn.Parameter(self.weight.new_zeros(len(self.weight))) if bias else None
        self.tails = nn.ModuleList(
            TailCluster(dimension, reduced_dimension(dimension, reduction, index), start, stop)
            for index, (start, stop) in enumerate(pairwise(limits), start=1)
        )

    @classmethod
    def build(cls, setup: Setup) -> Self:
        """Return the head of a run: the first 5 %, the first 25 % and the rest of the classes.

        Cutoffs that are measured would differ where a run is continued on another machine.
        """
        size = setup.num_classes
        return cls(
            setup.dimension,
            size,
            cutoffs=sorted({max(1, size // 20), max(2, size // 4)} - {size}),
            reduction=setup.options.reduction,
            bias=setup.options.bias,
        )

    @classmethod
    def from_torch(
        cls, module: nn.AdaptiveLogSoftmaxWithLoss, *, ignore_index: int = -100
    ) -> AdaptiveHead:
        """Return a head with a copy of the weights of torch's module, and the same results.

        >>> module = torch.nn.AdaptiveLogSoftmaxWithLoss(16, 100, [10, 40])
        >>> head = AdaptiveHead.from_torch(module)
        >>> hidden, targets = torch.randn(4, 16), torch.tensor([0, 20, 99, 3])
        >>> torch.allclose(head(hidden, targets), -module(hidden, targets).output, atol=1e-6)
        True
        """
        head = cls(
            module.in_features,
            module.n_classes,
            cutoffs=module.cutoffs[:-1],
            reduction=module.div_value,
            bias=module.head_bias,
            ignore_index=ignore_index,
        )
        head.weight = _copy(module.head.weight)
        head.bias = _copy(module.head.bias) if module.head_bias else None
        for tail, (projection, vectors) in zip(head._tails(), _layers(module), strict=True):
            tail.projection, tail.vectors = _copy(projection.weight), _copy(vectors.weight)
        return head

    def to_torch(self) -> nn.AdaptiveLogSoftmaxWithLoss:
        """Return torch's module with a copy of the weights.

        >>> AdaptiveHead(16, 100, cutoffs=[10, 40]).to_torch().cutoffs
        [10, 40, 100]
        """
        if not self.cutoffs:
            raise ValueError("cutoffs must not be empty: torch's module has at least one cluster")
        # Nothing is allocated here: every parameter is replaced. Torch would round small dimensions
        # down to 0, a head never does.
        module = nn.AdaptiveLogSoftmaxWithLoss(
            self.dimension,
            self.num_classes,
            self.cutoffs,
            div_value=1.0,
            head_bias=self.bias is not None,
            device="meta",
        )
        module.div_value = self.reduction
        module.head.weight = _copy(self.weight)
        if self.bias is not None:
            module.head.bias = _copy(self.bias)
        for tail, (projection, vectors) in zip(self._tails(), _layers(module), strict=True):
            projection.weight, vectors.weight = _copy(tail.projection), _copy(tail.vectors)
            projection.out_features = vectors.in_features = len(tail.projection)
        return module

    def _tails(self) -> list[TailCluster]:
        return [tail for tail in self.tails if isinstance(tail, TailCluster)]

    def batch_losses(self, batch: Batch, generator: torch.Generator | None) -> Tensor:
        """Return the exact loss of each example, [B]; nothing is drawn."""
        ids = entries = batch.target_ids
        shares = label_shares(batch.targets, batch.hidden)
        losses: list[tuple[Tensor | None, Tensor]] = []
        for index, tail in enumerate(self._tails()):
            inside = (ids >= tail.start) & (ids < tail.stop)
            entries = entries.masked_fill(inside, self.shortlist + index)
            if torch.compiler.is_compiling():  # whose shapes may not depend on values
                losses.append((None, tail.losses(batch.hidden, ids, shares * inside)))
                continue
            rows = inside.any(-1).nonzero()[:, 0]
            if len(rows):
                tail_shares = shares[rows] * inside[rows]
                losses.append((rows, tail.losses(batch.hidden[rows], ids[rows], tail_shares)))
        total = cluster_cross_entropy(batch.hidden, self.weight, self.bias, entries, shares)
        for own, tail_losses in losses:
            total = total + tail_losses if own is None else total.index_add(0, own, tail_losses)
        return total

    def scores(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return log P(y | x): classes of different clusters compare by nothing else."""
        return self.log_prob(hidden, ids)

    def log_prob(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return log P(y | x), exactly normalised, of the given classes or of all."""
        self._check_hidden(hidden)
        if ids is None:
            ids = torch.arange(self.num_classes, device=hidden.device)
        ids = self._check_ids(hidden, ids)
        entry = self._entry(hidden)
        result = entry.new_empty(len(hidden), ids.shape[-1])
        for index, (start, stop) in enumerate(pairwise([0, *self.cutoffs, self.num_classes])):
            inside = (ids >= start) & (ids < stop)
            if not bool(inside.any()):
                continue
            if ids.dim() == 1:
                result[:, inside] = self._open(index, hidden, entry).log_prob(ids[inside])
                continue
            rows, place = torch.unique(inside.nonzero()[:, 0], return_inverse=True)
            part = self._open(index, hidden[rows], entry[rows])
            result[inside] = part.pair_log_prob(place, ids[inside])
        return result

    @torch.no_grad()
    def topk(self, hidden: Tensor, k: int, *, exclude: Tensor | None = None) -> TopK:
        """Return the k best classes, leaving out ``exclude`` [B, E], padded with -1."""
        k, exclude = self._check_topk(hidden, k, exclude)
        entry = self._entry(hidden)
        if bool(entry.isnan().any()):
            raise ValueError("scores hold NaN: check hidden and the class vectors")
        scores = entry.new_full((len(hidden), k), -torch.inf)
        ids = torch.full((len(hidden), k), ABSENT, device=hidden.device)
        for index in range(len(self.tails) + 1):
            # No class is likelier than its cluster: a cluster below the k-th best stays closed.
            bound = entry[:, index] if index else torch.zeros_like(entry[:, 0])
            rows = (bound > scores[:, -1]).nonzero()[:, 0]
            if len(rows):
                part = self._open(index, hidden[rows], entry[rows])
                found = part.topk(k, None if exclude is None else exclude[rows])
                joined = torch.cat([scores[rows], found.scores.to(scores.dtype)], dim=1)
                scores[rows], order = joined.topk(k)
                ids[rows] = torch.cat([ids[rows], found.ids], dim=1).gather(1, order)
        return TopK(ids=ids, scores=scores)

    def _entry(self, hidden: Tensor) -> Tensor:
        """Return [B, 1 + clusters]: −log Z of the head, then log P(cluster | x)."""
        log_normalizer = linear_log_normalizer(hidden, self.weight, self.bias)[:, None]
        biases = None if self.bias is None else self.bias[self.shortlist :]
        clusters = linear_scores(hidden, self.weight[self.shortlist :], biases)
        return torch.cat([-log_normalizer, clusters - log_normalizer], dim=1)

    def _open(self, index: int, hidden: Tensor, entry: Tensor) -> OpenPart:
        if index == 0:
            biases = None if self.bias is None else self.bias[: self.shortlist]
            return OpenPart(0, hidden, self.weight[: self.shortlist], biases, entry[:, 0])
        tail = self._tails()[index - 1]
        queries = tail(hidden)
        offset = entry[:, index] - linear_log_normalizer(queries, tail.vectors, None)
        return OpenPart(tail.start, queries, tail.vectors, None, offset)

    def extra_repr(self) -> str:
        """Return what ``print(head)`` shows."""
        return (
            f"dimension={self.dimension}, num_classes={self.num_classes}, "
            f"cutoffs={self.cutoffs}, reduction={self.reduction}, bias={self.bias is not None}"
        )


def _copy(parameter: Tensor) -> nn.Parameter:
    return nn.Parameter(parameter.detach().clone())


def _layers(module: nn.AdaptiveLogSoftmaxWithLoss) -> list[tuple[nn.Linear, nn.Linear]]:
    """Return projection and class vectors of each cluster of torch's module."""
    return [(tail[0], tail[1]) for tail in module.tail]  # type: ignore[index]
