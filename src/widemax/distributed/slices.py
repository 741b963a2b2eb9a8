"""Tables whose rows are divided over processes: each holds some, and asks for the others."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from widemax.distributed.wire import Wire

_BLOCK_VALUES = 2**20
"""Values that are drawn at once where a slice is started: a multiple of 16, see ``started``."""


class Slices:
    """Which rows of a table each process holds: ⌈V / n⌉ consecutive ones, the last what is left.

    These are the parts of ``torch.chunk``, and so those of a ``DTensor`` that is cut by rows.

    >>> import torch.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> Slices(7, Wire()).own
    range(0, 7)
    >>> dist.destroy_process_group()
    """

    def __init__(self, num_rows: int, wire: Wire) -> None:
        self.num_rows, self.wire = num_rows, wire
        self.rows_each = -(-num_rows // wire.size)
        if self.rows_each * (wire.size - 1) >= num_rows:
            raise ValueError(
                f"{num_rows:,} rows, {self.rows_each:,} a process, are too few for {wire.size} "
                "processes: one would have none"
            )

    @property
    def own(self) -> range:
        """The rows of this process."""
        return self.of(self.wire.rank)

    def of(self, rank: int) -> range:
        """Return the rows of a process."""
        start = rank * self.rows_each
        return range(start, min(start + self.rows_each, self.num_rows))

    def sizes(self) -> list[int]:
        """Return how many rows each process has."""
        return [len(self.of(rank)) for rank in range(self.wire.size)]

    def inside(self, ids: Tensor) -> Tensor:
        """Return which ids are of rows of this process, like ``ids``."""
        return (ids >= self.own.start) & (ids < self.own.stop)

    def rows(self, own: Tensor, ids: Tensor) -> Tensor:
        """Return rows of the whole table, [*ids.shape, ...], whoever holds them; differentiable.

        ``own`` are the rows of this process, whose gradient holds those that anybody asked for.
        Each process asks for the distinct rows that it needs: ids to the holders, rows back, and
        in backward the sums of their gradients to the holders again. All processes call it
        together, and in backward meet in the same order.
        """
        rows: Tensor = _Rows.apply(own, ids, self)  # type: ignore[no-untyped-call]
        return rows

    @torch.no_grad()
    def answered(self, ids: Tensor, answer: Callable[[Tensor], Tensor]) -> Tensor:
        """Return what the holders answer for ids, like ``ids``; each is asked its own, from 0."""
        asked = _Asked.about(ids, self)
        found = self.wire.exchanged(answer(asked.wanted), asked.by, asked.of)
        return found.index_select(0, asked.place.reshape(-1)).view(ids.shape)

    def started(self, dimension: int, deviation: float, dtype: torch.dtype | None = None) -> Tensor:
        """Return new rows of this process, those that one process would have drawn for them.

        Nothing of the size of the whole table is allocated. torch draws normal numbers in groups of
        16, so that blocks of a multiple of 16 values are parts of one long draw.
        """
        own = torch.empty(len(self.own), dimension, dtype=dtype)
        # So many rows that their values come in groups of 16.
        least = 16 // math.gcd(16, dimension)
        block = max(least, _BLOCK_VALUES // dimension // least * least)
        if self.num_rows * dimension < 16 or self.num_rows <= 2 * block:
            drawn = torch.empty(self.num_rows, dimension, dtype=dtype).normal_(std=deviation)
            return own.copy_(drawn[self.own.start : self.own.stop])
        start = 0
        while start < self.num_rows:
            # The last block takes the rest in: one of fewer than 16 values would be drawn anew.
            last = self.num_rows - start < 2 * block
            stop = self.num_rows if last else start + block
            drawn = torch.empty(stop - start, dimension, dtype=dtype).normal_(std=deviation)
            first, end = max(start, self.own.start), min(stop, self.own.stop)
            if first < end:
                own[first - self.own.start : end - self.own.start] = drawn[
                    first - start : end - start
                ]
            start = stop
        return own


class _Asked(NamedTuple):
    """Which rows this process asks for, and which others ask of it."""

    place: Tensor
    """Where the row of each id stands among the distinct ones, like the ids."""
    wanted: Tensor
    """The rows of this process that are asked for, counted from its first, rank by rank."""
    of: list[int]
    """How many are asked of each process."""
    by: list[int]
    """How many each process asks for."""

    @classmethod
    def about(cls, ids: Tensor, slices: Slices) -> _Asked:
        """Ask the holders for the distinct ones of some ids."""
        wire = slices.wire
        distinct, place = torch.unique(ids, return_inverse=True)
        owners = distinct.div(slices.rows_each, rounding_mode="floor")
        # Distinct ids are sorted, and so stand by holder already.
        of: list[int] = torch.bincount(owners, minlength=wire.size).tolist()
        by = wire.numbers_exchanged(of)
        return cls(place, wire.exchanged(distinct, of, by) - slices.own.start, of, by)


class _Rows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, ids: Tensor, slices: Slices) -> Tensor:
        wire, asked = slices.wire, _Asked.about(ids, slices)
        found = wire.exchanged(own.index_select(0, asked.wanted), asked.by, asked.of)
        ctx.save_for_backward(asked.wanted, asked.place)
        ctx.wire, ctx.asked_of, ctx.asked_by, ctx.shape = wire, asked.of, asked.by, own.shape
        return found.index_select(0, asked.place.reshape(-1)).view(*ids.shape, *own.shape[1:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        wanted, place = ctx.saved_tensors
        sums = grad.new_zeros(sum(ctx.asked_of), *ctx.shape[1:])
        sums.index_add_(0, place.reshape(-1), grad.reshape(-1, *ctx.shape[1:]))
        values = ctx.wire.exchanged(sums, ctx.asked_of, ctx.asked_by)
        own = torch.sparse_coo_tensor(wanted[None], values, ctx.shape, check_invariants=False)
        return own, None, None


def summed(tensor: Tensor, wire: Wire) -> Tensor:
    """Return the sum over all processes, differentiable: each gets the sum of the gradients.

    That is right where the losses of all processes are added up.
    """
    total: Tensor = _Summed.apply(tensor, wire)  # type: ignore[no-untyped-call]
    return total


class _Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, wire: Wire) -> Tensor:
        ctx.wire = wire
        return wire.sum_(tensor.clone())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ctx.wire.sum_(grad.contiguous().clone()), None


def log_sum_over_ranks(log_sums: Tensor, wire: Wire) -> Tensor:
    """Return log Σ_r exp(x_r), [B], by a largest and a sum over all processes; differentiable."""
    total: Tensor = _LogSum.apply(log_sums, wire)  # type: ignore[no-untyped-call]
    return total


class _LogSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, log_sums: Tensor, wire: Wire) -> Tensor:
        largest = wire.max_(log_sums.clone()).clamp(min=torch.finfo(log_sums.dtype).min)
        total = wire.sum_((log_sums - largest).exp()).log() + largest
        ctx.save_for_backward(log_sums, total)
        ctx.wire = wire
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        log_sums, total = ctx.saved_tensors
        share = (log_sums - total.clamp(min=torch.finfo(total.dtype).min)).exp()
        return ctx.wire.sum_(grad.contiguous().clone()) * share, None
