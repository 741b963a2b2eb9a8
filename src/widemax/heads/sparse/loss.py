"""Losses with a sparse derivative: forward by chunks of rows, backward by the support alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from widemax.candidates import ClassBlock
from widemax.gradients import Gradients, is_asked_for_a_graph
from widemax.heads.exact.blockwise import Blocks, block_scores, placed
from widemax.scoring.rows import widened

if TYPE_CHECKING:
    from widemax.heads.sparse.heads import SparseHead

# Scores of so many rows at once that they take 32 MB in float32, at least one row.
_CHUNK_SCORES = 2**23
# Wider supports than this are computed again in backward instead of kept: with all scores equal
# the support is the whole catalogue, and keeping it would be the [B, V] that is to be avoided.
_KEPT_SUPPORT = 1024
# Unless they take 48 MB or less all together.
_KEPT_ENTRIES = 2**22
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


def _rows_of(blocks: Blocks, rows: slice) -> list[ClassBlock]:
    return [block._replace(queries=block.queries[rows]) for block in blocks]


def _chunk(
    blocks: Blocks, targets: Tensor, shares: Tensor, head: SparseHead
) -> tuple[Tensor, Tensor, Tensor]:
    """Return losses and, of their derivative by scores, the classes and values, [B, K + T]."""
    scores = block_scores(blocks)
    support = head.support(scores)
    found = head.row_losses(support, Targets(targets, scores.gather(1, targets), shares))
    ids = torch.cat([support.ids, targets], dim=1)
    return found.losses, ids, torch.cat([found.by_support, found.by_targets], dim=1)


def traced_losses(blocks: Blocks, targets: Tensor, shares: Tensor, head: SparseHead) -> Tensor:
    """Return the losses in a compiled graph: from all scores at once, [B, V], in fixed shapes."""
    scores = block_scores(_wide(blocks))
    with torch.no_grad():
        support = head.support(scores)
        found = head.row_losses(support, Targets(targets, scores.gather(1, targets), shares))
        by_scores = torch.zeros_like(scores).scatter_add(1, support.ids, found.by_support)
        by_scores = by_scores.scatter_add(1, targets, found.by_targets)
    # A term that is 0 brings the derivative, which is known; a score may be −inf where it is 0.
    linear = (by_scores * scores.masked_fill(by_scores == 0, 0.0)).sum(-1)
    return found.losses + (linear - linear.detach())


def _by_block(ids: Tensor, values: Tensor, blocks: Blocks, num_classes: int) -> Iterator[Tensor]:
    """Yield a derivative as a matrix [B, C] for the classes of each block.

    They are sparse unless so full that a dense product is faster.
    """
    if ids.shape[1] > _DENSE_SHARE * num_classes:
        whole = values.new_zeros(len(ids), num_classes).scatter_add_(1, ids, values)
        yield from torch.split(whole, [len(block.vectors) for block in blocks], dim=1)
        return
    rows = torch.arange(len(ids), device=ids.device)[:, None].expand_as(ids)
    for start, block in placed(blocks):
        size = (len(ids), len(block.vectors))
        inside = (ids >= start) & (ids < start + size[1])
        places = torch.stack([rows[inside], ids[inside] - start])
        yield torch.sparse_coo_tensor(places, values[inside], size, check_invariants=False)


def _triples(values: Sequence[Any]) -> list[Sequence[Any]]:
    """Return what belongs to queries, vectors and biases of each block in turn."""
    return [values[place : place + 3] for place in range(0, len(values), 3)]


def _wide(blocks: Blocks) -> list[ClassBlock]:
    return [ClassBlock(widened(queries), widened(vectors), b) for queries, vectors, b in blocks]


class SparseLoss(torch.autograd.Function):
    """The loss [B] of each row by the rule of a head, for targets and shares [B, T]."""

    @staticmethod
    def forward(
        ctx: Any, head: SparseHead, targets: Tensor, shares: Tensor, *factors: Tensor | None
    ) -> Tensor:
        """Return the losses, keeping the derivatives of rows with a narrow support."""
        blocks = _wide([ClassBlock(*each) for each in _triples(factors)])
        losses = blocks[0].queries.new_empty(len(targets))
        kept: list[Tensor | None] = []
        num_kept = 0
        for rows in row_chunks(len(targets), head.num_classes):
            losses[rows], ids, values = _chunk(
                _rows_of(blocks, rows), targets[rows], shares[rows], head
            )
            narrow = ids.shape[1] - targets.shape[1] <= _KEPT_SUPPORT
            num_kept += ids.numel()
            kept += (ids, values) if narrow or num_kept <= _KEPT_ENTRIES else (None, None)
        ctx.save_for_backward(targets, shares, *factors, *kept)
        ctx.head, ctx.num_factors = head, len(factors)
        return losses

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Gradients:
        """Return the gradients of queries, vectors and biases of every block."""
        targets, shares, *rest = ctx.saved_tensors
        factors, kept = tuple(rest[: ctx.num_factors]), rest[ctx.num_factors :]
        blocks, head = _wide([ClassBlock(*each) for each in _triples(factors)]), ctx.head
        if is_asked_for_a_graph():
            found: Sequence[Tensor | None] = _graph_gradients(blocks, targets, shares, head, grad)
        else:
            needed = ctx.needs_input_grad[3:]
            sums = [_GradientSums.of(*each) for each in zip(blocks, _triples(needed), strict=True)]
            for index, rows in enumerate(row_chunks(len(targets), head.num_classes)):
                ids, values = kept[2 * index : 2 * index + 2]
                own = _rows_of(blocks, rows)
                if ids is None:
                    _, ids, values = _chunk(own, targets[rows], shares[rows], head)
                values = values * grad[rows, None]
                matrices = _by_block(ids, values, own, head.num_classes)
                for part, matrix, block in zip(sums, matrices, own, strict=True):
                    part.add(rows, matrix, block)
            found = [each for part in sums for each in part]
        pairs = zip(found, factors, strict=True)
        typed = (None if one is None else one.to(like.dtype) for one, like in pairs)
        return None, None, None, *typed


class _GradientSums(NamedTuple):
    """The gradients of a block, as they add up over chunks of rows."""

    queries: Tensor
    vectors: Tensor | None
    biases: Tensor | None

    @classmethod
    def of(cls, block: ClassBlock, needed: Sequence[bool]) -> _GradientSums:
        """Return sums of nothing yet; ``needed`` says of queries, vectors, biases who has one."""
        queries, vectors, biases = block
        return cls(
            torch.empty_like(queries),
            torch.zeros_like(vectors) if needed[1] else None,
            widened(torch.zeros_like(biases)) if needed[2] and biases is not None else None,
        )

    def add(self, rows: slice, matrix: Tensor, block: ClassBlock) -> None:
        """Add what the derivative of these rows by their scores contributes."""
        self.queries[rows] = matrix @ block.vectors
        if self.vectors is not None:
            self.vectors.addmm_(matrix.t(), block.queries)
        if self.biases is not None:
            self.biases.add_(matrix.sum(0).to_dense())


def _graph_gradients(
    blocks: Blocks, targets: Tensor, shares: Tensor, head: SparseHead, grad: Tensor
) -> list[Tensor]:
    """Return the gradients from all scores at once, [B, V], so that they have a graph."""
    _, ids, values = _chunk(blocks, targets, shares, head)
    by_scores = values.new_zeros(len(ids), head.num_classes)
    by_scores = by_scores.scatter_add(1, ids, values * grad[:, None])
    found = []
    for start, block in placed(blocks):
        own = by_scores[:, start : start + len(block.vectors)]
        found += [own @ block.vectors, own.T @ block.queries, own.sum(0)]
    return found
