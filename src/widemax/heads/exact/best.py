"""The best product of each example's queries with each vector, by tiles and without copies."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from widemax.gradients import Gradients, is_asked_for_a_graph, kernels_take, plain_gradients
from widemax.kernels.heads.best import best_of_groups, spread_to_winners

_TILE_SCORES = 2**18
"""1 MB of them: about what stays in a core's own cache."""


def distinct(interests: Tensor) -> tuple[Tensor, Tensor | int]:
    """Return the hidden states [N, D] of interests [B, K, D], and where each example's start.

    Copies of an example's first are left out, as what they score, it scores. Where no kernel can
    follow, all are returned with K for the starts [B + 1]: no shape depends on values.

    >>> distinct(torch.tensor([[[1.0], [1.0]], [[1.0], [2.0]]]))
    (tensor([[1.],
            [1.],
            [2.]]), tensor([0, 1, 3]))
    """
    if not kernels_take(interests) or torch.is_autocast_enabled("cpu"):
        return interests.flatten(0, 1), interests.shape[1]
    states = interests.detach()
    own = pad((states[:, 1:] != states[:, :1]).any(-1), (1, 0), value=True)
    starts = pad(own.sum(1).cumsum(0), (1, 0))
    return interests.flatten(0, 1).index_select(0, own.flatten().nonzero()[:, 0]), starts


def best_products(queries: Tensor, vectors: Tensor, starts: Tensor | int) -> Tensor:
    """Return the best product of each example's queries [N, D] with each vector [S, D], [B, S].

    >>> queries, vectors = torch.tensor([[1.0, 5.0], [2.0, 3.0], [7.0, 0.0]]), torch.eye(2)
    >>> best_products(queries, vectors, torch.tensor([0, 2, 3]))
    tensor([[2., 5.],
            [7., 0.]])
    """
    if isinstance(starts, int):
        return (queries @ vectors.T).view(len(queries) // starts, starts, len(vectors)).amax(1)
    best: Tensor = _BestProducts.apply(queries, vectors, starts)  # type: ignore[no-untyped-call]
    return best


class _BestProducts(torch.autograd.Function):
    """Tile by tile, and who won is kept, where ``amax`` keeps all scores and looks for it again."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, vectors: Tensor, starts: Tensor) -> Tensor:
        queries, vectors = queries.contiguous(), vectors.contiguous()
        shape = (len(starts) - 1, len(vectors))
        best, winners = queries.new_empty(shape), torch.empty(shape, dtype=torch.uint16)
        for own, rows, bounds, tile in _tiles(starts, shape[1]):
            torch.mm(queries[rows], vectors.T, out=tile)
            best_of_groups(tile.numpy(), bounds.numpy(), best[own].numpy(), winners[own].numpy())
        ctx.save_for_backward(queries, vectors, starts, winners)
        return best

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Gradients:
        queries, vectors, starts, winners = ctx.saved_tensors
        if is_asked_for_a_graph():
            inputs = (queries, vectors, starts[:-1, None] + winners.long())
            return plain_gradients(_products_of, inputs, ctx.needs_input_grad, (grad,))
        grad = grad.contiguous()
        kernels = _winners_kernels()
        if vectors.shape[1] % kernels.LANES == 0:
            given = (grad.numpy(), winners.numpy(), starts.numpy())
            by_queries = torch.from_numpy(kernels.pull_winners(*given, vectors.numpy()))
            return by_queries, torch.from_numpy(kernels.push_winners(*given, queries.numpy())), None
        by_queries, by_vectors = torch.empty_like(queries), torch.zeros_like(vectors)
        for own, rows, bounds, tile in _tiles(starts, len(vectors)):
            spread_to_winners(grad[own].numpy(), winners[own].numpy(), bounds.numpy(), tile.numpy())
            torch.mm(tile, vectors, out=by_queries[rows])
            by_vectors.addmm_(tile.T, queries[rows])
        return by_queries, by_vectors, None


def _winners_kernels() -> Any:
    """Return the kernels of the gradient, which load Numba: a reader who trains nothing does not.

    They are worth it for rows of whole registers.
    """
    return import_module("widemax.kernels.heads.winners")


def _products_of(queries: Tensor, vectors: Tensor, winners: Tensor) -> Tensor:
    """The same by torch's own operations, for derivatives of any order: who wins does not move."""
    return (queries @ vectors.T).gather(0, winners)


def _tiles(starts: Tensor, width: int) -> Iterator[tuple[slice, slice, Tensor, Tensor]]:
    """Yield some examples, the rows of their queries, their starts, and room for their scores."""
    most = int(starts.diff().max()) if len(starts) > 1 else 1
    size = max(1, _TILE_SCORES // max(1, most * width))
    room = torch.empty(size * most, width)
    for start in range(0, len(starts) - 1, size):
        bounds = starts[start : start + size + 1]
        first, last = int(bounds[0]), int(bounds[-1])
        yield slice(start, start + size), slice(first, last), bounds, room[: last - first]
