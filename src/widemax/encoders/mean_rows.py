"""The mean of rows of a table, with a gradient that names each row once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding_bag, pad


def mean_rows(table: Tensor, context: Tensor, *, sparse: bool) -> Tensor:
    """Return the mean of the rows that each context names; 0 where it names none.

    Formula: out[b] = mean over h of table[context[b, h]], over the places that are not -1.

    Shapes: table [V, D], context int64 [B, H], -1 anywhere → [B, D].

    Cost: O(B·H) to find the n places that are known, O(n·D) for their mean. The gradient is summed
    row by row from the B gradients of the means, which stay in cache: nothing of n·D numbers is
    ever formed. With ``sparse`` it holds each row that was read once, else it is dense.

    Reference: none.

    Use when: contexts are long and name the same rows again and again. Avoid when: the gradient
    itself is to be differentiated (``torch.nn.functional.embedding_bag``).

    >>> table = torch.tensor([[1.0], [3.0]], requires_grad=True)
    >>> means = mean_rows(table, torch.tensor([[-1, 0, 1], [1, 1, -1]]), sparse=True)
    >>> means.sum().backward()
    >>> means.tolist(), table.grad._nnz(), table.grad.to_dense().tolist()
    ([[2.0], [3.0]], 2, [[0.5], [1.5]])
    """
    known = context >= 0
    ids, lengths = context[known], known.sum(-1)
    if not (torch.is_grad_enabled() and table.requires_grad):
        return embedding_bag(ids, table, _starts(lengths), mode="mean")
    means: Tensor = _MeanRows.apply(table, ids, lengths, sparse)  # type: ignore[no-untyped-call]
    return means


def _starts(lengths: Tensor) -> Tensor:
    return pad(lengths.cumsum(0), (1, 0))[:-1]


class _MeanRows(torch.autograd.Function):
    """torch's own, but for the gradient: that one holds a row of D numbers for each place."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, ids: Tensor, lengths: Tensor, sparse: bool) -> Tensor:
        ctx.save_for_backward(ids, lengths)
        ctx.shape, ctx.sparse = table.shape, sparse
        return embedding_bag(ids, table, _starts(lengths), mode="mean")

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        ids, lengths = ctx.saved_tensors
        shares = grad / lengths.clamp(min=1)[:, None]
        contexts = torch.arange(len(lengths), device=ids.device).repeat_interleave(lengths)
        in_order, order = ids.sort(stable=True)
        rows, repeats = torch.unique_consecutive(in_order, return_counts=True)
        sums = embedding_bag(contexts[order], shares, _starts(repeats), mode="sum")
        if not ctx.sparse:
            return grad.new_zeros(ctx.shape).index_copy_(0, rows, sums), None, None, None
        # The ids have served as places in forward: there is nothing left to check.
        gradient = torch.sparse_coo_tensor(rows[None], sums, ctx.shape, check_invariants=False)
        return gradient, None, None, None
