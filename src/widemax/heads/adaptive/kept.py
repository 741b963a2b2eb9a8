"""The exact cross-entropy of few scores: probabilities are kept instead of computed twice."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from widemax.heads.exact import linear_cross_entropy
from widemax.scoring.rows import widened

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
        ctx.save_for_backward(queries, vectors, targets, target_weights, prob)
        # The largest probability is at least 1 / V: its logarithm is exact where others underflow.
        return largest - prob.amax(-1).log() - target_scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        queries, vectors, targets, target_weights, prob = ctx.saved_tensors
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


def cluster_cross_entropy(
    queries: Tensor,
    vectors: Tensor,
    biases: Tensor | None,
    targets: Tensor,
    target_weights: Tensor,
) -> Tensor:
    """Return ``linear_cross_entropy``, by the faster way for so many scores.

    With few scores the softmax is kept, so that backward is two matrix products and no more;
    with many, tiles are computed again.
    """
    arguments = (queries, vectors, biases, targets, target_weights)
    if len(queries) * len(vectors) > _KEPT_SCORES:
        return linear_cross_entropy(*arguments)
    losses: Tensor = _KeptCrossEntropy.apply(*arguments)  # type: ignore[no-untyped-call]
    return losses
