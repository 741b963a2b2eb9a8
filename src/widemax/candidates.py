"""The types that cross rooms: sampler to head, scorer to objective, head to its user."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


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
