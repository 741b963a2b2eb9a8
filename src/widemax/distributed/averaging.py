"""Copies of a table that several processes trained apart, brought together again."""

from __future__ import annotations

import torch
from torch import Tensor

from widemax.distributed.wire import Wire

_GAIN = 1.75
"""How many times the mean of what it moved a row moves at most.

By the mean alone it would learn as if each process had seen all there was; by the sum, rows that
all touch often would go too far, and swing for ever from twice the mean on.
"""


@torch.no_grad()
def average_rows(table: Tensor, before: Tensor, wire: Wire) -> int:
    """Move each row by min(m, 1.75) times the mean of what it moved in m processes that touched it.

    ``before`` is the table as all had it when they parted, ``table`` what this process made of it;
    both become the same in all processes. A row that only one process touched keeps all it has
    learned there. Only rows that were touched are sent; how many in all is returned.

    >>> import torch.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> before = torch.zeros(3, 2)
    >>> table = torch.tensor([[0.0, 0.0], [1.0, 2.0], [0.0, 0.0]])
    >>> average_rows(table, before, Wire()), before[1].tolist()
    (1, [1.0, 2.0])
    >>> dist.destroy_process_group()
    """
    moved = table - before
    touched = moved.any(1).nonzero()[:, 0]
    sizes = wire.sizes(len(touched))
    ids = wire.gathered(touched, sizes)
    number = torch.bincount(torch.cat(ids), minlength=len(table))
    touching = number.clamp(min=1).to(table.dtype)
    weights = touching.clamp(max=_GAIN) / touching
    # By the ranks, so that all processes add in the same order and get the same bits.
    for of_rank, rows in zip(ids, wire.gathered(moved[touched], sizes), strict=True):
        before.index_add_(0, of_rank, rows.mul_(weights[of_rank, None]))
    table.copy_(before)
    return int((number > 0).sum())
