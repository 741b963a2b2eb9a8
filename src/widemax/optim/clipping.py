"""The joint norm of sparse and dense gradients, and a limit to it."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from widemax.devices import by_kernels
from widemax.kernels.optim import rows as kernel
from widemax.optim.rows import arithmetic_dtype, check_gradient, fits_kernel, grouped_rows, sum_rows
from widemax.validation import check_positive

_ROUNDING = 1e-6
"""Added to the norm, as torch does, so that a clipped one does not end above the limit."""


@torch.no_grad()
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, *, error_if_nonfinite: bool = False
) -> Tensor:
    """Scale all gradients in place so that their joint 2-norm is at most ``max_norm``.

    n = √(Σ over parameters of ‖g‖²); g ← g·min(1, max_norm / (n + 10⁻⁶)), as torch's function of
    this name does for dense gradients (Pascanu, Mikolov & Bengio 2013). Duplicates of a sparse
    gradient are summed first, so n is the norm of the dense gradient that it stands for; it is
    returned as it was before scaling. A parameter given twice counts once. ``max_norm`` = inf only
    measures. If n is NaN or infinite nothing is scaled: ``check_finite`` can still find the cause.

    >>> import torch
    >>> table = torch.nn.Embedding(1000, 4, sparse=True)
    >>> table(torch.tensor([7, 7])).sum().backward()
    >>> clip_grad_norm_(table.parameters(), 1.0).item()
    4.0
    >>> table.weight.grad.to_dense()[7].round(decimals=4).tolist()
    [0.5, 0.5, 0.5, 0.5]
    """
    if max_norm != math.inf:
        check_positive("max_norm", max_norm)
    unique = dict.fromkeys([parameters] if isinstance(parameters, Tensor) else parameters)
    grads = []
    for parameter in unique:
        if parameter.grad is not None:
            check_gradient(parameter, parameter.grad)
            grads.append(parameter.grad)
    if not grads:
        return torch.zeros(())
    norms = torch.stack([_norm(grad).to(grads[0].device) for grad in grads])
    total: Tensor = torch.linalg.vector_norm(norms)
    if not by_kernels(total) and not error_if_nonfinite:
        # By a number that stays where it is: reading it would wait for the device.
        factor = (max_norm / (total + _ROUNDING)).clamp(max=1.0)
        _scale(grads, torch.where(total.isfinite(), factor, 1.0))
        return total
    if not math.isfinite(total):
        if error_if_nonfinite:
            raise ValueError(f"the norm of the gradients must be finite, got {total.item()}")
        return total
    scale = float(max_norm / (total + _ROUNDING))
    if scale < 1:
        _scale(grads, scale)
    return total


def _scale(grads: list[Tensor], factor: float | Tensor) -> None:
    for grad in grads:
        # Scaling is linear: duplicates need not be summed for it.
        values = grad._values() if grad.is_sparse else grad
        values.mul_(factor.to(values) if isinstance(factor, Tensor) else factor)


def _norm(grad: Tensor) -> Tensor:
    dtype = arithmetic_dtype(grad)
    if grad.is_sparse and grad._values().numel() and fits_kernel(grad._values()):
        return torch.tensor(kernel.squared_norm(*grouped_rows(grad, dtype)), dtype=dtype).sqrt()
    values = sum_rows(grad, dtype)[1] if grad.is_sparse else grad
    norm: Tensor = torch.linalg.vector_norm(values, dtype=dtype)
    return norm
