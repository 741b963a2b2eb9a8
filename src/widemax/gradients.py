"""Functions with a fast backward: when a kernel may run, and second derivatives.

A backward that reuses its memory cannot be differentiated. With ``create_graph=True`` torch would
hand out its result without a graph and say nothing, whenever the gradient that comes in needs none
(as that of a sum): a second derivative would then lack terms. Such a backward either asks
``plain_gradients`` for a gradient with a graph, or is ``differentiable_once``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from widemax.devices import by_kernels

Gradients = tuple[Tensor | None, ...]


def kernels_take(*tensors: Tensor | None) -> bool:
    """Return whether a kernel may replace torch's own operations on these tensors.

    >>> kernels_take(torch.zeros(1)), kernels_take(torch.zeros(1, dtype=torch.float64))
    (True, False)
    """
    wide = all(each is None or each.dtype == torch.float32 for each in tensors)
    return wide and by_kernels(*tensors)


def is_asked_for_a_graph() -> bool:
    """Return whether a backward runs under ``create_graph=True``: its result needs a graph."""
    return torch.is_grad_enabled()


def plain_gradients(
    function: Callable[..., Tensor | tuple[Tensor, ...]],
    inputs: Sequence[Any],
    needed: Sequence[bool],
    grads: Sequence[Tensor],
) -> Gradients:
    """Return the gradients of ``function(*inputs)`` by autograd, which are differentiable again.

    There is one for each of the inputs, None where it is not ``needed``; ``grads`` are those of the
    outputs.

    >>> x = torch.tensor(3.0, requires_grad=True)
    >>> (slope,) = plain_gradients(lambda x: x**3, [x], [True], [torch.tensor(1.0)])
    >>> slope.item(), torch.autograd.grad(slope, x)[0].item()
    (27.0, 18.0)
    """
    # Each input becomes a tensor of its own, so that one that is given twice counts once a place.
    own = [x.view_as(x) if need else x for x, need in zip(inputs, needed, strict=True)]
    wanted = [x for x, need in zip(own, needed, strict=True) if need]
    outputs = function(*own)
    outputs = (outputs,) if isinstance(outputs, Tensor) else outputs
    found = iter(torch.autograd.grad(outputs, wanted, grads, create_graph=True, allow_unused=True))
    return tuple(next(found) if need else None for need in needed)


def differentiable_once(why: str) -> Callable[[Callable[..., Gradients]], Callable[..., Gradients]]:
    """Return a decorator of a backward that can have no graph: asking for one raises, with ``why``.

    torch's ``once_differentiable`` raises only where the incoming gradient needs a graph.
    """

    def decorate(backward: Callable[..., Gradients]) -> Callable[..., Gradients]:
        @wraps(backward)
        def checked(ctx: Any, *grads: Tensor | None) -> Gradients:
            if is_asked_for_a_graph():
                raise RuntimeError(f"create_graph=True: there is no second derivative here, {why}")
            return backward(ctx, *grads)

        return checked

    return decorate
