"""What a softmax needs of its candidates: one log-sum-exp for each row."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from widemax.gradients import Gradients, differentiable_once, kernels_take
from widemax.kernels.objectives.log_sum import row_log_sums
from widemax.objectives.base import (
    REMOVED,
    Positives,
    check_hits,
    check_log_count,
    largest,
    read_negatives,
)


class LogSum(NamedTuple):
    """The candidates that compete in each row, summed up, [B] each."""

    top: Tensor
    """The largest score, −inf where none competes; a constant to the gradient."""
    log_sum: Tensor
    """log Σ exp((F − top)/τ − log Q), −inf where none competes."""


def sum_candidates(
    candidate_scores: Tensor,
    rows: int,
    *,
    log_expected_count: Tensor | None = None,
    hits: Tensor | None = None,
    temperature: float = 1.0,
) -> LogSum:
    """Return the log-sum-exp of each row over the candidates that are not hits.

    The largest score is subtracted first: float32 scores of 10,000 are spaced by 0.001, so
    F − log Q would round what the small difference of two of them still holds exactly.
    """
    scores = read_negatives(candidate_scores, rows)
    check_hits(hits, scores.shape)
    log_count = None
    if log_expected_count is not None:
        log_count = check_log_count(log_expected_count, scores, hits).to(scores.dtype)
    if kernel_takes(scores, log_count):
        return fused_log_sum(scores, log_count, hits, temperature)
    return plain_log_sum(scores, log_count, hits, temperature)


def plain_log_sum(
    scores: Tensor, log_count: Tensor | None, hits: Tensor | None, temperature: float
) -> LogSum:
    """Return the sums by torch's own operations: any device, any dtype, any order of derivative."""
    scores = scores if hits is None else scores.masked_fill(hits, REMOVED)
    removed = torch.isneginf(scores)
    top = largest(scores)
    corrected = (scores - top) / temperature
    if log_count is not None:
        corrected = corrected - log_count
    empty = removed.all(-1)
    # A row of nothing gets a harmless stand-in: its logarithm would have NaN for a gradient.
    log_sum = corrected.masked_fill(empty[:, None], 0.0).logsumexp(-1)
    return LogSum(top[:, 0].masked_fill(empty, REMOVED), torch.where(empty, REMOVED, log_sum))


def kernel_takes(scores: Tensor, log_count: Tensor | None) -> bool:
    """Return whether the kernel may replace torch's own operations."""
    return kernels_take(scores) and not (log_count is not None and log_count.requires_grad)


def run_kernel(
    scores: Tensor,
    log_count: Tensor | None,
    hits: Tensor | None,
    temperature: float,
    source: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return top, log_sum and scale [B]; contiguous ``scores`` become the powers.

    Of a ``source`` the scores are read, and stay as they are.
    """
    counts_and_hits = kernel_counts_and_hits(scores.shape, log_count, hits)
    given = None if source is None else kernel_array(source)
    sums = row_log_sums(scores.detach().numpy(), *counts_and_hits, 1 / temperature, given)
    top, log_sum, scale = map(torch.from_numpy, sums)
    return top, log_sum, scale


def kernel_counts_and_hits(
    shape: tuple[int, ...], log_count: Tensor | None, hits: Tensor | None
) -> tuple[Any, Any]:
    """Return log Q and the hits of scores [B, S] as a kernel takes them: [B, S], or [1, S]."""
    shared = (1, shape[1])
    log_count = torch.zeros(shared) if log_count is None else log_count.float()
    if log_count.dim() < 2:
        log_count = log_count.expand(shared)
    if hits is None:
        hits = torch.zeros(shared, dtype=torch.bool)
    elif hits.stride(0) == 0:
        hits = hits[:1]
    return kernel_array(log_count), kernel_array(hits)


def kernel_array(tensor: Tensor) -> Any:
    """Return the memory of a tensor on the CPU, or of a contiguous copy, for a kernel."""
    return (tensor.detach() if tensor.requires_grad else tensor).contiguous().numpy()


class _FusedLogSum(torch.autograd.Function):
    """The kernel writes the derivative with the sum: backward is one product."""

    @staticmethod
    def forward(
        ctx: Any,
        scores: Tensor,
        log_count: Tensor | None,
        hits: Tensor | None,
        temperature: float,
    ) -> tuple[Tensor, ...]:
        powers = torch.empty_like(scores, memory_format=torch.contiguous_format)
        top, log_sum, scale = run_kernel(powers, log_count, hits, temperature, scores)
        ctx.mark_non_differentiable(top)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(scale, powers)
        return top, log_sum

    @staticmethod
    @differentiable_once("as the kernel that sums float32 scores keeps none; use float64")
    def backward(ctx: Any, _: None, grad: Tensor) -> Gradients:
        scale, powers = ctx.saved_tensors
        return powers * (grad * scale)[:, None], None, None, None


def fused_log_sum(
    scores: Tensor, log_count: Tensor | None, hits: Tensor | None, temperature: float
) -> LogSum:
    """Return the same as ``plain_log_sum`` by a kernel that reads each score once."""
    arguments = (scores, log_count, hits, temperature)
    top, log_sum = _FusedLogSum.apply(*arguments)  # type: ignore[no-untyped-call]
    return LogSum(top, log_sum)


def centre(
    positives: Positives, negatives: LogSum, temperature: float = 1.0
) -> tuple[Positives, Tensor]:
    """Return positives and log_sum [B] less the largest score of their row, divided by τ.

    A softmax is invariant to this shift; as in ``sum_candidates`` it comes before log Q and τ.
    """
    with torch.no_grad():
        best = positives.without_absent(positives.scores, REMOVED).amax(-1)
        top = torch.maximum(best, negatives.top)
        top.masked_fill_(torch.isneginf(top), 0.0)  # nothing competes in such a row
    shifted, log_sum = positives.scores - top[:, None], negatives.top - top
    if temperature != 1:
        shifted, log_sum = shifted / temperature, log_sum / temperature
    shifted = positives.without_absent(shifted, 0.0)
    return positives._replace(scores=shifted), log_sum + negatives.log_sum
