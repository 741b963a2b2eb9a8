"""The exact softmax over all classes, tile by tile: the [B, V] matrix is never allocated whole.

Every function works on the inner-product form of a scorer: queries [B, D], vectors [V, D] and
biases [V] or None.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from widemax.candidates import TopK
from widemax.heads.exact_topk import KernelKeeper, best_keeper
from widemax.scoring.rows import widened

# A tile of 2^20 scores (4 MB in float32) stays in the cache for the passes after the product:
# fewer classes slow down the products, more the passes; flat from 2^19 to 2^21 at B = 1,024.
_TILE_SCORES = 2**20
_TILE_ROWS = 2048
# torch finds the best of a tile row by row and merges them at a fixed cost per tile: wider ones.
_TOPK_TILE_SCORES = 2**23
_LOG2_E = math.log2(math.e)


class _Tile(NamedTuple):
    """Scores of some rows against some classes, and the vectors of those classes."""

    rows: slice
    classes: slice
    scores: Tensor
    vectors: Tensor


def _blocks(total: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, total)) for start in range(0, total, size))


def _tiles(
    queries: Tensor, vectors: Tensor, biases: Tensor | None, size: int = 0
) -> Iterator[_Tile]:
    """Yield all scores, classes in the outer loop: each class vector is read from memory once."""
    tile_rows = max(1, min(len(queries), _TILE_ROWS))
    tile_classes = max(1, (size or _TILE_SCORES) // tile_rows)
    for classes in _blocks(len(vectors), tile_classes):
        tile_vectors = widened(vectors[classes])
        tile_biases = None if biases is None else biases[classes].to(queries.dtype)
        for rows in _blocks(len(queries), tile_rows):
            if tile_biases is None:
                scores = queries[rows] @ tile_vectors.T
            else:
                scores = torch.addmm(tile_biases, queries[rows], tile_vectors.T)
            yield _Tile(rows, classes, scores, tile_vectors)


def _without_autocast(tensor: Tensor) -> AbstractContextManager[None]:
    """Keep products in float32: with log Z rounded to bfloat16 no probabilities sum to 1."""
    return torch.autocast(tensor.device.type, enabled=False)


def _bit_tiles(queries: Tensor, vectors: Tensor, biases: Tensor | None) -> Iterator[_Tile]:
    """Yield F·log2 e: after the product, exp is the slowest pass, and exp2 takes half its time."""
    biases = None if biases is None else widened(biases) * _LOG2_E
    return _tiles(queries * _LOG2_E, vectors, biases)


def _log_normalizer(queries: Tensor, vectors: Tensor, biases: Tensor | None) -> Tensor:
    bits = queries.new_full((len(queries),), -torch.inf)
    for tile in _bit_tiles(queries, vectors, biases):
        # Biases may rule out a whole tile: −inf less −inf would be NaN.
        largest = tile.scores.amax(-1, keepdim=True).clamp_(min=torch.finfo(bits.dtype).min)
        tile_sum = tile.scores.sub_(largest).exp2_().sum(-1).log2_() + largest[:, 0]
        bits[tile.rows] = torch.logaddexp2(bits[tile.rows], tile_sum)
    return bits / _LOG2_E


class _LinearCrossEntropy(torch.autograd.Function):
    """L_i = LSE_y F(i, y) − Σ_t w_it F(i, t) − ε·mean_y F(i, y), recomputing tiles in backward."""

    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        vectors: Tensor,
        biases: Tensor | None,
        targets: Tensor,
        target_weights: Tensor,
        smoothing: float,
    ) -> Tensor:
        wide_queries = widened(queries)
        log_normalizer = _log_normalizer(wide_queries, vectors, biases)
        ctx.save_for_backward(queries, vectors, biases, targets, target_weights, log_normalizer)
        ctx.smoothing = smoothing
        target_scores = torch.einsum("btd,bd->bt", widened(vectors[targets]), wide_queries)
        if biases is not None:
            target_scores += biases[targets]
        losses = log_normalizer - (target_weights * target_scores).sum(-1)
        if smoothing:
            mean_score = wide_queries @ vectors.mean(0, dtype=wide_queries.dtype)
            if biases is not None:
                mean_score += biases.mean()
            losses = losses - smoothing * mean_score
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        queries, vectors, biases, targets, target_weights, log_normalizer = ctx.saved_tensors
        _, needs_vectors, needs_biases = ctx.needs_input_grad[:3]
        wide_queries = widened(queries)
        scaled_queries = wide_queries * grad[:, None]
        grad_queries = torch.zeros_like(wide_queries)
        # The first block of rows overwrites whatever the memory holds, if there is a row.
        empty = wide_queries.new_empty if len(queries) else wide_queries.new_zeros
        grad_vectors = empty(vectors.shape) if needs_vectors else None
        grad_biases = empty(biases.shape) if needs_biases else None
        smoothing, flat_targets = ctx.smoothing, targets.flatten()
        with _without_autocast(queries):
            bits = log_normalizer[:, None] * _LOG2_E
            for tile in _bit_tiles(wide_queries, vectors, biases):
                prob = tile.scores.sub_(bits[tile.rows]).exp2_()
                grad_queries[tile.rows].addmm_(prob, tile.vectors)
                keep = 1 if tile.rows.start else 0
                if grad_vectors is not None:
                    share = scaled_queries[tile.rows]
                    grad_vectors[tile.classes].addmm_(prob.T, share, beta=keep)
                if grad_biases is not None:
                    grad_biases[tile.classes].addmv_(prob.T, grad[tile.rows], beta=keep)
            # So far that is the gradient of the LSE; the labels subtract theirs in O(B·T·D).
            labelled = widened(vectors[targets])
            grad_queries -= torch.einsum("btd,bt->bd", labelled, target_weights)
            if smoothing:
                grad_queries -= smoothing * vectors.mean(0, dtype=grad_queries.dtype)
            if grad_vectors is not None:
                labelled = target_weights[:, :, None] * scaled_queries[:, None]
                grad_vectors.index_add_(0, flat_targets, labelled.flatten(0, 1), alpha=-1)
                if smoothing:
                    grad_vectors -= scaled_queries.sum(0) * (smoothing / len(vectors))
                grad_vectors = grad_vectors.to(vectors.dtype)
            if grad_biases is not None:
                labelled = target_weights * grad[:, None]
                grad_biases.index_add_(0, flat_targets, labelled.flatten(), alpha=-1)
                if smoothing:
                    grad_biases -= grad.sum() * (smoothing / len(biases))
                grad_biases = grad_biases.to(biases.dtype)
        grad_queries = (grad_queries * grad[:, None]).to(queries.dtype)
        return grad_queries, grad_vectors, grad_biases, None, None, None


def linear_cross_entropy(
    queries: Tensor,
    vectors: Tensor,
    biases: Tensor | None,
    targets: Tensor,
    target_weights: Tensor,
    *,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Return the exact cross-entropy [B] with labels ``target_weights`` [B, T] on ``targets``.

    It equals ``cross_entropy(queries @ vectors.T + biases, labels)`` with dense labels, the mass
    ``label_smoothing`` spread over all classes; only a few tiles of scores are in memory at once.
    """
    weights = target_weights * (1 - label_smoothing)
    arguments = (queries, vectors, biases, targets, weights, label_smoothing)
    with _without_autocast(queries):
        losses: Tensor = _LinearCrossEntropy.apply(*arguments)  # type: ignore[no-untyped-call]
    return losses


