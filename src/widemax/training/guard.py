"""Stop training at the first number that is not finite, before it spreads into the weights."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

_FEW = 2**15  # numbers of a gradient that are summed together with those of others


class NonFiniteError(ValueError):
    """A loss, gradient or parameter became NaN or infinite, at ``step`` and in ``tensor``."""

    def __init__(self, *, step: int, tensor: str, value: float) -> None:
        super().__init__(f"step {step:,}: {tensor} holds {value}, a finite number is needed")
        self.step = step
        self.tensor = tensor


def check_finite(
    model: nn.Module,
    losses: Tensor,
    *,
    step: int,
    parameters: Iterable[Tensor] | None = None,
) -> None:
    """Raise ``NonFiniteError`` if a loss or a gradient is NaN or infinite, naming where it began.

    Called after ``backward`` and before ``optimizer.step``, it keeps anything bad from the weights.
    A bad parameter is named before the losses, and those before the gradients. Costs one pass over
    the gradients, and a second over the parameters only to find the culprit. With gradients scaled
    for float16 the scaler skips such steps by itself. ``parameters`` are those whose gradients are
    looked at, all of the model if not given: to ask it for them takes longer than to look.

    >>> model = torch.nn.Linear(2, 1)
    >>> _ = model.weight.data.fill_(float("inf"))
    >>> try:
    ...     check_finite(model, model(torch.ones(1, 2)), step=7)
    ... except NonFiniteError as error:
    ...     print(error)
    step 7: weight holds inf, a finite number is needed
    """
    own = model.parameters() if parameters is None else parameters
    grads = [each.grad for each in own if each.grad is not None]
    entries = [_entries(each) for each in (losses, *grads)]
    # All of it in one number, for a device must be waited for until it can be read. To join small
    # gradients takes less time than to sum each of them.
    parts = [each.reshape(-1) if each.numel() <= _FEW else each.sum().view(1) for each in entries]
    if math.isfinite(torch.cat(parts).sum().item()):
        return
    if _is_finite(losses) and all(map(_is_finite, grads)):
        return
    for name, tensor in _suspects(model, losses):
        bad = tensor[~tensor.isfinite()]
        if len(bad):
            raise NonFiniteError(step=step, tensor=name, value=bad.flatten()[0].item())


def _suspects(model: nn.Module, losses: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield causes before effects: a bad parameter makes a bad loss, and that bad gradients."""
    for name, parameter in model.named_parameters():
        yield name, parameter.detach()
    yield "the loss", losses.detach()
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            grad = parameter.grad
            yield f"the gradient of {name}", grad.coalesce().values() if grad.is_sparse else grad


def _is_finite(tensor: Tensor) -> bool:
    """Return whether all entries are finite; their sum decides in one pass without a copy."""
    values = tensor.detach()
    if math.isfinite(_entries(values).sum().item()):
        return True
    # Finite entries may still overflow their sum.
    return bool((values.coalesce().values() if values.is_sparse else values).isfinite().all())


def _entries(tensor: Tensor) -> Tensor:
    """Return the entries of a sparse gradient as they are: to join those of a row is a sort."""
    values = tensor.detach() if tensor.requires_grad else tensor
    return values._values() if values.is_sparse else values
