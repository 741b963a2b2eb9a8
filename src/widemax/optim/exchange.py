"""Sparse gradients in several processes: each sends the rows that its batch used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from widemax.optim.tables import sparse_parameters

_Module = TypeVar("_Module", bound=nn.Module)


def exchange_rows(model: _Module) -> _Module:
    """Prepare a model with sparse tables for ``DistributedDataParallel``, and return it.

    DDP averages dense gradients in buckets, which cannot hold sparse ones. They then leave out what
    ``sparse_parameters`` finds in the model; the rows of those gradients are gathered from all
    processes as backward reaches them, and divided by the number of processes. Tables start as
    those of process 0. Rows are exchanged at each backward, under ``no_sync`` too, where their sum
    is the same. Sizes are read on the host: each table costs a wait and three messages a step.

    The model needs a parameter that is not such a table, and the same modules in all processes.

    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> model = nn.Sequential(nn.Embedding(1000, 4, sparse=True), nn.Linear(4, 2))
    >>> model = DistributedDataParallel(exchange_rows(model))
    >>> model(torch.tensor([7, 7])).sum().backward()
    >>> model.module[0].weight.grad._indices().tolist()
    [[7, 7]]
    >>> dist.destroy_process_group()
    """
    if not dist.is_initialized():
        raise RuntimeError(
            "exchange_rows needs a process group: call torch.distributed.init_process_group first"
        )
    tables = sparse_parameters(model)
    group = dist.new_group()
    for table in tables.values():
        dist.broadcast(table.data, 0, group=group)
        table.register_hook(_averaged(group))  # type: ignore[no-untyped-call]
    own = {id(table) for table in tables.values()}
    # All names of a parameter: where it is tied, DDP would find it again by another.
    named = model.named_parameters(remove_duplicate=False)
    names = [name for name, each in named if id(each) in own]
    names += [f".{name}" for name in names if "." not in name]  # as DDP calls those of the model
    ignore: Any = DistributedDataParallel._set_params_and_buffers_to_ignore_for_model
    ignore(model, names)
    return model


def _averaged(group: dist.ProcessGroup | None) -> Callable[[Tensor], Tensor]:
    """Return a hook that makes the gradient of one process the mean over all."""

    def average(grad: Tensor) -> Tensor:
        if grad.is_sparse:
            return _mean_of_rows(grad, group)
        total = grad.clone()
        dist.all_reduce(total, group=group)
        return total.div_(dist.get_world_size(group))

    return average


def _mean_of_rows(grad: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    """Return the rows of all processes, those of process 0 first; the same bits in each."""
    ids, values = grad._indices()[0], grad._values()
    size = torch.tensor([len(ids)], device=ids.device)
    sizes = [int(each) for each in _gathered(size, group)]
    width = max(sizes)
    all_ids = _gathered(_padded(ids, width), group)
    all_values = _gathered(_padded(values, width), group)
    return torch.sparse_coo_tensor(
        torch.cat([each[:number] for each, number in zip(all_ids, sizes, strict=True)])[None],
        torch.cat([each[:number] for each, number in zip(all_values, sizes, strict=True)])
        / len(sizes),
        grad.shape,
        check_invariants=False,
    )


def _gathered(tensor: Tensor, group: dist.ProcessGroup | None) -> list[Tensor]:
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, tensor, group=group)
    return parts


def _padded(rows: Tensor, width: int) -> Tensor:
    padded = rows.new_zeros(width, *rows.shape[1:])
    padded[: len(rows)] = rows
    return padded
