"""Inner products of chosen pairs of rows of two tables, and of their gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from widemax.gradients import Gradients, is_asked_for_a_graph, plain_gradients

# Gathered pairs of this many values (1 MB in float32) are still in the cache when multiplied.
_BLOCK_VALUES = 2**18


class _PairProduct(torch.autograd.Function):
    """Gathers pairs block by block; the gradients are weighted sums of rows, gathering nothing."""

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        ctx.save_for_backward(left, right, rows, columns)
        products = left.new_empty(len(rows))
        size = max(1, _BLOCK_VALUES // max(left.shape[1], 1))
        for start in range(0, len(rows), size):
            block = slice(start, start + size)
            pairs = left.index_select(0, rows[block]).mul_(right.index_select(0, columns[block]))
            torch.sum(pairs, dim=-1, out=products[block])
        return products

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Gradients:
        left, right, rows, columns = inputs = ctx.saved_tensors
        if is_asked_for_a_graph():
            return plain_gradients(_plain_product, inputs, ctx.needs_input_grad, (grad,))
        grad_left = grad_right = None
        if ctx.needs_input_grad[0]:
            grad_left = _sum_by_row(grad, right, rows, columns, len(left))
        if ctx.needs_input_grad[1]:
            order = columns.argsort(stable=True)
            grad_right = _sum_by_row(grad[order], left, columns[order], rows[order], len(right))
        return grad_left, grad_right, None, None


def _plain_product(left: Tensor, right: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """The same by torch's own operations, for derivatives of any order."""
    return (left[rows] * right[columns]).sum(-1)


def _sum_by_row(
    factors: Tensor, table: Tensor, rows: Tensor, columns: Tensor, num_rows: int
) -> Tensor:
    """Return Σ over i with rows[i] = r of factors[i]·table[columns[i]], for rising ``rows``."""
    if not len(rows):
        return table.new_zeros((num_rows, table.shape[1]))
    starts = torch.searchsorted(rows, torch.arange(num_rows, device=rows.device))
    return embedding_bag(columns, table, starts, mode="sum", per_sample_weights=factors)


def pair_product(left: Tensor, right: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return ``(left[rows] * right[columns]).sum(-1)``, [N], without the [N, D] of pairs.

    ``left`` [R, D] and ``right`` [U, D] have one dtype; ``rows`` [N] must rise.

    >>> left, right = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [5.0, 6.0]])
    >>> pair_product(left, right, torch.tensor([0, 0]), torch.tensor([1, 0])).tolist()
    [17.0, 11.0]
    """
    products: Tensor = _PairProduct.apply(left, right, rows, columns)  # type: ignore[no-untyped-call]
    return products
