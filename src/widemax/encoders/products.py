"""Products of matrices within a step that kernels compute, by tiles where they are whole."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor


@cache
def _kernels() -> Any:
    """Return the products by tiles, which load Numba: a reader who trains nothing does not."""
    return import_module("widemax.kernels.products")


def product(left: Tensor, right: Tensor) -> Tensor:
    """Return left [M, K] · right [K, N] of float32 on a CPU, without a graph.

    >>> product(torch.ones(3, 4), torch.ones(4, 32))[2, :2]
    tensor([4., 4.])
    """
    kernels = _kernels()
    if right.shape[1] % kernels.WIDTH or right.shape[0] % kernels.DEPTH_STEP or not right.numel():
        return left @ right
    return torch.from_numpy(kernels.product(left.contiguous().numpy(), right.numpy()))


def product_over_rows(left: Tensor, right: Tensor) -> Tensor:
    """Return leftᵀ [M, K] · right [K, N] of left [K, M], likewise.

    >>> product_over_rows(torch.ones(3, 32), torch.ones(3, 32))[0, :2]
    tensor([3., 3.])
    """
    kernels = _kernels()
    if right.shape[1] % kernels.WIDTH or left.shape[1] % kernels.HEIGHT or not left.numel():
        return left.T @ right
    arrays = (each.contiguous().numpy() for each in (left, right))
    return torch.from_numpy(kernels.product_over_rows(*arrays))
