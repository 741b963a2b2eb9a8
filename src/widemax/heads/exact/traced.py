"""The exact sums of a cross-entropy as one node of a compiled graph, which holds no [B, V] either.

``torch.compile`` would unroll the tiles, and cannot read whether they may be summed in bits. In the
graph stands an operation of its own instead, which runs ``exact`` as it is, and another for its
gradients.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from widemax.gradients import Gradients
from widemax.heads.exact import linear
from widemax.scoring.rows import widened


@torch.library.custom_op("widemax::linear_sums", mutates_args=())
def traced_sums(
    queries: Tensor,
    vectors: Tensor,
    biases: Tensor | None,
    targets: Tensor,
    target_weights: Tensor,
    smoothing: float,
) -> tuple[Tensor, Tensor]:
    """Return what ``linear.linear_sums`` does."""
    arguments = (queries, vectors, biases, targets, target_weights, smoothing)
    with torch.no_grad(), linear.without_autocast(queries):
        return linear.LinearSums.forward(SimpleNamespace(save_for_backward=_forget), *arguments)


def _forget(*tensors: Tensor | None) -> None:
    """Keep nothing: the graph around the operation does."""


@traced_sums.register_fake
def _(
    queries: Tensor,
    vectors: Tensor,
    biases: Tensor | None,
    targets: Tensor,
    target_weights: Tensor,
    smoothing: float,
) -> tuple[Tensor, Tensor]:
    wide = widened(queries)
    return wide.new_empty(len(queries)), wide.new_empty(len(queries))


@torch.library.custom_op("widemax::linear_sums_gradients", mutates_args=())
def _gradients(
    by_sum: Tensor,
    by_label: Tensor,
    queries: Tensor,
    vectors: Tensor,
    biases: Tensor | None,
    targets: Tensor,
    target_weights: Tensor,
    log_normalizer: Tensor,
    smoothing: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of queries, vectors and biases, an empty one where there are none."""
    saved = (queries, vectors, biases, targets, target_weights, log_normalizer)
    needed = (True, True, biases is not None, False, False, False)
    unit = linear.unit_of(log_normalizer)
    ctx = SimpleNamespace(
        saved_tensors=saved, needs_input_grad=needed, unit=unit, smoothing=smoothing
    )
    with torch.no_grad():
        by_queries, by_vectors, by_biases, *_ = linear.LinearSums.backward(ctx, by_sum, by_label)
    assert by_queries is not None
    assert by_vectors is not None
    return by_queries, by_vectors, queries.new_empty(0) if by_biases is None else by_biases


@_gradients.register_fake
def _(
    by_sum: Tensor,
    by_label: Tensor,
    queries: Tensor,
    vectors: Tensor,
    biases: Tensor | None,
    targets: Tensor,
    target_weights: Tensor,
    log_normalizer: Tensor,
    smoothing: float,
) -> tuple[Tensor, Tensor, Tensor]:
    by_biases = queries.new_empty(0) if biases is None else torch.empty_like(biases)
    return torch.empty_like(queries), torch.empty_like(vectors), by_biases


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.smoothing = inputs
    ctx.save_for_backward(*tensors, output[0])


def _backward(ctx: Any, by_sum: Tensor, by_label: Tensor) -> Gradients:
    biases = ctx.saved_tensors[2]
    by_queries, by_vectors, by_biases = _gradients(
        by_sum, by_label, *ctx.saved_tensors, ctx.smoothing
    )
    return by_queries, by_vectors, None if biases is None else by_biases, None, None, None


traced_sums.register_autograd(_backward, setup_context=_keep)
