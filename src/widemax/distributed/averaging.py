"""Copies of a table that several processes trained apart, brought together again."""

from __future__ import annotations

import torch
from torch import Tensor

from widemax.distributed.wire import Wire


@torch.no_grad()
def average_rows(table: Tensor, before: Tensor, wire: Wire) -> int:
    """Move each row by the mean of what it moved in the processes that touched it.

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
    touched = (table != before).any(1).nonzero()[:, 0]
    sizes = wire.sizes(len(touched))
    ids = torch.cat(wire.gathered(touched, sizes))
    moved = torch.cat(wire.gathered(table[touched] - before[touched], sizes))
    distinct, place, number = torch.unique(ids, return_inverse=True, return_counts=True)
    sums = moved.new_zeros(len(distinct), table.shape[1]).index_add_(0, place, moved)
    rows = before[distinct] + sums / number[:, None]
    table[distinct] = rows
    before[distinct] = rows
    return len(distinct)
