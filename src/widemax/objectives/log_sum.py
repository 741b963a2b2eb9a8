"""What a softmax needs of its candidates: one log-sum-exp for each row."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from widemax.candidates import InnerProduct
from widemax.kernels.log_sum import row_log_sums
from widemax.objectives.base import (
    REMOVED,
    Positives,
    all_finite,
    check_count_shape,
    check_hits,
    check_log_count,
    largest,
    read_negatives,
)

_F = TypeVar("_F", bound=Callable[..., Tensor])
_FACTORED: set[Callable[..., Tensor]] = set()


def factored(objective: _F) -> _F:
    """Mark an objective that reads its candidates by ``sum_candidates`` alone."""
    _FACTORED.add(objective)
    return objective


def takes_inner_product(objective: Callable[..., Tensor]) -> bool:
    """Return whether the objective takes its candidates' scores as factors too."""
    while isinstance(objective, partial):
        objective = objective.func
    return objective in _FACTORED


class LogSum(NamedTuple):
    """The candidates that compete in each row, summed up, [B] each."""

    top: Tensor
    """The largest score, 0 where none competes; a constant to the gradient."""
    log_sum: Tensor
    """log Σ exp((F − top)/τ − log Q), −inf where none competes."""
    competing: Tensor
    """How many compete."""


def sum_candidates(
    candidate_scores: Tensor | InnerProduct,
    rows: int,
    *,
    log_expected_count: Tensor | None = None,
    hits: Tensor | None = None,
    temperature: float = 1.0,
) -> LogSum:
    """Return the log-sum-exp of each row over the candidates that are no hits.

    The largest score is taken off first: float32 scores of 10,000 are spaced by 0.001, so
    F − log Q would round what the small difference of two of them still holds exactly.
    """
    if isinstance(candidate_scores, InnerProduct):
        if _factors_suffice(candidate_scores, rows, log_expected_count):
            check_hits(hits, candidate_scores.shape)
            return product_log_sum(candidate_scores, log_expected_count, hits, temperature)
        candidate_scores = candidate_scores.scores()
    scores = read_negatives(candidate_scores, rows)
    check_hits(hits, scores.shape)
    log_count = None
    if log_expected_count is not None:
        log_count = check_log_count(log_expected_count, scores, hits).to(scores.dtype)
    if _kernel_takes(scores, log_count):
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
    count = (~removed).sum(-1).to(scores.dtype)
    return LogSum(top[:, 0], torch.where(empty, REMOVED, log_sum), count)


def _kernel_takes(scores: Tensor, log_count: Tensor | None) -> bool:
    learned = log_count is not None and log_count.requires_grad
    on_cpu = scores.device.type == "cpu" and scores.dtype == torch.float32
    return on_cpu and not learned and not torch.compiler.is_compiling()


def _factors_suffice(product: InnerProduct, rows: int, log_count: Tensor | None) -> bool:
    """Return whether the scores need not stand beside their factors."""
    factors = (product.queries, product.vectors)
    plain = len(product.queries) == rows and not torch.is_autocast_enabled("cpu")
    if not plain or not all(_kernel_takes(factor, log_count) for factor in factors):
        return False
    if product.biases is not None and product.biases.dtype != torch.float32:
        return False
    if log_count is None:
        return True
    check_count_shape(log_count, product.shape)
    return all_finite(log_count)


