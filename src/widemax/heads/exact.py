"""The exact softmax over all classes, tile by tile: the [B, V] matrix never stands whole.

Every function works on the inner-product form of a scorer: queries [B, D], vectors [V, D] and
biases [V] or None.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from widemax.candidates import TopK
from widemax.validation import ABSENT

# A tile of 2^21 scores (8 MB in float32) stays near the cache: measured 2x faster than the whole
# matrix at V = 200,000, D = 128, B = 1,024, and flat around this size (benchmarks/full_head.py).
_TILE_SCORES = 2**21
_TILE_ROWS = 2048
# The best of a tile are found row by row, which pays a fixed price per tile: wider ones.
_TOPK_TILE_SCORES = 2**23


def _blocks(total: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, total)) for start in range(0, total, size))


def _tiles(rows: int, num_classes: int, scores: int = _TILE_SCORES) -> tuple[int, int]:
    """Return rows and classes of one tile."""
    tile_rows = max(1, min(rows, _TILE_ROWS))
    return tile_rows, max(1, min(num_classes, scores // tile_rows))


def _wide(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _tile_scores(queries: Tensor, vectors: Tensor, biases: Tensor | None) -> Tensor:
    return queries @ vectors.T if biases is None else torch.addmm(biases, queries, vectors.T)


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
        wide_queries = _wide(queries)
        log_normalizer = _log_normalizer(wide_queries, vectors, biases)
        ctx.save_for_backward(
            queries, vectors, biases, targets, target_weights, log_normalizer
        )
        ctx.smoothing = smoothing
        target_scores = torch.einsum("btd,bd->bt", _wide(vectors[targets]), wide_queries)
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
    @once_differentiable  # type: ignore[untyped-decorator]  # torch leaves it untyped
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        queries, vectors, biases, targets, target_weights, log_normalizer = ctx.saved_tensors
        needs_queries, needs_vectors, needs_biases = ctx.needs_input_grad[:3]
        grad = grad.to(log_normalizer.dtype)
        wide_queries = _wide(queries)
        scaled_queries = wide_queries * grad[:, None]
        grad_queries = torch.zeros_like(wide_queries)
        grad_vectors = torch.empty_like(vectors) if needs_vectors else None
        grad_biases = torch.empty_like(biases) if needs_biases else None
        tile_rows, tile_classes = _tiles(len(queries), len(vectors))
        for classes in _blocks(len(vectors), tile_classes):
            tile_vectors = _wide(vectors[classes])
            tile_biases = None if biases is None else _wide(biases[classes])
            grad_tile = torch.zeros_like(tile_vectors) if needs_vectors else None
            for rows in _blocks(len(queries), tile_rows):
                prob = _tile_scores(wide_queries[rows], tile_vectors, tile_biases)
                prob.sub_(log_normalizer[rows, None]).exp_()
                if needs_queries:
                    grad_queries[rows].addmm_(prob, tile_vectors)
                if grad_tile is not None:
                    grad_tile.addmm_(prob.T, scaled_queries[rows])
                if grad_biases is not None:
                    share = grad[rows] @ prob
                    grad_biases[classes] = share + (grad_biases[classes] if rows.start else 0)
            if grad_vectors is not None:
                grad_vectors[classes] = grad_tile
        _subtract_labels(
            ctx.smoothing, grad, scaled_queries, vectors, targets, target_weights,
            grad_queries, grad_vectors, grad_biases,
        )  # fmt: skip
        grad_queries = (grad_queries * grad[:, None]).to(queries.dtype)
        return (grad_queries if needs_queries else None, grad_vectors, grad_biases) + (None,) * 3


def _subtract_labels(
    smoothing: float,
    grad: Tensor,
    scaled_queries: Tensor,
    vectors: Tensor,
    targets: Tensor,
    target_weights: Tensor,
    grad_queries: Tensor,
    grad_vectors: Tensor | None,
    grad_biases: Tensor | None,
) -> None:
    """Turn the gradient of the LSE into that of the loss: subtract what the labels say, in place.

    ``grad_queries`` is still without the factor of the incoming gradient.
    """
    flat = targets.flatten()
    grad_queries -= torch.einsum("btd,bt->bd", _wide(vectors[targets]), target_weights)
    if smoothing:
        grad_queries -= smoothing * vectors.mean(0, dtype=grad_queries.dtype)
    if grad_vectors is not None:
        labelled = target_weights[:, :, None] * scaled_queries[:, None]
        grad_vectors.index_add_(0, flat, -labelled.flatten(0, 1).to(grad_vectors.dtype))
        if smoothing:
            grad_vectors -= scaled_queries.sum(0) * (smoothing / len(vectors))
    if grad_biases is not None:
        labelled = target_weights * grad[:, None]
        grad_biases.index_add_(0, flat, -labelled.flatten().to(grad_biases.dtype))
        if smoothing:
            grad_biases -= grad.sum() * (smoothing / len(vectors))


def _log_normalizer(wide_queries: Tensor, vectors: Tensor, biases: Tensor | None) -> Tensor:
    result = wide_queries.new_full((len(wide_queries),), -torch.inf)
    tile_rows, tile_classes = _tiles(len(wide_queries), len(vectors))
    for classes in _blocks(len(vectors), tile_classes):
        tile_vectors = _wide(vectors[classes])
        tile_biases = None if biases is None else _wide(biases[classes])
        for rows in _blocks(len(wide_queries), tile_rows):
            scores = _tile_scores(wide_queries[rows], tile_vectors, tile_biases)
            largest = scores.amax(-1, keepdim=True)
            tile_sum = scores.sub_(largest).exp_().sum(-1).log_() + largest[:, 0]
            result[rows] = torch.logaddexp(result[rows], tile_sum)
    return result


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

    It equals ``cross_entropy(queries @ vectors.T + biases, labels)`` with the labels made dense,
    the mass ``label_smoothing`` spread over all classes; at most a few tiles of scores stand at
    once.
    """
    weights = target_weights * (1 - label_smoothing)
    result: Tensor = _LinearCrossEntropy.apply(
        queries, vectors, biases, targets, weights, label_smoothing
    )
    return result


