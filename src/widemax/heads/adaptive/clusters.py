"""The parts of an adaptive softmax: tail clusters, their loss, and a part opened for some rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from widemax.candidates import TopK
from widemax.gradients import Gradients, is_asked_for_a_graph, plain_gradients
from widemax.heads.exact.linear import (
    linear_cross_entropy,
    linear_scores,
    linear_topk,
    without_autocast,
)
from widemax.scoring.rows import widened
from widemax.validation import ABSENT

# 32 MB of float32: above, tiles that stay in the cache win, and memory must stay bounded.
_KEPT_SCORES = 2**23


class _KeptCrossEntropy(torch.autograd.Function):
    """L_i = LSE_y F(i, y) − Σ_t w_it F(i, t), keeping the softmax for backward."""

    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        vectors: Tensor,
        biases: Tensor | None,
        targets: Tensor,
        target_weights: Tensor,
    ) -> Tensor:
        scores = widened(queries) @ widened(vectors).T
        if biases is not None:
            scores += biases
        target_scores = (target_weights * scores.gather(1, targets)).sum(-1)
        largest = scores.amax(-1)
        prob = scores.softmax(-1)
        ctx.save_for_backward(queries, vectors, biases, targets, target_weights, prob)
        # The largest probability is at least 1 / V: its logarithm is exact where others underflow.
        return largest - prob.amax(-1).log() - target_scores

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Gradients:
        queries, vectors, biases, targets, target_weights, _ = ctx.saved_tensors
        if is_asked_for_a_graph():
            inputs = (queries, vectors, biases, targets, target_weights)
            return plain_gradients(_plain_cross_entropy, inputs, ctx.needs_input_grad, (grad,))
        with without_autocast(queries):  # backward may run within one, too
            return _KeptCrossEntropy._gradients(ctx, grad)

    @staticmethod
    def _gradients(ctx: Any, grad: Tensor) -> Gradients:
        queries, vectors, _, targets, target_weights, prob = ctx.saved_tensors
        needs_queries, needs_vectors, needs_biases = ctx.needs_input_grad[:3]
        labels = target_weights * grad[:, None]
        grad_queries = grad_vectors = grad_biases = None
        if needs_queries:
            labelled = torch.einsum("btd,bt->bd", widened(vectors[targets]), labels)
            grad_queries = (prob @ widened(vectors)) * grad[:, None] - labelled
            grad_queries = grad_queries.to(queries.dtype)
        if needs_vectors:
            grad_vectors = prob.T @ (widened(queries) * grad[:, None])
            labelled = labels[:, :, None] * widened(queries)[:, None]
            grad_vectors.index_add_(0, targets.flatten(), labelled.flatten(0, 1), alpha=-1)
            grad_vectors = grad_vectors.to(vectors.dtype)
        if needs_biases:
            grad_biases = prob.T @ grad
            grad_biases.index_add_(0, targets.flatten(), labels.flatten(), alpha=-1)
            grad_biases = grad_biases.to(vectors.dtype)
        return grad_queries, grad_vectors, grad_biases, None, None


def _plain_cross_entropy(
    queries: Tensor,
    vectors: Tensor,
    biases: Tensor | None,
    targets: Tensor,
    target_weights: Tensor,
) -> Tensor:
    """The same by torch's own operations, for derivatives of any order."""
    scores = linear_scores(queries, vectors, biases)
    return scores.logsumexp(-1) - (target_weights * scores.gather(1, targets)).sum(-1)


def cluster_cross_entropy(
    queries: Tensor,
    vectors: Tensor,
    biases: Tensor | None,
    targets: Tensor,
    target_weights: Tensor,
) -> Tensor:
    """Return ``linear_cross_entropy``, computed the faster way for so many scores.

    With few scores the softmax is kept, so that backward is two matrix products and no more;
    with many, tiles are computed again.
    """
    arguments = (queries, vectors, biases, targets, target_weights)
    if len(queries) * len(vectors) > _KEPT_SCORES:
        return linear_cross_entropy(*arguments)
    if torch.compiler.is_compiling():
        return _plain_cross_entropy(*arguments)
    with without_autocast(queries):
        losses: Tensor = _KeptCrossEntropy.apply(*arguments)  # type: ignore[no-untyped-call]
    return losses


class TailCluster(nn.Module):
    """One cluster of rarer classes: F(x, y) = (P x)·v_y with few dimensions."""

    tables = ("vectors",)
    """What has a row for each class."""

    def __init__(self, dimension: int, reduced: int, start: int, stop: int) -> None:
        super().__init__()
        self.start, self.stop = start, stop
        self.projection = nn.Parameter(torch.empty(reduced, dimension))
        self.vectors = nn.Parameter(torch.empty(stop - start, reduced))
        nn.init.normal_(self.projection, std=dimension**-0.5)
        nn.init.normal_(self.vectors, std=reduced**-0.5)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the queries of this cluster, [B, reduced dimension]."""
        return hidden @ self.projection.T

    def losses(self, hidden: Tensor, targets: Tensor, shares: Tensor) -> Tensor:
        """Return Σ_t share_t · −log P(t | x, cluster); targets elsewhere have share 0."""
        mass = shares.sum(-1)
        local = (targets - self.start).clamp(0, self.stop - self.start - 1)
        # A row without a target here has mass 0, and its loss counts 0 times.
        labels = shares / mass.masked_fill(mass == 0, 1.0)[:, None]
        return mass * cluster_cross_entropy(self(hidden), self.vectors, None, local, labels)


class OpenPart(NamedTuple):
    """The shortlist or a cluster, open for some rows: log P(y | x) = query·vector + offset."""

    start: int
    queries: Tensor
    vectors: Tensor
    biases: Tensor | None
    offset: Tensor

    def log_prob(self, ids: Tensor) -> Tensor:
        """Return [B, S] for ids [S] of this part."""
        local = ids - self.start
        biases = None if self.biases is None else self.biases[local]
        return linear_scores(self.queries, self.vectors[local], biases) + self.offset[:, None]

    def pair_log_prob(self, rows: Tensor, ids: Tensor) -> Tensor:
        """Return [N] for N pairs of a row and a class of this part."""
        local = ids - self.start
        biases = None if self.biases is None else self.biases[local, None]
        scores = linear_scores(self.queries[rows], self.vectors[local, None], biases)
        return scores[:, 0] + self.offset[rows]

    def topk(self, k: int, exclude: Tensor | None) -> TopK:
        """Return the best classes of this part by log-probability."""
        local = None if exclude is None else exclude - self.start
        k = min(k, len(self.vectors))
        best = linear_topk(self.queries, self.vectors, self.biases, k, exclude=local)
        ids = torch.where(best.ids == ABSENT, ABSENT, best.ids + self.start)
        return TopK(ids=ids, scores=best.scores + self.offset[:, None])