def _run_kernel(
    scores: Tensor,
    log_count: Tensor | None,
    hits: Tensor | None,
    temperature: float,
    powers: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Return top, log_sum, count and scale [B], and powers [B, S]."""
    shape = (1, scores.shape[1])
    if log_count is None:
        log_count = scores.new_zeros(shape)
    elif log_count.dim() < 2:
        log_count = log_count.to(scores.dtype).expand(shape)
    if hits is None:
        hits = torch.zeros(shape, dtype=torch.bool)
    elif hits.stride(0) == 0:
        hits = hits[:1]
    results = row_log_sums(
        _array(scores),
        _array(log_count),
        _array(hits),
        1 / temperature,
        None if powers is None else _array(powers),
    )
    return tuple(map(torch.from_numpy, results))


def _array(tensor: Tensor) -> Any:
    return tensor.detach().contiguous().numpy()


def _save(ctx: Any, output: tuple[Tensor, ...], *inputs: Tensor) -> None:
    top, _, count, scale, powers = output
    ctx.mark_non_differentiable(top, count, scale, powers)
    # Otherwise backward is handed a zero gradient of the powers: a pass over [B, S] for nothing.
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs, scale, powers)


class _FusedLogSum(torch.autograd.Function):
    """The kernel writes the derivative with the sum: backward is one product."""

    @staticmethod
    def forward(
        scores: Tensor, log_count: Tensor | None, hits: Tensor | None, temperature: float
    ) -> tuple[Tensor, ...]:
        return _run_kernel(scores, log_count, hits, temperature)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        _save(ctx, output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _top: None, grad: Tensor, *_: None) -> tuple[Tensor | None, ...]:
        scale, powers = ctx.saved_tensors
        return powers * (grad * scale)[:, None], None, None, None


def fused_log_sum(
    scores: Tensor, log_count: Tensor | None, hits: Tensor | None, temperature: float
) -> LogSum:
    """Return the same as ``plain_log_sum`` by a kernel that reads each score once."""
    arguments = (scores, log_count, hits, temperature)
    top, log_sum, count, *_ = _FusedLogSum.apply(*arguments)  # type: ignore[no-untyped-call]
    return LogSum(top, log_sum, count)


class _ProductLogSum(torch.autograd.Function):
    """Powers take the place of the scores, and their scale goes into the factors in backward."""

    @staticmethod
    def forward(
        queries: Tensor,
        vectors: Tensor,
        biases: Tensor | None,
        log_count: Tensor | None,
        hits: Tensor | None,
        temperature: float,
    ) -> tuple[Tensor, ...]:
        scores = queries @ vectors.T
        if biases is not None:
            scores += biases
        return _run_kernel(scores, log_count, hits, temperature, powers=scores)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        _save(ctx, output, *inputs[:2])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _top: None, grad: Tensor, *_: None) -> tuple[Tensor | None, ...]:
        queries, vectors, scale, powers = ctx.saved_tensors
        needs_queries, needs_vectors, needs_biases = ctx.needs_input_grad[:3]
        weight = grad * scale
        by_queries = (powers @ vectors).mul_(weight[:, None]) if needs_queries else None
        by_vectors = powers.T @ (queries * weight[:, None]) if needs_vectors else None
        by_biases = powers.T @ weight if needs_biases else None
        return by_queries, by_vectors, by_biases, None, None, None


def product_log_sum(
    product: InnerProduct, log_count: Tensor | None, hits: Tensor | None, temperature: float
) -> LogSum:
    """Return the same of scores that are never kept beside their powers."""
    arguments = (product.queries, product.vectors, product.biases, log_count, hits, temperature)
    top, log_sum, count, *_ = _ProductLogSum.apply(*arguments)  # type: ignore[no-untyped-call]
    return LogSum(top, log_sum, count)


def centre(
    positives: Positives, negatives: LogSum, temperature: float = 1.0
) -> tuple[Positives, Tensor]:
    """Return positives and log_sum [B] less the largest score of their row, divided by τ.

    A shift that no softmax sees; like in ``sum_candidates`` it comes before log Q and τ.
    """
    absent = ~positives.present
    highest = torch.where(negatives.competing > 0, negatives.top, REMOVED)
    top = largest(positives.scores.masked_fill(absent, REMOVED), highest[:, None])
    shifted = ((positives.scores - top) / temperature).masked_fill(absent, 0.0)
    log_sum = (negatives.top - top[:, 0]) / temperature + negatives.log_sum
    return positives._replace(scores=shifted), log_sum
