"""Which rows are in a batch: of even size, or of one part of the data."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def even_batches(rows: Tensor, num_targets: Tensor, count: int) -> list[Tensor]:
    """Return the rows in ``count`` batches, at most as many as rows, of about as many targets each.

    A row belongs to the batch in whose share of all targets its middle lies; none is left empty.

    >>> even_batches(torch.arange(5), torch.tensor([4, 1, 1, 2, 4]), 3)
    [tensor([0]), tensor([1, 2, 3]), tensor([4])]
    """
    sizes = num_targets[rows]
    ends = sizes.cumsum(0)
    # Twice the middles, times the number of batches, so that all are whole numbers.
    middles, total = (2 * ends - sizes) * count, int(ends[-1])
    batches = torch.arange(count)
    starts = torch.searchsorted(middles, 2 * total * batches)
    starts = (starts - batches).cummax(0).values + batches
    starts = torch.minimum(starts, len(rows) - count + batches)
    return list(torch.tensor_split(rows, starts[1:]))


class Parts:
    """Consecutive parts of the data of which a batch may not hold more than one.

    A sampler that lists the classes of the part its targets come from must know which part it is.
    """

    def __init__(self, sampler: Any, part_of: Tensor) -> None:
        self.sampler, self.part_of = sampler, part_of
        self.sizes: list[int] = torch.bincount(part_of).tolist()

    @classmethod
    def of(cls, sampler: Any, examples: Any) -> Parts | None:
        """Return the parts by which a sampler and examples of a run are cut; None: there are none.

        The ranges of the sampler are of the positions that the examples were cut from.
        """
        ranges = getattr(sampler, "ranges", ())
        if not ranges:
            return None
        if getattr(examples, "num_targets", None) is not None:
            raise ValueError("a sampler by parts of the data needs one target an example")
        positions = examples.positions
        if positions is None:
            positions = torch.arange(len(examples))
        ends = torch.tensor([stop for _, stop in ranges])
        return cls(sampler, torch.bucketize(positions, ends, right=True))

    def select(self, rows: Tensor) -> None:
        """Tell the sampler which part the rows of a batch come from."""
        self.sampler.select(int(self.part_of[rows[0]]))

    def grouped(self, rows: Tensor) -> list[Tensor]:
        """Return the rows part by part: parts in the order of their first row, each shuffled."""
        parts = self.part_of[rows]
        ordered = rows[parts.argsort(stable=True)]
        groups = [group for group in torch.split(ordered, self.sizes) if len(group)]
        place = torch.empty_like(rows)
        place[rows] = torch.arange(len(rows))
        return sorted(groups, key=lambda group: int(place[group[0]]))
