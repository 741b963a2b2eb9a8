"""The softmax over one target and shared candidates, from their factors to the loss in one step."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from widemax.candidates import InnerProduct
from widemax.gradients import Gradients, is_asked_for_a_graph, plain_gradients
from widemax.kernels.objectives.log_sum import lead_losses, spread_gradients
from widemax.objectives.base import all_finite, check_count_shape, check_hits
from widemax.objectives.log_sum import kernel_array, kernel_takes, plain_log_sum, run_kernel


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
    ) -> Tensor:
        product = InnerProduct(queries=queries, vectors=vectors, biases=biases)
        scores = product.candidate_scores()
        top, log_sum, scale = run_kernel(scores, log_count, hits, temperature)
        given_counts = (target_log_count, log_count)
        if target_log_count is None:
            target_log_count = torch.zeros_like(top)
        results = lead_losses(
            kernel_array(product.target_scores()),
            kernel_array(target_log_count.float()),
            kernel_array(top),
            kernel_array(log_sum),
            1 / temperature,
        )
        losses, push = map(torch.from_numpy, results)
        # By now the scores are their powers.
        ctx.save_for_backward(queries, vectors, biases, *given_counts, push, scale, scores)
        ctx.temperature = temperature
        return losses

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Gradients:
        queries, vectors, biases, *counts, push, scale, powers = ctx.saved_tensors
        if is_asked_for_a_graph():
            # A power of 0 is that of a hit, or of a candidate that adds as little as one.
            inputs = (queries, vectors, biases, *counts, powers == 0, ctx.temperature)
            return plain_gradients(_plain_softmax, inputs, ctx.needs_input_grad, (grad,))
        needs_queries, needs_vectors, needs_biases = ctx.needs_input_grad[:3]
        rows = len(queries)
        away = grad * push  # from every candidate, and towards the target
        weight, towards = away * scale, away / -ctx.temperature
        by_queries = powers @ vectors[rows:] if needs_queries else torch.zeros_like(queries)
        by_vectors = torch.empty_like(vectors)
        weighted = spread_gradients(
            kernel_array(queries),
            kernel_array(vectors[:rows]),
            kernel_array(weight),
            kernel_array(towards),
            by_queries.numpy(),
            by_vectors[:rows].numpy(),
        )
        if needs_vectors:
            torch.mm(powers.T, torch.from_numpy(weighted), out=by_vectors[rows:])
        by_biases = torch.cat([towards, powers.T @ weight]) if needs_biases else None
        by_parts = (by_queries if needs_queries else None, by_vectors if needs_vectors else None)
        return *by_parts, by_biases, None, None, None, None


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
