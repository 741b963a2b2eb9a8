"""Losses with a sparse derivative: forward by chunks of rows, backward by the support alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from widemax.scoring.rows import widened

if TYPE_CHECKING:
    from widemax.heads.sparse.heads import SparseHead

# Scores of so many rows at once that they take 32 MB in float32, at least one row.
_CHUNK_SCORES = 2**23
# Wider supports than this are computed again in backward instead of kept: with all scores equal
# the support is the whole catalogue, and keeping it would be the [B, V] that is to be avoided.
_KEPT_SUPPORT = 1024
# From this share of all classes on, a dense product beats sorting the entries of a sparse one.
_DENSE_SHARE = 1 / 16


class Support(NamedTuple):
    """The classes of each row that may have probability, each [B, K]."""

    ids: Tensor
    scores: Tensor
    log_prob: Tensor


class RowLosses(NamedTuple):
    """Losses [B] and their derivatives by the scores of support [B, K] and targets [B, T]."""

    losses: Tensor
    by_support: Tensor
    by_targets: Tensor


class Targets(NamedTuple):
    """Targets, their scores and their shares of the label, each [B, T]."""

    ids: Tensor
    scores: Tensor
    shares: Tensor


def row_chunks(rows: int, num_classes: int) -> Iterator[slice]:
    """Yield slices of rows whose scores against all classes may be in memory at once."""
    size = max(1, _CHUNK_SCORES // num_classes)
    return (slice(start, min(start + size, rows)) for start in range(0, rows, size))


def _chunk(
    queries: Tensor,
    vectors: Tensor,
    biases: Tensor | None,
    targets: Tensor,
    shares: Tensor,
    head: SparseHead,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return losses and, of their derivative by scores, the classes and values, [B, K + T]."""
    scores = queries @ vectors.T
    if biases is not None:
        scores += biases
    support = head.support(scores)
    found = head.row_losses(support, Targets(targets, scores.gather(1, targets), shares))
    ids = torch.cat([support.ids, targets], dim=1)
    return found.losses, ids, torch.cat([found.by_support, found.by_targets], dim=1)


def _as_matrix(ids: Tensor, values: Tensor, num_classes: int) -> Tensor:
    """Return a derivative as [B, V]: sparse unless so full that a dense product is faster."""
    if ids.shape[1] > _DENSE_SHARE * num_classes:
        return values.new_zeros(len(ids), num_classes).scatter_add_(1, ids, values)
    rows = torch.arange(len(ids), device=ids.device)[:, None].expand_as(ids)
    places, size = torch.stack([rows.flatten(), ids.flatten()]), (len(ids), num_classes)
    return torch.sparse_coo_tensor(places, values.flatten(), size, check_invariants=False)


class SparseLoss(torch.autograd.Function):
    """The loss [B] of each row by the rule of a head, for targets and shares [B, T]."""

    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        vectors: Tensor,
        biases: Tensor | None,
        targets: Tensor,
        shares: Tensor,
        head: SparseHead,
    ) -> Tensor:
        """Return the losses, keeping the derivatives of rows with a narrow support."""
        wide_queries, wide_vectors = widened(queries), widened(vectors)
        losses = wide_queries.new_empty(len(queries))
        kept: list[Tensor | None] = []
        for rows in row_chunks(len(queries), len(vectors)):
            losses[rows], ids, values = _chunk(
                wide_queries[rows], wide_vectors, biases, targets[rows], shares[rows], head
            )
            narrow = ids.shape[1] - targets.shape[1] <= _KEPT_SUPPORT
            kept += (ids, values) if narrow else (None, None)
        ctx.save_for_backward(queries, vectors, biases, targets, shares, *kept)
        ctx.head = head
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of queries, vectors and biases."""
        queries, vectors, biases, targets, shares, *kept = ctx.saved_tensors
        _, needs_vectors, needs_biases = ctx.needs_input_grad[:3]
        wide_queries, wide_vectors = widened(queries), widened(vectors)
        grad_queries = torch.empty_like(wide_queries)
        grad_vectors = torch.zeros_like(wide_vectors) if needs_vectors else None
        grad_biases = torch.zeros_like(widened(biases)) if needs_biases else None
        for index, rows in enumerate(row_chunks(len(queries), len(vectors))):
            ids, values = kept[2 * index : 2 * index + 2]
            if ids is None:
                _, ids, values = _chunk(
                    wide_queries[rows], wide_vectors, biases, targets[rows], shares[rows], ctx.head
                )
            values = values * grad[rows, None]
            matrix = _as_matrix(ids, values, len(vectors))
            grad_queries[rows] = matrix @ wide_vectors
            if grad_vectors is not None:
                grad_vectors.addmm_(matrix.t(), wide_queries[rows])
            if grad_biases is not None:
                grad_biases.index_add_(0, ids.flatten(), values.flatten())
        return (
            grad_queries.to(queries.dtype),
            None if grad_vectors is None else grad_vectors.to(vectors.dtype),
            None if grad_biases is None else grad_biases.to(biases.dtype),
            *(None, None, None),
        )
