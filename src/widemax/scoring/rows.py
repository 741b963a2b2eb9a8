"""Rows of a table, with a gradient that holds those rows only."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._compile import _disable_dynamo
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding

HALF = (torch.float16, torch.bfloat16)
"""Types a table may be stored in, but sums are not computed in."""


def widened(tensor: Tensor) -> Tensor:
    """Return half precision as float32, anything else as it is."""
    return tensor.float() if tensor.dtype in HALF else tensor


def gather_rows(table: Tensor, ids: Tensor, *, sparse: bool) -> Tensor:
    """Return ``table[ids]`` in at least float32, [*ids.shape, D], with a gradient that is as wide.

    With ``sparse`` the gradient of N ids is an uncoalesced COO tensor of N rows, and nothing of the
    table's size is allocated; without, it is dense. The gradient of a parameter in half precision
    stays in float32 (``Tensor.grad_dtype``), so that shares smaller than its rounding add up. Only
    a gradient that already is in half precision stays so until it is cleared. ``torch.compile``
    breaks its graph at such a table.

    >>> table = torch.zeros(1_000_000, requires_grad=True)
    >>> gather_rows(table, torch.tensor([[7, 7], [1, 0]]), sparse=True).sum().backward()
    >>> table.grad._nnz(), table.grad.coalesce().values().tolist()
    (4, [1.0, 1.0, 2.0])
    """
    traced = torch.compiler.is_compiling()
    if table.dtype in HALF:
        half_rows = _untraced_half_rows if traced else _half_rows
        rows: Tensor = half_rows(table, ids, sparse)
    elif table.dim() == 2:
        rows = look_up(table, ids, sparse=sparse)
    elif not sparse:
        rows = table[ids]
    elif traced:
        rows = _traced_rows(table, ids)
    else:  # torch has no sparse gradient of a vector
        rows = _Rows.apply(table, ids, sparse)  # type: ignore[no-untyped-call]
    return rows


def look_up(table: Tensor, ids: Tensor, *, sparse: bool) -> Tensor:
    """Return ``table[ids]`` of a table [V, D] as it is, [*ids.shape, D].

    >>> look_up(torch.eye(2), torch.tensor([1]), sparse=False)
    tensor([[0., 1.]])
    """
    if not sparse and ids.numel() == 0:
        # torch cannot differentiate the dense gradient of no rows again.
        return table[:0].reshape(ids.shape + table.shape[1:])
    return embedding(ids, table, sparse=sparse)


def _half_rows(table: Tensor, ids: Tensor, sparse: bool) -> Tensor:
    """Return rows outside any compiled graph: it would round the gradient to the table's dtype.

    So would torch itself, unless ``grad_dtype`` is wider; it is set at every call, because a copy
    of a parameter does not inherit it.
    """
    if table.is_leaf and table.grad is None and table.grad_dtype != torch.float32:
        table.grad_dtype = torch.float32
    rows: Tensor = _Rows.apply(table, ids, sparse)  # type: ignore[no-untyped-call]
    return rows


# Not torch.compiler.disable, which takes two seconds to load the compiler wherever it is named.
_untraced_half_rows = _disable_dynamo(_half_rows)


class _Rows(torch.autograd.Function):
    """Widened rows, and a gradient that is not rounded to the dtype of the table."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, ids: Tensor, sparse: bool) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.shape, ctx.sparse = table.shape, sparse
        # index_select refuses ids below 0, which table[ids] would count from the end.
        rows = table.index_select(0, ids.reshape(-1))
        return widened(rows).view(ids.shape + table.shape[1:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (ids,) = ctx.saved_tensors
        places, values = ids.reshape(-1).long(), grad.reshape(-1, *ctx.shape[1:])
        return rows_gradient(places, values, ctx.shape, sparse=ctx.sparse), None, None


def rows_gradient(places: Tensor, values: Tensor, shape: torch.Size, *, sparse: bool) -> Tensor:
    """Return the gradient of a table of which rows ``places`` [N] have the gradients ``values``.

    >>> values = torch.tensor([[1.0], [2.0], [3.0]])
    >>> rows_gradient(torch.tensor([1, 0, 1]), values, torch.Size([2, 1]), sparse=False).tolist()
    [[2.0], [4.0]]
    """
    if sparse:
        return _sparse_rows(places, values, shape)
    return values.new_zeros(shape).index_add_(0, places, values)


def _sparse_rows(places: Tensor, values: Tensor, shape: torch.Size) -> Tensor:
    # The ids were valid in forward: there is nothing left to check.
    return torch.sparse_coo_tensor(places.unsqueeze(0), values, shape, check_invariants=False)


@torch.library.custom_op("widemax::rows", mutates_args=())
def _traced_rows(table: Tensor, ids: Tensor) -> Tensor:
    """Return values of a vector as one node of a compiled graph, with a sparse gradient."""
    return table.index_select(0, ids.reshape(-1)).view(ids.shape)


@_traced_rows.register_fake
def _(table: Tensor, ids: Tensor) -> Tensor:
    return table.new_empty(ids.shape)


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    table, ids = inputs
    ctx.save_for_backward(ids)
    ctx.shape = table.shape


def _traced_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    (ids,) = ctx.saved_tensors
    return _sparse_rows(ids.reshape(-1).long(), grad.reshape(-1), ctx.shape), None


_traced_rows.register_autograd(_traced_backward, setup_context=_keep)
