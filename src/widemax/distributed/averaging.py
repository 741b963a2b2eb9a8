"""Copies of a table that several processes trained apart, brought together again."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widemax.distributed.wire import Wire
from widemax.kernels.models.row_moves import add_moves, pack_moves

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
    learned there. Only rows that were touched are sent, as numbers of 16 bits; how many in all is
    returned.

    >>> import torch.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> before = torch.zeros(3, 2)
    >>> table = torch.tensor([[0.0, 0.0], [1.0, 2.0], [0.0, 0.0]])
    >>> average_rows(table, before, Wire()), before[1].round(decimals=3).tolist()
    (1, [1.0, 2.0])
    >>> dist.destroy_process_group()
    """
    rows, before_rows = table.numpy(), before.numpy()
    ids, units, numbers = _moves(rows, before_rows)
    sizes = wire.sizes(len(ids))
    all_ids = wire.sent_to_all(ids, sizes)
    number = torch.bincount(torch.cat(all_ids), minlength=len(table))
    touching = number.clamp(min=1).to(table.dtype)
    weights = (touching.clamp(max=_GAIN) / touching).numpy()
    moves = zip(
        all_ids, wire.sent_to_all(units, sizes), wire.sent_to_all(numbers, sizes), strict=True
    )
    # By the ranks, so that all processes add in the same order and get the same bits.
    for own_ids, own_units, own_numbers in moves:
        packed = own_numbers.numpy().view(np.int16)
        add_moves(before_rows, own_ids.numpy(), own_units.numpy(), packed, weights)
    np.copyto(rows, before_rows)
    return int((number > 0).sum())


def _moves(table: NDArray[np.float32], before: NDArray[np.float32]) -> tuple[Tensor, ...]:
    """Return the ids of the rows that moved, the unit of each and how many units its values did."""
    size, width = table.shape
    ids, units = np.empty(size, np.int64), np.empty(size, np.float32)
    numbers, row = np.empty((size, width), np.int16), np.empty(width, np.float32)
    moved = pack_moves(table, before, row, row.view(np.int32), ids, units, numbers)
    packed = (ids[:moved], units[:moved], numbers[:moved].view(np.uint8))
    return tuple(torch.from_numpy(each) for each in packed)
