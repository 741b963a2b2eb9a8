"""What every contract check requires with: a message where something does not hold.

Not ``assert``, which ``python -O`` leaves out.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def require(holds: bool | Tensor, message: str) -> None:
    """Raise AssertionError unless a condition holds, in a tensor everywhere."""
    if not (bool(holds.all()) if isinstance(holds, Tensor) else holds):
        raise AssertionError(message)


def require_close(
    left: Tensor, right: Tensor, what: str, *, tolerance: float = 1e-6, relative: bool = False
) -> None:
    """Raise AssertionError unless two tensors have one shape and nearly the same values."""
    require(left.shape == right.shape, f"{what}: shapes {list(left.shape)}, {list(right.shape)}")
    # Equal infinities are no difference: a sparse head gives some classes probability 0.
    difference = torch.where(left == right, 0.0, (left - right).abs())
    if relative:
        difference = difference / (1 + right.abs())
    worst = difference.max().item() if left.numel() else 0.0
    # NaN is not within any tolerance.
    require(worst <= tolerance, f"{what}: differs by {worst:.3g}, allowed {tolerance:g}")


def require_error(call: Callable[[], object], what: str) -> None:
    """Raise AssertionError unless the call raises ValueError."""
    try:
        call()
    except ValueError:
        return
    raise AssertionError(f"{what} must raise ValueError")
