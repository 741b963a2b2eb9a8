"""Contexts padded with -1: their checks, their vectors, and the means of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding, embedding_bag, pad

from widemax.devices import by_kernels
from widemax.kernels.encoders.numbering import number_rows
from widemax.scoring.rows import gather_rows
from widemax.validation import ABSENT, check_ids, check_tensor

_DENSE = 4
"""Up to so many times as many classes as are named, they are numbered by a list of all."""


def check_context(context: Tensor, num_classes: int, *, name: str = "context") -> Tensor:
    """Return ``context`` as int64 if it is [B, H] of classes, or -1."""
    if check_tensor(name, context).dim() != 2:
        raise ValueError(f"{name} must have two dimensions, got {list(context.shape)}")
    return check_ids(name, context, num_classes, absent=True)


def left_padded(context: Tensor) -> tuple[Tensor, Tensor]:
    """Return contexts whose padding is on the left with it on the right, and their lengths.

    They become no wider than the longest: [B, L] and [B].

    >>> left_padded(torch.tensor([[-1, -1, 4], [-1, 7, 5]]))
    (tensor([[ 4, -1],
            [ 7,  5]]), tensor([1, 2]))
    """
    known = context >= 0
    _check_padding("context", known[:, 1:] | ~known[:, :-1], "left")
    lengths = known.sum(-1)
    longest = int(lengths.max()) if len(lengths) else 0
    steps = torch.arange(longest, device=context.device)
    places = steps + (context.shape[1] - lengths)[:, None]
    moved = context.gather(1, places.clamp(max=max(context.shape[1] - 1, 0)))
    return torch.where(steps < lengths[:, None], moved, ABSENT), lengths


def check_segments(segments: Tensor, num_classes: int) -> Tensor:
    """Return ``segments`` as int64 if they are [B, L] of classes with the padding on the right."""
    segments = check_context(segments, num_classes, name="segments")
    known = segments >= 0
    _check_padding("segments", known[:, :-1] | ~known[:, 1:], "right")
    return segments


def _check_padding(name: str, in_order: Tensor, side: str) -> None:
    if not bool(in_order.all()):
        row = int((~in_order).any(-1).nonzero()[0])
        raise ValueError(f"{name} must have its padding (-1) on the {side}, unlike row {row}")


def packed(context: Tensor) -> Tensor:
    """Return the classes of each context in their order, with the padding behind them.

    What follows then costs as much as the longest row, however wide the padding was.

    >>> packed(torch.tensor([[4, -1, -1], [-1, 7, 5], [-1, -1, -1]])).tolist()
    [[4, -1], [7, 5], [-1, -1]]
    """
    known = context >= 0
    lengths = known.sum(-1)
    longest = int(lengths.max()) if len(lengths) else 0
    rows = context.new_full((len(context), longest), ABSENT)
    rows[torch.arange(longest, device=context.device) < lengths[:, None]] = context[known]
    return rows


def context_vectors(
    table: Tensor, context: Tensor, absent_vector: Tensor, *, sparse: bool
) -> Tensor:
    """Return the row of each class in a context, and one given vector at each -1, [B, H, D].

    Only classes that are there are looked up: a sparse gradient of the table names no row for
    padding, and an optimiser moves none for it.

    >>> table = torch.arange(6.0).view(3, 2)
    >>> context_vectors(table, torch.tensor([[-1, 2]]), torch.zeros(2), sparse=False).tolist()
    [[[0.0, 0.0], [4.0, 5.0]]]
    """
    known = context >= 0
    rows = gather_rows(table, context[known], sparse=sparse).to(absent_vector.dtype)
    absent = absent_vector.expand(*context.shape, -1)
    return absent.masked_scatter(known[..., None], rows)


def numbered(context: Tensor) -> tuple[Tensor, Tensor]:
    """Return the classes that contexts name, each once, and contexts of their places among them.

    What is done to the vector of a class is then done once, however often a batch names it.

    >>> numbered(torch.tensor([[7, -1], [5, 7]]))
    (tensor([5, 7]), tensor([[ 1, -1],
            [ 0,  1]]))
    """
    known = context >= 0
    classes = context[known]
    largest = int(classes.max()) if len(classes) else 0
    if largest > _DENSE * len(classes):
        named, places = torch.unique(classes, return_inverse=True)
    else:
        # Marked in a list of all classes, which is faster than to sort unless there are many.
        marked = torch.zeros(largest + 1, dtype=torch.int64, device=context.device)
        marked[classes] = 1
        named = marked.nonzero()[:, 0]
        places = (marked.cumsum(0) - 1)[classes]
    return named, context.masked_scatter(known, places)


class Halves(NamedTuple):
    """The classes of a batch of contexts [U], and where each context has them."""

    classes: Tensor
    num_recent: int
    """So many of the classes come first, among which are all that ``recent`` names."""
    before: Tensor
    recent: Tensor


def numbered_halves(context: Tensor, last: int) -> Halves:
    """Return the last classes of each context, at most ``last``, apart from those before them.

    Both are packed, and are places among the classes that the contexts name, each once.

    >>> numbered_halves(torch.tensor([[7, -1, 5, 9], [-1, -1, -1, 5]]), 2).recent
    tensor([[ 0,  1],
            [ 0, -1]])
    """
    if by_kernels(context):
        found, count, before, recent = number_rows(context.contiguous().numpy(), last)
        return Halves(
            torch.from_numpy(found), count, torch.from_numpy(before), torch.from_numpy(recent)
        )
    known = context >= 0
    is_recent = known.flip(-1).cumsum(-1).flip(-1) <= last
    halves = [packed(context.masked_fill(each, ABSENT)) for each in (is_recent, ~is_recent)]
    classes, places = numbered(torch.cat(halves, dim=1))
    width = halves[0].shape[1]
    return Halves(classes, len(classes), places[:, :width], places[:, width:])


def vectors_at(vectors: Tensor, places: Tensor) -> Tensor:
    """Return the rows of vectors [U, D] at places [B, L], [B, L, D]; 0 at -1.

    >>> vectors_at(torch.eye(2), torch.tensor([[1, -1]])).tolist()
    [[[0.0, 1.0], [0.0, 0.0]]]
    """
    return embedding(torch.where(places >= 0, places, len(vectors)), pad(vectors, (0, 0, 0, 1)))


def mean_rows(table: Tensor, context: Tensor, *, sparse: bool) -> Tensor:
    """Return the mean of the rows that each context names, [B, D]; 0 where it names none.

    The gradient is summed row by row from the B gradients of the means, which stay in cache:
    nothing of H·B·D values is ever formed. With ``sparse`` it holds each row that was read once,
    else it is dense. It cannot be differentiated again
    (``torch.nn.functional.embedding_bag`` can).

    >>> table = torch.tensor([[1.0], [3.0]], requires_grad=True)
    >>> means = mean_rows(table, torch.tensor([[-1, 0, 1], [1, 1, -1]]), sparse=True)
    >>> means.sum().backward()
    >>> means.tolist(), table.grad._nnz(), table.grad.to_dense().tolist()
    ([[2.0], [3.0]], 2, [[0.5], [1.5]])
    """
    known = context >= 0
    ids, lengths = context[known], known.sum(-1)
    if not (torch.is_grad_enabled() and table.requires_grad):
        return embedding_bag(ids, table, bag_starts(lengths), mode="mean")
    means: Tensor = _MeanRows.apply(table, ids, lengths, sparse)  # type: ignore[no-untyped-call]
    return means


def bag_starts(lengths: Tensor) -> Tensor:
    """Return where each bag of these lengths starts when they stand end to end."""
    return pad(lengths.cumsum(0), (1, 0))[:-1]


class _MeanRows(torch.autograd.Function):
    """torch's own, but for the gradient: that one holds a row of D values for each place."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, ids: Tensor, lengths: Tensor, sparse: bool) -> Tensor:
        ctx.save_for_backward(ids, lengths)
        ctx.shape, ctx.sparse = table.shape, sparse
        return embedding_bag(ids, table, bag_starts(lengths), mode="mean")

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        ids, lengths = ctx.saved_tensors
        shares = grad / lengths.clamp(min=1)[:, None]
        contexts = torch.arange(len(lengths), device=ids.device).repeat_interleave(lengths)
        in_order, order = ids.sort(stable=True)
        rows, repeats = torch.unique_consecutive(in_order, return_counts=True)
        sums = embedding_bag(contexts[order], shares, bag_starts(repeats), mode="sum")
        if not ctx.sparse:
            return grad.new_zeros(ctx.shape).index_copy_(0, rows, sums), None, None, None
        # The ids have served as places in forward: there is nothing left to check.
        gradient = torch.sparse_coo_tensor(rows[None], sums, ctx.shape, check_invariants=False)
        return gradient, None, None, None
