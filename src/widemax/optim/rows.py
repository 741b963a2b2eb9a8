"""Gradients by rows: grouped for the kernels, or summed in plain torch."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widemax.devices import by_kernels
from widemax.kernels.optim.rows import extremes, group_rows

_KERNEL_DTYPES = (torch.float32, torch.float64, torch.bfloat16)


class GroupedRows(NamedTuple):
    """A sparse gradient as the kernels take it: see ``widemax.kernels.optim.rows``."""

    ids: NDArray[np.int64]
    order: NDArray[np.int64]
    values: NDArray[Any]
    gradient: NDArray[Any]
    row: NDArray[Any]


def arithmetic_dtype(tensor: Tensor) -> torch.dtype:
    """Return the dtype in which a parameter is updated and its state is kept."""
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def check_gradient(parameter: Tensor, grad: Tensor) -> None:
    """Refuse a gradient of another shape than its parameter's, or sparse within rows."""
    if grad.shape != parameter.shape:
        raise ValueError(
            f"a gradient must have the shape of its parameter {list(parameter.shape)}, "
            f"got {list(grad.shape)}"
        )
    if grad.is_sparse and grad.sparse_dim() != 1:
        raise ValueError(
            f"a sparse gradient must be sparse in its rows alone, got {grad.sparse_dim()} sparse "
            "dimensions; give values of shape [nnz, ...] and indices of shape [1, nnz]"
        )


def fits_kernel(tensor: Tensor) -> bool:
    """Return whether the kernels can work in the memory of a table, or of a gradient's values."""
    return by_kernels(tensor) and tensor.dtype in _KERNEL_DTYPES and tensor.is_contiguous()


def as_rows(tensor: Tensor) -> NDArray[Any]:
    """Return a contiguous tensor [V, ...] as an array [V, D] on its memory, bfloat16 as bits."""
    table = tensor.detach() if tensor.requires_grad else tensor
    if table.dim() != 2:
        table = table.view(tensor.shape[0], -1)
    return (table.view(torch.uint16) if table.dtype == torch.bfloat16 else table).numpy()


def grouped_rows(grad: Tensor, dtype: torch.dtype) -> GroupedRows:
    """Return a sparse gradient of at least one entry row by row, for arithmetic in ``dtype``."""
    ids = grad._indices()[0].numpy()
    # Kernels check no bounds, nor does torch when a gradient is made.
    (low, high), num_rows = extremes(ids), grad.shape[0]
    if low < 0 or high >= num_rows:
        raise ValueError(
            f"ids of a sparse gradient must lie between 0 and {num_rows - 1:,}, "
            f"got {low if low < 0 else high:,}"
        )
    values = grad._values()
    if values.dtype != torch.bfloat16:
        values = values.to(dtype)
    rows = as_rows(values.contiguous())
    buffers = np.empty((2, rows.shape[1]), np.float64 if dtype == torch.float64 else np.float32)
    return GroupedRows(*group_rows(ids), rows, buffers[0], buffers[1])


def sum_rows(grad: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the distinct ids [n] of a sparse gradient and their summed values [n, ...]."""
    # Cast before the sum: bfloat16 would round every addition.
    values = grad._values().to(dtype)
    wide = torch.sparse_coo_tensor(
        grad._indices(), values, grad.shape, check_invariants=False
    ).coalesce()
    return wide.indices()[0], wide.values()
