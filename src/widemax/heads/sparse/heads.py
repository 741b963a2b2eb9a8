"""Heads whose distribution gives most classes probability 0 exactly."""

from __future__ import annotations

from abc import abstractmethod
from typing import Self

import torch
from entmax import entmax15, sparsemax  # type: ignore[import-untyped]
from torch import Tensor

from widemax.declarations import Option, Setup, declare
from widemax.devices import by_kernels, demand
from widemax.heads.base import BatchHead, ScorerHead
from widemax.heads.batch import Batch, label_shares
from widemax.heads.sparse.loss import (
    RowLosses,
    SparseLoss,
    Support,
    Targets,
    row_chunks,
    traced_losses,
)
from widemax.kernels.heads.projection import classes_above, thresholds
from widemax.scoring import Scorer
from widemax.scoring.rows import widened
from widemax.validation import check_whole

# How many of the best scores a support is searched in, before all of them.
_NARROW = 128
# More than a probability of such a support is off by.
_ROUNDING = 1e-5

# A target without probability makes the loss infinite, and one infinity is no better than another.
_VALIDATED_BY = {"metric": "ndcg@20"}


class SparseHead(BatchHead, ScorerHead):
    """A head with a scorer whose distribution lives on the few best classes of each row.

    Formula: see ``TopKSoftmaxHead``, ``SparsemaxHead`` and ``Entmax15Head``. ``log_prob`` is −inf
    where the probability is 0.

    Shapes: as ``Head``.

    Cost: O(B·V·D) forward, O(B·K·D) backward for supports of K classes. Scores of a chunk of rows
    are in memory at once, never [B, V]. Supports of up to 1,024 classes are kept for backward,
    wider ones are computed again.

    Use when: writing a sparse head of your own: ``support`` and ``row_losses``. Avoid when: every
    class must have some probability: the perplexity of a sparse distribution may be infinite.
    """

    @abstractmethod
    def support(self, scores: Tensor) -> Support:
        """Return for scores [B, V] the classes that may have probability, and its logarithm."""

    @abstractmethod
    def row_losses(self, support: Support, targets: Targets) -> RowLosses:
        """Return the loss of each row, and its derivatives by scores of support and targets."""

    def batch_losses(self, batch: Batch, generator: torch.Generator | None) -> Tensor:
        """Return the loss of each example, [B]; nothing is drawn."""
        blocks = self._blocks(batch.hidden)
        labels = batch.target_ids, label_shares(batch.targets, blocks[0].queries)
        if torch.compiler.is_compiling():
            return traced_losses(blocks, *labels, self)
        factors = [factor for block in blocks for factor in block]
        losses: Tensor = SparseLoss.apply(self, *labels, *factors)  # type: ignore[no-untyped-call]
        return losses

    def log_prob(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return log P(y | x) of the given classes or of all; −inf where P is 0."""
        self._check_hidden(hidden)
        if ids is not None:
            ids = self._check_ids(hidden, ids)
            ids = ids.expand(len(hidden), -1) if ids.dim() == 1 else ids
        width = self.num_classes if ids is None else ids.shape[1]
        result = widened(hidden).new_empty(len(hidden), width)
        for rows in row_chunks(len(hidden), self.num_classes):
            scores = widened(self.scorer(hidden[rows]))
            support = self.support(scores)
            impossible = torch.full_like(scores, -torch.inf)
            log_prob = impossible.scatter(1, support.ids, support.log_prob)
            result[rows] = log_prob if ids is None else log_prob.gather(1, ids[rows])
        return result

    def log_normalizer(self, hidden: Tensor) -> Tensor:
        """Raise: a sparse distribution is not exp(F) divided by a sum over all classes."""
        raise ValueError(f"{type(self).__name__} has no log-normaliser over all classes")


def _best(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    values, ids = scores.topk(k)
    # NaN sorts first, and so does +inf: one column shows both.
    _check_finite(values[:, 0])
    return values, ids


def _check_finite(best: Tensor) -> None:
    wrong = "scores hold NaN or inf: check hidden and the class vectors"
    if not by_kernels(best):
        demand(best.isfinite().all(), wrong)
    elif not bool(best.isfinite().all()):
        raise ValueError(wrong)


@declare.head(
    "top-k-softmax",
    options=[Option("top_k", 100, "Best classes that share the probability.", least=1, most=2**28)],
    traits=["vectors"],
    usual=_VALIDATED_BY,
)
class TopKSoftmaxHead(SparseHead):
    """The softmax over the k best classes of each row, zero elsewhere.

    Formula: P(y | x) = exp F(x, y) / Σ over Ω of exp F, Ω the k largest scores; the loss is
    LSE over Ω ∪ {t} of F − F(x, t), finite whatever the rank of the target.

    Shapes: as ``SparseHead``.

    Cost: O(B·V·D) forward, O(B·k·D) backward.

    Reference: Su, sparse softmax ("SPACES", 2020).

    Use when: the full softmax overfits by pushing down classes that are far below anyway, as in
    fine-tuning. Avoid when: training from scratch (only k negatives learn at each step), or
    perplexity is wanted.

    >>> import widemax as wm
    >>> _ = torch.manual_seed(0)
    >>> head = TopKSoftmaxHead(wm.TableScorer(1000, 16), k=10)
    >>> int((head.log_prob(torch.randn(1, 16)) > -torch.inf).sum())
    10
    """

    def __init__(self, scorer: Scorer, *, k: int, ignore_index: int = -100) -> None:
        super().__init__(scorer, ignore_index=ignore_index)
        self.k = check_whole("k", k, 1, scorer.num_classes)

    @classmethod
    def build(cls, setup: Setup) -> Self:
        """Return the head of a run; a catalogue of fewer classes has them all."""
        return cls(setup.scorer, k=min(setup.options.top_k, setup.num_classes))

    def support(self, scores: Tensor) -> Support:
        """Return the k best classes and their log-softmax."""
        values, ids = _best(scores, self.k)
        return Support(ids, values, values.log_softmax(-1))

    def row_losses(self, support: Support, targets: Targets) -> RowLosses:
        """Return the mean over the targets of LSE over Ω ∪ {t} − F_t."""
        hits = (support.ids[:, :, None] == targets.ids[:, None, :]).any(1)
        best = support.scores.logsumexp(-1, keepdim=True)
        joined = torch.where(hits, best, torch.logaddexp(best, targets.scores))
        losses = (targets.shares * (joined - targets.scores)).sum(-1)
        mass = (targets.shares * (best - joined).exp()).sum(-1, keepdim=True)
        own = (targets.scores - joined).exp().masked_fill(hits, 0.0)
        return RowLosses(losses, support.log_prob.exp() * mass, targets.shares * (own - 1))


class _ProjectionHead(SparseHead):
    """A projection of the scores on the simplex, and its Fenchel–Young loss."""

    reach: float
    """How far below the best score a class may have probability, and the power in its formula."""

    @staticmethod
    @abstractmethod
    def project(scores: Tensor) -> Tensor:
        """Return the probabilities of scores [B, K] whose largest is 0."""

    @staticmethod
    @abstractmethod
    def entropy(prob: Tensor) -> Tensor:
        """Return the entropy [B] that the projection maximises together with p·F."""

    def support(self, scores: Tensor) -> Support:
        """Return the classes above the threshold, searched among the best, then among all."""
        values, ids, prob = self._projected(scores)
        smallest = torch.finfo(prob.dtype).tiny
        log_prob = prob.clamp(min=smallest).log().masked_fill(prob == 0, -torch.inf)
        return Support(ids, values, log_prob)

    def _projected(self, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return scores, ids and probabilities of a support, and maybe of more classes."""
        if by_kernels(scores):
            values, ids = _best(scores, min(_NARROW, self.num_classes))
            prob = self._project_clamped(values)
            if self.num_classes <= _NARROW or not bool((prob[:, -1] > 0).any()):
                width = int((prob > 0).sum(-1).max())
                return values[:, :width], ids[:, :width], prob[:, :width]
            if not scores.requires_grad:
                return self._wide_support(scores, values[:, :1], prob[:, 0])
        else:  # where nothing may be read, not even how wide a support is
            _check_finite(scores.amax(-1))
        ids = torch.arange(self.num_classes, device=scores.device).expand_as(scores)
        return scores, ids, self._project_clamped(scores)

    def _wide_support(
        self, scores: Tensor, best: Tensor, narrow: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return values, ids and probabilities of a support that would be slow to sort.

        ``best`` [B, 1] are the largest scores, ``narrow`` [B] their probabilities among some of the
        classes: with all of them there, the threshold can only be higher.
        """
        power = round(self.reach)
        least = (-(narrow ** (1 / power)) - _ROUNDING).clamp(min=-1)
        given = scores.numpy(), best[:, 0].numpy()
        found, sizes = thresholds(*given, least.numpy(), power)
        ids = torch.from_numpy(classes_above(*given, found, power, int(sizes.max())))
        values = scores.gather(1, ids)
        threshold = torch.from_numpy(found)[:, None].to(scores.dtype)
        above = (values - best) / power - threshold
        return values, ids, above.clamp(min=0) ** power

    def _project_clamped(self, scores: Tensor) -> Tensor:
        # Scores out of reach change nothing; clamped, they cannot drown the sums of squares. At
        # twice the reach, rounding cannot lift the clamped ones above the threshold.
        top = scores.detach().amax(-1, keepdim=True)
        return self.project((scores - top).clamp(min=-2 * self.reach))

    def row_losses(self, support: Support, targets: Targets) -> RowLosses:
        """Return p·F + H(p) − Σ_t share_t·F_t, all F less the row's best."""
        prob = support.log_prob.exp()
        top = support.scores.amax(-1, keepdim=True)
        conjugate = (prob * (support.scores - top)).sum(-1) + self.entropy(prob)
        losses = conjugate - (targets.shares * (targets.scores - top)).sum(-1)
        return RowLosses(losses, prob, -targets.shares)


@declare.head("sparsemax", traits=["vectors"], usual=_VALIDATED_BY)
class SparsemaxHead(_ProjectionHead):
    """The sparsemax: the point of the simplex nearest to the scores.

    Formula: P = argmin over the simplex of |p − F|² = max(0, F − τ); the loss is its
    Fenchel–Young loss p·F + (1 − |p|²)/2 − F(x, t), which is 0 as soon as the target leads by 1.

    Shapes: as ``SparseHead``.

    Cost: O(B·V·D) forward, O(B·K·D) backward for supports of K classes.

    Reference: Martins & Astudillo 2016; computed by the package ``entmax``.

    Use when: probabilities of exactly 0 are wanted, for a short list of answers. Avoid when:
    every class must stay possible; supports are the shortest here (``Entmax15Head`` is between).

    >>> import widemax as wm
    >>> scorer = wm.TableScorer(3, 1)
    >>> _ = scorer.weight.data.copy_(torch.tensor([[1.0], [0.5], [-1.0]]))
    >>> SparsemaxHead(scorer).log_prob(torch.ones(1, 1)).exp().tolist()
    [[0.75, 0.25, 0.0]]
    """

    reach = 1.0

    @staticmethod
    def project(scores: Tensor) -> Tensor:
        """Return the sparsemax of scores [B, K]."""
        prob: Tensor = sparsemax(scores, dim=-1)
        return prob

    @staticmethod
    def entropy(prob: Tensor) -> Tensor:
        """Return (1 − Σ p²) / 2."""
        return (1 - prob.square().sum(-1)) / 2


@declare.head("entmax-1.5", traits=["vectors"], usual=_VALIDATED_BY)
class Entmax15Head(_ProjectionHead):
    """The 1.5-entmax: halfway between softmax and sparsemax.

    Formula: P = max(0, F/2 − τ)²; the loss is its Fenchel–Young loss
    p·F + (1 − Σ p^1.5)/0.75 − F(x, t).

    Shapes: as ``SparseHead``.

    Cost: O(B·V·D) forward, O(B·K·D) backward for supports of K classes.

    Reference: Peters, Niculae & Martins 2019; computed by the package ``entmax``.

    Use when: a sparse distribution should still train smoothly. Avoid when: every class must
    stay possible.

    >>> import widemax as wm
    >>> scorer = wm.TableScorer(3, 1)
    >>> _ = scorer.weight.data.copy_(torch.tensor([[1.0], [1.0], [-5.0]]))
    >>> Entmax15Head(scorer).log_prob(torch.ones(1, 1)).exp().round(decimals=4).tolist()
    [[0.5, 0.5, 0.0]]
    """

    reach = 2.0

    @staticmethod
    def project(scores: Tensor) -> Tensor:
        """Return the 1.5-entmax of scores [B, K]."""
        prob: Tensor = entmax15(scores, dim=-1)
        return prob

    @staticmethod
    def entropy(prob: Tensor) -> Tensor:
        """Return (1 − Σ p^1.5) / 0.75."""
        return (1 - (prob * prob.sqrt()).sum(-1)) / 0.75
