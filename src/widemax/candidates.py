"""The types that cross rooms: sampler to head, scorer to objective, head to its user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from widemax.validation import ABSENT


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """The classes that compete with the targets, and how often each was to be expected.

    The expected count Q(y) is the expected number of copies of class y among the candidates:
    ``num_samples * p`` for draws with replacement, ``1 - (1 - p) ** tries`` for distinct draws.
    This is what joins a sampler to an objective, as in TensorFlow's candidate sampling.

    >>> import torch
    >>> import widemax as wm
    >>> candidates = wm.UniformSampler(10).sample(5, torch.tensor([3]))
    >>> candidates.ids.shape, round(candidates.log_expected_count.exp()[0].item(), 3)
    (torch.Size([5]), 0.5)
    """

    ids: Tensor
    """The classes, int64 [S], shared by the batch, or [B, S]."""
    log_expected_count: Tensor
    """log Q of each candidate, like ``ids``."""
    target_log_expected_count: Tensor
    """log Q of each target, like the targets, [B] or [B, T]."""
    rows: Tensor | None = None
    """The row of the batch each candidate was taken from, or -1; None if none comes from it."""
    row_log_prob: Tensor | None = None
    """log p of each candidate as the target of one row of the batch, like ``ids``."""
    target_row_log_prob: Tensor | None = None
    """The same of each target, like the targets: what one row adds to their expected counts."""


@dataclass(frozen=True, kw_only=True)
class InnerProduct:
    """Scores of one target a row and of shared candidates that are not multiplied out yet.

    An objective may use the factors instead of the scores: the gradient of a softmax by queries and
    vectors needs no [B, S] gradient of scores.

    >>> import torch
    >>> product = InnerProduct(queries=torch.ones(1, 2), vectors=torch.ones(4, 2), biases=None)
    >>> product.target_scores(), product.candidate_scores()
    (tensor([2.]), tensor([[2., 2., 2.]]))
    """

    queries: Tensor
    """The queries of the rows, [B, D]."""
    vectors: Tensor
    """The vectors of the B targets, then of the S candidates, [B + S, D]."""
    biases: Tensor | None
    """Their biases, [B + S], if there are any."""

    @property
    def shape(self) -> tuple[int, int]:
        """[B, S]."""
        return len(self.queries), len(self.vectors) - len(self.queries)

    def target_scores(self) -> Tensor:
        """Return F(x, t), [B]."""
        rows = len(self.queries)
        # A product and a sum: cheaper than a batch of matrix products of one row.
        scores = (self.queries * self.vectors[:rows]).sum(-1)
        return scores if self.biases is None else scores + self.biases[:rows]

    def candidate_scores(self) -> Tensor:
        """Return F(x, y) of the candidates, [B, S]."""
        rows = len(self.queries)
        scores = self.queries @ self.vectors[rows:].T
        return scores if self.biases is None else scores + self.biases[rows:]


class ClassBlock(NamedTuple):
    """Neighbouring classes whose scores are one product: F = queries @ vectors.T + biases.

    What a scorer hands to exact evaluation: all classes, block by block, in the order of their ids.

    >>> import torch
    >>> ClassBlock(torch.ones(1, 2), torch.ones(4, 2), None).vectors.shape
    torch.Size([4, 2])
    """

    queries: Tensor
    """What these classes look at of each row, [B, d]."""
    vectors: Tensor
    """Their vectors, [C, d]."""
    biases: Tensor | None
    """Their biases, [C], if there are any."""


@dataclass(frozen=True, kw_only=True)
class TopK:
    """The best classes of each row, best first.

    >>> import torch
    >>> import widemax as wm
    >>> scorer = wm.TableScorer(3, 1)
    >>> _ = scorer.weight.data.copy_(torch.tensor([[1.0], [3.0], [2.0]]))
    >>> wm.FullHead(scorer).topk(torch.ones(1, 1), k=2).ids.tolist()
    [[1, 2]]
    """

    ids: Tensor
    """The classes with the largest scores, [B, k]; -1 where a row has fewer than k to choose."""
    scores: Tensor
    """Their scores F(x, y), [B, k]; -inf where there is no class."""


def merge_topk(found: Sequence[TopK], k: int) -> TopK:
    """Return the k best of several answers to the same rows, by interests or by shards.

    A class counts once, at its best score; of equal scores the lower id comes first.

    >>> first = TopK(ids=torch.tensor([[5, 2]]), scores=torch.tensor([[3.0, 1.0]]))
    >>> other = TopK(ids=torch.tensor([[2, -1]]), scores=torch.tensor([[2.0, -torch.inf]]))
    >>> merge_topk([first, other], 3)
    TopK(ids=tensor([[ 5,  2, -1]]), scores=tensor([[3., 2., -inf]]))
    """
    ids = torch.cat([each.ids for each in found], dim=1)
    scores = torch.cat([each.scores for each in found], dim=1)
    missing = k - ids.shape[1]
    if missing > 0:
        ids, scores = pad(ids, (0, missing), value=ABSENT), pad(scores, (0, missing), value=-inf)
    ids, scores = _ordered(ids, scores, by=-scores)
    ids, scores = _ordered(ids, scores, by=ids)
    again = pad(ids[:, 1:] == ids[:, :-1], (1, 0))
    ids, scores = ids.masked_fill(again, ABSENT), scores.masked_fill(again, -inf)
    scores = scores.masked_fill(ids == ABSENT, -inf)
    ids, scores = _ordered(ids, scores, by=-scores)
    return TopK(ids=ids[:, :k], scores=scores[:, :k])


def _ordered(ids: Tensor, scores: Tensor, *, by: Tensor) -> tuple[Tensor, Tensor]:
    order = by.sort(dim=1, stable=True).indices
    return ids.gather(1, order), scores.gather(1, order)