def linear_scores(queries: Tensor, vectors: Tensor, biases: Tensor | None) -> Tensor:
    """Return F(x, y) in at least float32, [B, S], for vectors [S, D] or one list a row [B, S, D].

    The log normaliser is summed in float32: scores rounded to half precision would not match it.
    """
    with _without_autocast(queries):
        queries, vectors = widened(queries), widened(vectors)
        if vectors.dim() == 2:
            scores = queries @ vectors.T
        else:
            scores = torch.bmm(vectors, queries.unsqueeze(-1)).squeeze(-1)
    return scores if biases is None else scores + biases


def linear_log_normalizer(queries: Tensor, vectors: Tensor, biases: Tensor | None) -> Tensor:
    """Return log Z = LSE over all classes of F, [B], differentiable."""
    no_targets = torch.empty((len(queries), 0), dtype=torch.int64, device=queries.device)
    no_weights = widened(queries).new_empty((len(queries), 0))
    return linear_cross_entropy(queries, vectors, biases, no_targets, no_weights)


@torch.no_grad()
def linear_topk(
    queries: Tensor,
    vectors: Tensor,
    biases: Tensor | None,
    k: int,
    *,
    exclude: Tensor | None = None,
) -> TopK:
    """Return the k best classes of each row, leaving out ``exclude`` [B, E] (-1: nothing).

    Of equal scores the smaller id comes first.
    """
    queries = widened(queries)
    keeper = best_keeper(queries, k, exclude)
    size = _TILE_SCORES if isinstance(keeper, KernelKeeper) else _TOPK_TILE_SCORES
    with _without_autocast(queries):
        for tile in _tiles(queries, vectors, biases, size):
            keeper.offer(tile.rows, tile.classes.start, tile.scores)
    return keeper.result()
