"""Interests as weighted sums of a user's items, the weights found by dynamic routing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from widemax.encoders.contexts import vectors_at
from widemax.gradients import Gradients, is_asked_for_a_graph, kernels_take, plain_gradients


def route(
    vectors: Tensor, mapped: Tensor, places: Tensor, used: Tensor, routing: Tensor, iterations: int
) -> Tensor:
    """Return the sums of each user's vectors in each interest after the last round, [B, K, D].

    Vectors and what the routing sees of them are [U, D]; ``places`` [B, L] names them, -1 behind
    the last of each row; ``used`` bool [B, K] says which interests a user has, ``routing`` [R, K]
    where logits start. Weights are constants to the gradient.

    >>> vectors, places, start = torch.eye(2), torch.tensor([[0, 1, -1]]), torch.zeros(3, 2)
    >>> route(vectors, vectors, places, torch.ones(1, 2) > 0, start, 3).tolist()
    [[[0.5, 0.5], [0.5, 0.5]]]
    """
    lengths = (places >= 0).sum(-1)
    if not kernels_take(vectors, mapped, routing) or torch.is_autocast_enabled("cpu"):
        weights = _weights(mapped, places, lengths, used, routing, iterations)
        return _sums(vectors, places, lengths, weights)
    places = places.contiguous()
    found = _kernels().routed_weights(
        mapped.detach().contiguous().numpy(),
        places.numpy(),
        lengths.numpy(),
        used.sum(-1).numpy(),
        routing.numpy(),
        iterations,
    )
    weights = torch.from_numpy(found)
    sums: Tensor = _Sums.apply(vectors, places, lengths, weights)  # type: ignore[no-untyped-call]
    return sums


def _kernels() -> Any:
    """Return the kernels of routing, which load Numba: a reader who trains nothing does not."""
    return import_module("widemax.kernels.encoders.routing")


def squash(vectors: Tensor) -> Tensor:
    """Return |z|² / (1 + |z|²) · z / |z|: the same direction, shorter than 1; 0 for 0.

    Sabour, Frosst & Hinton 2017 use it where the length of a vector says how sure it is.

    >>> squash(torch.tensor([[1.0, 0.0], [0.0, 0.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.0]]
    """
    length: Tensor = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return vectors * (length / (1 + length.square()))


@torch.no_grad()
def _weights(
    mapped: Tensor, places: Tensor, lengths: Tensor, used: Tensor, routing: Tensor, iterations: int
) -> Tensor:
    """Return the weights of the last round, [B, L, K], by torch's own operations."""
    behaviours = vectors_at(mapped, places)
    from_end = lengths[:, None] - 1 - torch.arange(places.shape[1], device=places.device)
    logits = routing[from_end % len(routing)].masked_fill(~used[:, None], -torch.inf)
    for _ in range(iterations - 1):
        interests = squash(logits.softmax(-1).transpose(1, 2) @ behaviours)
        logits = logits + behaviours @ interests.transpose(1, 2)
    return logits.softmax(-1)


def _sums(vectors: Tensor, places: Tensor, lengths: Tensor, weights: Tensor) -> Tensor:
    return weights.transpose(1, 2) @ vectors_at(vectors, places)


class _Sums(torch.autograd.Function):
    """``_sums`` by a kernel that adds rows up where they are: nothing of [B, L, D] is formed."""

    @staticmethod
    def forward(
        ctx: Any, vectors: Tensor, places: Tensor, lengths: Tensor, weights: Tensor
    ) -> Tensor:
        ctx.save_for_backward(vectors, places, lengths, weights)
        rows = vectors.detach().contiguous().numpy()
        arrays = (each.numpy() for each in (places, lengths, weights))
        sums = _kernels().weighted_sums(rows, *arrays)
        return torch.from_numpy(sums)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Gradients:
        inputs = vectors, places, lengths, weights = ctx.saved_tensors
        if is_asked_for_a_graph():
            return plain_gradients(_sums, inputs, ctx.needs_input_grad, (grad,))
        by_vectors = _kernels().spread_sums(
            grad.contiguous().numpy(),
            places.numpy(),
            lengths.numpy(),
            weights.numpy(),
            len(vectors),
        )
        return torch.from_numpy(by_vectors), None, None, None