def linear_log_normalizer(queries: Tensor, vectors: Tensor, biases: Tensor | None) -> Tensor:
    """Return log Z = LSE over all classes of F, [B], differentiable."""
    nothing = torch.empty((len(queries), 0), dtype=torch.int64, device=queries.device)
    no_weight = _wide(queries).new_empty((len(queries), 0))
    return linear_cross_entropy(queries, vectors, biases, nothing, no_weight)


@torch.no_grad()
def linear_topk(
    queries: Tensor,
    vectors: Tensor,
    biases: Tensor | None,
    k: int,
    *,
    exclude: Tensor | None = None,
) -> TopK:
    """Return the k best classes of each row, leaving out ``exclude`` [B, E] (-1: nothing)."""
    best_scores = _wide(queries).new_full((len(queries), k), -torch.inf)
    best_ids = torch.full((len(queries), k), ABSENT, device=queries.device)
    tile_rows, tile_classes = _tiles(len(queries), len(vectors), _TOPK_TILE_SCORES)
    for classes in _blocks(len(vectors), tile_classes):
        tile_vectors = _wide(vectors[classes])
        tile_biases = None if biases is None else _wide(biases[classes])
        for rows in _blocks(len(queries), tile_rows):
            scores = _tile_scores(_wide(queries[rows]), tile_vectors, tile_biases)
            if exclude is not None:
                _remove(scores, exclude[rows], classes)
            found = scores.topk(min(k, scores.shape[1]))
            merged = torch.cat([best_scores[rows], found.values], dim=1)
            merged_ids = torch.cat([best_ids[rows], found.indices + classes.start], dim=1)
            best_scores[rows], order = merged.topk(k)
            best_ids[rows] = merged_ids.gather(1, order)
    if bool(best_scores.isnan().any()):
        raise ValueError("scores hold NaN: check hidden and the class vectors")
    return TopK(ids=best_ids.masked_fill(best_scores == -torch.inf, ABSENT), scores=best_scores)


def _remove(scores: Tensor, exclude: Tensor, classes: slice) -> None:
    here = (exclude >= classes.start) & (exclude < classes.stop)
    rows, _ = here.nonzero(as_tuple=True)
    scores[rows, exclude[here] - classes.start] = -torch.inf
