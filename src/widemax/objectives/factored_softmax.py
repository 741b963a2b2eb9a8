"""The softmax over one target and shared candidates, from their factors to the loss in one step."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from widemax.candidates import InnerProduct
from widemax.gradients import Gradients, is_asked_for_a_graph, plain_gradients
from widemax.kernels.objectives.log_sum import lead_losses, spread_gradients
from widemax.objectives.base import all_finite, check_count_shape, check_hits
from widemax.objectives.log_sum import (
    kernel_array,
    kernel_counts_and_hits,
    kernel_takes,
    plain_log_sum,
    run_kernel,
)


@cache
def _tiled() -> ModuleType:
    """Return the products by tiles: they load Numba, which only a step of training needs."""
    return import_module("widemax.kernels.objectives.tiled_products")


def softmax_of_factors(
    product: InnerProduct,
    *,
    target_log_count: Tensor | None,
    log_count: Tensor | None,
    hits: Tensor | None,
    temperature: float,
) -> Tensor | None:
    """Return log(1 + Σ exp(G − G_t)) of each row, [B]; None where this fused step does not apply.

    Then the general step from scores gives the same, or says what is wrong with the arguments.
    """
    if not _factors_suffice(product, target_log_count, log_count):
        return None
    check_hits(hits, product.shape)
    losses: Tensor = _FactoredSoftmax.apply(  # type: ignore[no-untyped-call]
        product.queries,
        product.vectors,
        product.biases,
        target_log_count,
        log_count,
        hits,
        temperature,
        torch.is_grad_enabled() and product.queries.requires_grad,
    )
    # A count or a score that is not finite shows here: the general step has the error message.
    return losses if all_finite(losses.detach()) else None


def _factors_suffice(
    product: InnerProduct, target_log_count: Tensor | None, log_count: Tensor | None
) -> bool:
    if torch.is_autocast_enabled("cpu"):
        return False
    for part in (product.queries, product.vectors, product.biases):
        if part is not None and not kernel_takes(part, None):
            return False
    for count in (target_log_count, log_count):
        if count is not None and (count.requires_grad or not all_finite(count)):
            return False
    if log_count is not None:
        check_count_shape(log_count, product.shape)
    return target_log_count is None or target_log_count.shape == product.shape[:1]


class _FactoredSoftmax(torch.autograd.Function):
    """Forward and backward hold one matrix [B, S], which begins as scores and ends as powers."""

    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        vectors: Tensor,
        biases: Tensor | None,
        target_log_count: Tensor | None,
        log_count: Tensor | None,
        hits: Tensor | None,
        temperature: float,
        pulls: bool,
    ) -> Tensor:
        product = InnerProduct(queries=queries, vectors=vectors, biases=biases)
        sums = _row_sums(product, log_count, hits, temperature, pulls)
        given_counts = (target_log_count, log_count)
        if target_log_count is None:
            target_log_count = torch.zeros_like(sums.top)
        results = lead_losses(
            kernel_array(product.target_scores()),
            kernel_array(target_log_count.float()),
            kernel_array(sums.top),
            kernel_array(sums.log_sum),
            1 / temperature,
        )
        losses, push = map(torch.from_numpy, results)
        kept = (push, sums.scale, sums.powers, sums.pulled)
        ctx.save_for_backward(queries, vectors, biases, *given_counts, *kept)
        ctx.temperature = temperature
        return losses

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Gradients:
        queries, vectors, biases, *counts, push, scale, powers, pulled = ctx.saved_tensors
        rows, width = len(queries), len(vectors) - len(queries)
        if is_asked_for_a_graph():
            # A power of 0 is that of a hit, or of a candidate that adds as little as one.
            hits = powers[:rows, :width] == 0
            inputs = (queries, vectors, biases, *counts, hits, ctx.temperature)
            gradients = plain_gradients(_plain_softmax, inputs, ctx.needs_input_grad[:-1], (grad,))
            return *gradients, None
        needs_queries, needs_vectors, needs_biases = ctx.needs_input_grad[:3]
        away = grad * push  # from every candidate, and towards the target
        weight, towards = away * scale, away / -ctx.temperature
        if pulled is None:
            pulled = powers @ vectors[rows:] if needs_queries else vectors[:0]
        by_queries = torch.empty_like(queries)
        # What tiles add at the end is cut off.
        by_vectors = vectors.new_empty(rows + _tiled().padded_size(width), vectors.shape[1])
        weighted = queries.new_zeros(len(powers), queries.shape[1])
        spread_gradients(
            kernel_array(queries),
            kernel_array(vectors[:rows]),
            kernel_array(weight),
            kernel_array(towards),
            pulled.numpy(),
            by_queries=by_queries.numpy(),
            by_targets=by_vectors.numpy(),
            weighted=weighted.numpy(),
        )
        if needs_vectors and powers.shape[1] > width:
            _tiled().sum_over_batch(powers.numpy(), weighted.numpy(), by_vectors[rows:].numpy())
        elif needs_vectors:
            torch.mm(powers.T, weighted, out=by_vectors[rows : rows + width])
        by_biases = None
        if needs_biases:
            by_biases = torch.cat([towards, powers[:rows, :width].T @ weight])
        by_parts = (
            by_queries if needs_queries else None,
            by_vectors[: rows + width] if needs_vectors else None,
        )
        return *by_parts, by_biases, None, None, None, None, None


class _RowSums(NamedTuple):
    """What the backward pass needs of the candidates of each row."""

    powers: Tensor
    """[B, S], or longer and wider by what tiles need."""
    pulled: Tensor | None
    """The powers times the candidates' vectors, [B, D] or longer; None: not multiplied yet."""
    top: Tensor
    log_sum: Tensor
    scale: Tensor


def _row_sums(
    product: InnerProduct,
    log_count: Tensor | None,
    hits: Tensor | None,
    temperature: float,
    pulls: bool,
) -> _RowSums:
    (rows, width), dimension = product.shape, product.vectors.shape[1]
    if not _tiled().tiles_fit(rows, width, dimension):
        powers = product.candidate_scores()
        return _RowSums(powers, None, *run_kernel(powers, log_count, hits, temperature))
    biases = product.vectors.new_empty(0) if product.biases is None else product.biases[rows:]
    counts_and_hits = kernel_counts_and_hits((rows, width), log_count, hits)
    sums = _tiled().raise_by_tiles(
        kernel_array(product.queries),
        kernel_array(product.vectors[rows:]),
        kernel_array(biases),
        *counts_and_hits,
        1 / temperature,
        pulls=pulls,
    )
    return _RowSums(*map(torch.from_numpy, sums))


def _plain_softmax(
    queries: Tensor,
    vectors: Tensor,
    biases: Tensor | None,
    target_log_count: Tensor | None,
    log_count: Tensor | None,
    hits: Tensor,
    temperature: float,
) -> Tensor:
    """The same by torch's own operations, for derivatives of any order."""
    product = InnerProduct(queries=queries, vectors=vectors, biases=biases)
    candidates = plain_log_sum(product.candidate_scores(), log_count, hits, temperature)
    lead = (candidates.top - product.target_scores()) / temperature + candidates.log_sum
    return softplus(lead if target_log_count is None else lead + target_log_count)
