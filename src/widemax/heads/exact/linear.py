"""The exact softmax over all classes, tile by tile: the [B, V] matrix is never allocated whole.

Every function works on the inner-product form of a scorer: queries [B, D], vectors [V, D] and
biases [V] or None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from widemax.candidates import TopK
from widemax.devices import by_kernels
from widemax.gradients import Gradients, is_asked_for_a_graph, plain_gradients
from widemax.heads.exact.topk import KernelKeeper, TorchKeeper, best_keeper
from widemax.scoring.rows import widened

# A tile of 2^20 scores (4 MB in float32) stays in the cache for the passes after the product:
# fewer classes slow down the products, more the passes; flat from 2^19 to 2^21 at B = 1,024.
_TILE_SCORES = 2**20
_TILE_ROWS = 2048
# torch finds the best of a tile row by row and merges them at a fixed cost per tile: wider ones.
_TOPK_TILE_SCORES = 2**23


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


def without_autocast(tensor: Tensor) -> AbstractContextManager[None]:
    """Keep products in float32: with log Z rounded to bfloat16 no probabilities sum to 1."""
    return torch.autocast(tensor.device.type, enabled=False)


class _Unit(NamedTuple):
    """What scores are measured in before they are raised to powers."""

    per_nat: float
    power: Callable[..., Tensor]
    log: Callable[..., Tensor]
    log_add: Callable[[Tensor, Tensor], Tensor]

    def tiles(self, queries: Tensor, vectors: Tensor, biases: Tensor | None) -> Iterator[_Tile]:
        """Yield all scores in this unit."""
        if self.per_nat != 1:
            queries = queries * self.per_nat
            biases = None if biases is None else widened(biases) * self.per_nat
        return _tiles(queries, vectors, biases)


# After the product, exp is the slowest pass, and exp2 takes half its time. But scores near the end
# of the range of their type, 3e38 in float32, have no place in bits.
_BITS = _Unit(math.log2(math.e), torch.exp2, torch.log2, torch.logaddexp2)
_NATS = _Unit(1.0, torch.exp, torch.log, torch.logaddexp)


def _sum_powers(queries: Tensor, vectors: Tensor, biases: Tensor | None, unit: _Unit) -> Tensor:
    """Return log Z in the given unit, [B]."""
    total = queries.new_full((len(queries),), -torch.inf)
    for tile in unit.tiles(queries, vectors, biases):
        # Biases may rule out a whole tile: −inf less −inf would be NaN.
        largest = tile.scores.amax(-1, keepdim=True).clamp_(min=torch.finfo(total.dtype).min)
        powers = unit.power(tile.scores.sub_(largest), out=tile.scores)
        tile_sum = unit.log(powers.sum(-1)) + largest[:, 0]
        total[tile.rows] = unit.log_add(total[tile.rows], tile_sum)
    return total


def _log_normalizer(
    queries: Tensor, vectors: Tensor, biases: Tensor | None
) -> tuple[Tensor, _Unit]:
    """Return log Z, [B], and the unit in which it can be had."""
    if by_kernels(queries):
        bits = _sum_powers(queries, vectors, biases, _BITS)
        if bool(bits.isfinite().all()):
            return bits / _BITS.per_nat, _BITS
    return _sum_powers(queries, vectors, biases, _NATS), _NATS


def unit_of(log_normalizer: Tensor) -> _Unit:
    """Return the unit in which log Z, [B], was summed by ``LinearSums``."""
    in_bits = bool((log_normalizer * _BITS.per_nat).isfinite().all())
    return _BITS if in_bits and by_kernels(log_normalizer) else _NATS


def _label_scores(scores: Tensor, target_weights: Tensor) -> Tensor:
    """Return Σ_t w_t F(t), [B]; a stand-in of weight 0 may have any score, even −inf."""
    return (target_weights * scores.masked_fill(target_weights == 0, 0.0)).sum(-1)


class LinearSums(torch.autograd.Function):
    """LSE_y F(i, y) and Σ_t w_it F(i, t) + ε·mean_y F(i, y), recomputing tiles in backward."""

    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        vectors: Tensor,
        biases: Tensor | None,
        targets: Tensor,
        target_weights: Tensor,
        smoothing: float,
    ) -> tuple[Tensor, Tensor]:
        """Return both sums, [B] each."""
        wide_queries = widened(queries)
        log_normalizer, ctx.unit = _log_normalizer(wide_queries, vectors, biases)
        ctx.save_for_backward(queries, vectors, biases, targets, target_weights, log_normalizer)
        ctx.smoothing = smoothing
        target_scores = torch.einsum("btd,bd->bt", widened(vectors[targets]), wide_queries)
        if biases is not None:
            target_scores += biases[targets]
        labelled = _label_scores(target_scores, target_weights)
        if smoothing:
            mean_score = wide_queries @ vectors.mean(0, dtype=wide_queries.dtype)
            if biases is not None:
                mean_score += biases.mean()
            labelled = labelled + smoothing * mean_score
        return log_normalizer, labelled

    @staticmethod
    def backward(ctx: Any, by_sum: Tensor, by_label: Tensor) -> Gradients:
        """Return the gradients of queries, vectors and biases."""
        queries, vectors, biases, targets, target_weights, log_normalizer = ctx.saved_tensors
        if is_asked_for_a_graph():
            inputs = (queries, vectors, biases, targets, target_weights, ctx.smoothing)
            return plain_gradients(_plain_sums, inputs, ctx.needs_input_grad, (by_sum, by_label))
        _, needs_vectors, needs_biases = ctx.needs_input_grad[:3]
        wide_queries = widened(queries)
        sum_queries, label_queries = (wide_queries * by[:, None] for by in (by_sum, by_label))
        grad_queries = torch.zeros_like(wide_queries)
        # The first block of rows overwrites whatever the memory holds, if there is a row.
        empty = wide_queries.new_empty if len(queries) else wide_queries.new_zeros
        grad_vectors = empty(vectors.shape) if needs_vectors else None
        grad_biases = empty(biases.shape) if needs_biases else None
        unit, smoothing, flat_targets = ctx.unit, ctx.smoothing, targets.flatten()
        with without_autocast(queries):
            # All classes of a block may be ruled out: −inf less −inf would be NaN.
            lowest = torch.finfo(log_normalizer.dtype).min
            total = log_normalizer.clamp(min=lowest)[:, None] * unit.per_nat
            for tile in unit.tiles(wide_queries, vectors, biases):
                prob = unit.power(tile.scores.sub_(total[tile.rows]), out=tile.scores)
                grad_queries[tile.rows].addmm_(prob, tile.vectors)
                keep = 1 if tile.rows.start else 0
                if grad_vectors is not None:
                    share = sum_queries[tile.rows]
                    grad_vectors[tile.classes].addmm_(prob.T, share, beta=keep)
                if grad_biases is not None:
                    grad_biases[tile.classes].addmv_(prob.T, by_sum[tile.rows], beta=keep)
            # So far that is the gradient of the LSE; that of the labels is added in O(B·T·D).
            labelled = torch.einsum("btd,bt->bd", widened(vectors[targets]), target_weights)
            if smoothing:
                labelled += smoothing * vectors.mean(0, dtype=labelled.dtype)
            grad_queries = grad_queries * by_sum[:, None] + labelled * by_label[:, None]
            if grad_vectors is not None:
                labelled = target_weights[:, :, None] * label_queries[:, None]
                grad_vectors.index_add_(0, flat_targets, labelled.flatten(0, 1))
                if smoothing:
                    grad_vectors += label_queries.sum(0) * (smoothing / len(vectors))
                grad_vectors = grad_vectors.to(vectors.dtype)
            if grad_biases is not None:
                labelled = target_weights * by_label[:, None]
                grad_biases.index_add_(0, flat_targets, labelled.flatten())
                if smoothing:
                    grad_biases += by_label.sum() * (smoothing / len(biases))
                grad_biases = grad_biases.to(biases.dtype)
        return grad_queries.to(queries.dtype), grad_vectors, grad_biases, None, None, None


def _plain_sums(
    queries: Tensor,
    vectors: Tensor,
    biases: Tensor | None,
    targets: Tensor,
    target_weights: Tensor,
    smoothing: float,
) -> tuple[Tensor, Tensor]:
    """The same from all scores at once, [B, V], for derivatives of any order."""
    scores = linear_scores(queries, vectors, biases)
    labelled = _label_scores(scores.gather(1, targets), target_weights)
    if smoothing:
        labelled = labelled + smoothing * scores.mean(-1)
    return log_sum_exp(scores), labelled


def log_sum_exp(scores: Tensor) -> Tensor:
    """Return the LSE of each row, [B], with a gradient of 0 where every score is −inf.

    Biases may rule out all classes at hand; torch's own gradient would be NaN there.

    >>> scores = torch.full((1, 2), -torch.inf, requires_grad=True)
    >>> log_sum_exp(scores).item(), torch.autograd.grad(log_sum_exp(scores).sum(), scores)[0]
    (-inf, tensor([[0., 0.]]))
    """
    nothing = torch.isneginf(scores).all(-1)
    sums = scores.masked_fill(nothing[:, None], 0.0).logsumexp(-1)
    return sums.masked_fill(nothing, -torch.inf)


def linear_sums(
    queries: Tensor,
    vectors: Tensor,
    biases: Tensor | None,
    targets: Tensor,
    target_weights: Tensor,
    *,
    mean_weight: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Return both sums of a cross-entropy, [B] each: it is the first less the second.

    LSE over all classes of F, and Σ_t w_t F(t) + ``mean_weight`` · mean over all classes of F.
    """
    arguments = (queries, vectors, biases, targets, target_weights, mean_weight)
    if torch.compiler.is_compiling():
        # Here, because it is made of this file, and only a compiler needs it.
        from widemax.heads.exact.traced import traced_sums

        traced: tuple[Tensor, Tensor] = traced_sums(*arguments)
        return traced
    with without_autocast(queries):
        sums: tuple[Tensor, Tensor] = LinearSums.apply(*arguments)  # type: ignore[no-untyped-call]
    return sums


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
    log_normalizer, labelled = linear_sums(
        queries, vectors, biases, targets, weights, mean_weight=label_smoothing
    )
    return log_normalizer - labelled


def linear_scores(queries: Tensor, vectors: Tensor, biases: Tensor | None) -> Tensor:
    """Return F(x, y) in at least float32, [B, S], for vectors [S, D] or one list a row [B, S, D].

    The log normaliser is summed in float32: scores rounded to half precision would not match it.
    """
    with without_autocast(queries):
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
    return linear_sums(queries, vectors, biases, no_targets, no_weights)[0]


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
    keeper = best_keeper(widened(queries), k, exclude)
    offer_scores(keeper, queries, vectors, biases)
    return keeper.result()


def offer_scores(
    keeper: KernelKeeper | TorchKeeper,
    queries: Tensor,
    vectors: Tensor,
    biases: Tensor | None,
    first_id: int = 0,
) -> None:
    """Offer the scores of classes ``first_id`` and following to a keeper of the best."""
    size = _TILE_SCORES if isinstance(keeper, KernelKeeper) else _TOPK_TILE_SCORES
    with without_autocast(queries):
        for tile in _tiles(widened(queries), vectors, biases, size):
            keeper.offer(tile.rows, first_id + tile.classes.start, tile.scores)
