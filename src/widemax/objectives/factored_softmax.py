"""The softmax over one target and shared candidates, from their factors to the loss in one step."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from widemax.candidates import InnerProduct
from widemax.kernels.objectives.log_sum import lead_losses, spread_gradients
from widemax.objectives.base import all_finite, check_count_shape, check_hits
from widemax.objectives.log_sum import as_array, kernel_takes, run_kernel


def softmax_of_factors(
    product: InnerProduct,
    *,
    target_log_count: Tensor | None,
    log_count: Tensor | None,
    hits: Tensor | None,
    temperature: float,
) -> Tensor | None:
    """Return log(1 + Σ exp(G − G_t)) of each row, [B]; None where it takes more than factors.

    Then the general way by scores gives the same, or says what is wrong with the arguments.
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
    # A count or a score that is not finite shows here: the general way knows what to say of it.
    return losses if all_finite(losses.detach()) else None


def _factors_suffice(
    product: InnerProduct, target_log_count: Tensor | None, log_count: Tensor | None
) -> bool:
    parts = (product.queries, product.vectors, product.biases)
    counts = [count for count in (target_log_count, log_count) if count is not None]
    if torch.is_autocast_enabled("cpu"):
        return False
    if not all(part is None or kernel_takes(part, None) for part in parts):
        return False
    if any(
        count is not None and (count.requires_grad or not all_finite(count)) for count in counts
    ):
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
        if target_log_count is None:
            target_log_count = torch.zeros_like(top)
        results = lead_losses(
            as_array(product.target_scores()),
            as_array(target_log_count.float()),
            as_array(top),
            as_array(log_sum),
            1 / temperature,
        )
        losses, push = map(torch.from_numpy, results)
        ctx.save_for_backward(queries, vectors, push, scale, scores)  # by now their powers
        ctx.temperature = temperature
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        queries, vectors, push, scale, powers = ctx.saved_tensors
        needs_queries, needs_vectors, needs_biases = ctx.needs_input_grad[:3]
        rows = len(queries)
        away = grad * push  # from every candidate, and towards the target
        weight, towards = away * scale, away / -ctx.temperature
        by_queries = powers @ vectors[rows:] if needs_queries else torch.zeros_like(queries)
        by_vectors = torch.empty_like(vectors)
        weighted = spread_gradients(
            as_array(queries),
            as_array(vectors[:rows]),
            as_array(weight),
            as_array(towards),
            by_queries.numpy(),
            by_vectors[:rows].numpy(),
        )
        if needs_vectors:
            torch.mm(powers.T, torch.from_numpy(weighted), out=by_vectors[rows:])
        by_biases = None
        if needs_biases:
            by_biases = torch.cat([towards, powers.T @ weight])
        return (
            by_queries if needs_queries else None,
            by_vectors if needs_vectors else None,
            by_biases,
            None,
            None,
            None,
            None,
        )
