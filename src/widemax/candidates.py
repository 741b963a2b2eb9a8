"""The types that cross rooms: sampler to head, scorer to objective, head to its user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor
from torch.nn.functional import pad

from widemax.validation import ABSENT


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """The classes that compete with the targets, and how often each was to be expected.

    Formula: ``log_expected_count[i]`` = log Q(ids[i]), the logarithm of the expected number of
    copies of that class among the candidates: ``log(num_samples * p)`` for draws with replacement,
    ``log(-expm1(tries * log1p(-p)))`` for distinct draws.

    Shapes: ``ids`` and ``log_expected_count`` are [S], shared by the batch, or [B, S];
    ``target_log_expected_count`` is like the targets, [B] or [B, T]; ``rows``, like ``ids``, names
    the row of the batch a candidate was taken from (-1: from nowhere in the batch) and is None
    when no candidate comes from the batch.

    Cost: it only holds tensors.

    Reference: the seam of TensorFlow's candidate sampling.

    Use when: writing a sampler or an objective. Avoid when: a head already does the wiring.

    >>> import torch
    >>> import widemax as wm
    >>> candidates = wm.UniformSampler(10).sample(5, torch.tensor([3]))
    >>> candidates.ids.shape, round(candidates.log_expected_count.exp()[0].item(), 3)
    (torch.Size([5]), 0.5)
    """

    ids: Tensor
    log_expected_count: Tensor
    target_log_expected_count: Tensor
    rows: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class InnerProduct:
    """Scores of one target a row and of shared candidates that are not multiplied out yet.

    Formula: F(x_b, t_b) = queries[b]·vectors[b] + biases[b] of the target, and
    F(x_b, y_s) = queries[b]·vectors[B + s] + biases[B + s] of candidate s.

    Shapes: ``queries`` [B, D], ``vectors`` [B + S, D], ``biases`` [B + S] or None;
    ``target_scores()`` is [B], ``candidate_scores()`` [B, S].

    Cost: O(B·S·D) when multiplied out.

    Reference: none.

    Use when: an objective can use the factors: the gradient of a softmax by queries and vectors
    needs no [B, S] gradient of scores. Avoid when: scores themselves are wanted.

    >>> import torch
    >>> product = InnerProduct(queries=torch.ones(1, 2), vectors=torch.ones(4, 2), biases=None)
    >>> product.target_scores(), product.candidate_scores()
    (tensor([2.]), tensor([[2., 2., 2.]]))
    """

    queries: Tensor
    vectors: Tensor
    biases: Tensor | None

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


@dataclass(frozen=True, kw_only=True)
class TopK:
    """The best classes of each row, best first.

    Formula: ``ids[b, 0..k-1]`` are the k classes with the largest F(x_b, y).

    Shapes: ``ids`` and ``scores`` are [B, k]. A row with fewer than k classes left after
    exclusion ends in id -1 with score -inf.

    Cost: it only holds tensors.

    Reference: none.

    Use when: reading what ``head.topk`` returns. Avoid when: scores of given classes are wanted
    (``head.scores``).

    >>> import torch
    >>> import widemax as wm
    >>> scorer = wm.TableScorer(3, 1)
    >>> _ = scorer.weight.data.copy_(torch.tensor([[1.0], [3.0], [2.0]]))
    >>> wm.FullHead(scorer).topk(torch.ones(1, 1), k=2).ids.tolist()
    [[1, 2]]
    """

    ids: Tensor
    scores: Tensor


def merge_topk(found: Sequence[TopK], k: int) -> TopK:
    """Return the k best of several answers to the same rows; a class counts once, at its best.

    Formula: score(b, y) = max over answers of theirs; of equal scores the lower id comes first.

    Shapes: each [B, k_i] → [B, k], ending in id -1 with score -inf where there are fewer.

    Cost: O(B·n·log n) for n = Σ k_i.

    Reference: none.

    Use when: a row was asked for several times: by interests, by shards. Avoid when: the answers
    are about different rows.

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
