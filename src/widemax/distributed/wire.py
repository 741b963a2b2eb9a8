"""Tensors between processes, with as many rows as each has, and how many bytes that takes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable


class Wire:
    """The collectives of a process group that this package uses, all on one count of bytes.

    All processes of the group call the same methods in the same order. ``bytes_sent`` counts what
    this process hands to the others: of a gathered tensor a copy for each of them, of a sum the
    2·(n − 1)/n of it that the best algorithms send, of an exchange what is not for itself.
    ``rounds`` counts how often messages wait for others: round a ring n − 1 times, for a sum twice
    that, in an exchange once.

    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> Wire().gathered(torch.tensor([3, 1]))
    [tensor([3, 1])]
    >>> dist.destroy_process_group()
    """

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        if not dist.is_initialized():
            raise RuntimeError(
                "a process group is needed: call torch.distributed.init_process_group first, or "
                "start by torchrun"
            )
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.bytes_sent = self.rounds = 0

    def sizes(self, number: int) -> list[int]:
        """Return a whole number of each process."""
        own = torch.tensor([number])
        return [int(each) for each in self._all_gather(own)]

    def gathered(self, rows: Tensor, sizes: Sequence[int] | None = None) -> list[Tensor]:
        """Return the rows of each process, [N_r, ...], of which it has as many as it likes.

        ``sizes`` are those numbers, where they are known.
        """
        sizes = self.sizes(len(rows)) if sizes is None else sizes
        longest = max(sizes)
        if longest > len(rows):
            rows = torch.cat([rows, rows.new_zeros(longest - len(rows), *rows.shape[1:])])
        parts = self._all_gather(rows.contiguous())
        return [part[:size] for part, size in zip(parts, sizes, strict=True)]

    def sent_to_all(self, rows: Tensor, sizes: Sequence[int]) -> list[Tensor]:
        """Return what ``gathered`` does, from one process after the other.

        Megabytes take a third of the time so, as they are copied less often on the way; small
        tensors take longer.
        """
        rows = rows.contiguous()
        parts = [rows.new_empty(size, *rows.shape[1:]) for size in sizes]
        parts[self.rank] = rows
        for rank, part in enumerate(parts):
            if len(part):
                dist.broadcast(part, group=self.group, group_src=rank)
        self.bytes_sent += rows.nbytes * (self.size - 1)
        self.rounds += self.size
        return parts

    def sum_(self, tensor: Tensor) -> Tensor:
        """Make a tensor the sum of those of all processes, and return it."""
        self._reduce(tensor, dist.ReduceOp.SUM)
        return tensor

    def max_(self, tensor: Tensor) -> Tensor:
        """Make a tensor the largest of those of all processes, and return it."""
        self._reduce(tensor, dist.ReduceOp.MAX)
        return tensor

    def exchanged(self, rows: Tensor, to: Sequence[int], of: Sequence[int]) -> Tensor:
        """Return the rows that the others have for this process, by rank.

        Of ``rows`` the first ``to[0]`` are for rank 0, the next ``to[1]`` for rank 1; ``of`` are
        the numbers that come.
        """
        taken = rows.new_empty(sum(of), *rows.shape[1:])
        dist.all_to_all_single(taken, rows.contiguous(), list(of), list(to), group=self.group)
        width = rows.element_size() * rows[:1].numel() if len(rows) else 0
        self.bytes_sent += width * (sum(to) - to[self.rank])
        self.rounds += 1
        return taken

    def numbers_exchanged(self, numbers: Sequence[int]) -> list[int]:
        """Return what each process says to this one, having said ``numbers[r]`` to rank r."""
        ones = [1] * self.size
        found: list[int] = self.exchanged(torch.tensor(numbers), ones, ones).tolist()
        return found

    def _all_gather(self, tensor: Tensor) -> list[Tensor]:
        parts = [torch.empty_like(tensor) for _ in range(self.size)]
        dist.all_gather(parts, tensor, group=self.group)
        self.bytes_sent += tensor.nbytes * (self.size - 1)
        self.rounds += self.size - 1
        return parts

    def _reduce(self, tensor: Tensor, by: Any) -> None:
        dist.all_reduce(tensor, by, group=self.group)
        self.bytes_sent += 2 * (self.size - 1) * tensor.nbytes // self.size
        self.rounds += 2 * (self.size - 1)


def gathered_rows(rows: Tensor, wire: Wire) -> Tensor:
    """Return the rows of all processes, [N, ...], those of rank 0 first, differentiable.

    Where the losses of all processes are added up, the gradient of a row is that of their sum.

    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> rows = torch.ones(2, 3, requires_grad=True)
    >>> gathered_rows(rows, Wire()).sum().backward()
    >>> rows.grad.sum().item()
    6.0
    >>> dist.destroy_process_group()
    """
    gathered: Tensor = _Gathered.apply(rows, wire)  # type: ignore[no-untyped-call]
    return gathered


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, wire: Wire) -> Tensor:
        ctx.wire, ctx.sizes = wire, wire.sizes(len(rows))
        return torch.cat(wire.gathered(rows, ctx.sizes))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        wire, sizes = ctx.wire, ctx.sizes
        own = sizes[wire.rank]
        parts = wire.exchanged(grad, sizes, [own] * wire.size)
        # Added in the order of the ranks: the same bits whenever it is done again.
        return parts.view(wire.size, own, *grad.shape[1:]).sum(0), None


def starts(sizes: Sequence[int]) -> list[int]:
    """Return where the part of each process begins, and where the last ends.

    >>> starts([2, 0, 3])
    [0, 2, 2, 5]
    """
    return [0, *accumulate(sizes)]
