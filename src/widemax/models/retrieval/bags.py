"""Users whose items have no order: each item predicted from all the others, a few to a row."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from widemax.data import Sequences
from widemax.data.sequences import offsets_of, places_of
from widemax.kernels.data.slices import joined_slices
from widemax.validation import ABSENT, check_whole


@dataclass(frozen=True, eq=False)
class BagBatch:
    """Some users' items, and targets that are among them."""

    bags: Tensor
    """Int64 [U, H], padded with -1."""
    targets: Tensor
    """Int64 [B]."""
    owners: Tensor
    """Int64 [B], the row in ``bags`` of each target."""
    users: Tensor
    """Int64 [B], the user of each target."""


class Bags:
    """Each item of a user as a target, predicted from all their others: a few targets to a row.

    What a row costs is the reading of the user's items, which its targets share. Of a user with
    more than ``max_history`` items others are read for each row, those around its targets.

    >>> log = Sequences.from_lists([[4, 0, 2], [1], [3, 5]])
    >>> bags = Bags(log, targets_per_row=2, max_history=9)
    >>> batch = bags.batch(torch.arange(len(bags)))
    >>> batch.targets.tolist(), batch.owners.tolist(), batch.users.tolist()
    ([4, 0, 2, 3, 5], [0, 0, 1, 2, 2], [0, 0, 0, 2, 2])
    >>> batch.bags.tolist()
    [[4, 0, 2], [4, 0, 2], [3, 5, -1]]
    """

    positions = None

    def __init__(self, sequences: Sequences, *, targets_per_row: int, max_history: int) -> None:
        self.sequences = sequences
        self.length = check_whole("targets_per_row", targets_per_row, 1, 2**16)
        self.max_history = max(max_history, self.length)
        # A single item has no others to be predicted from.
        rows = torch.where(sequences.lengths > 1, -(-sequences.lengths // self.length), 0)
        self._users = torch.arange(len(sequences)).repeat_interleave(rows)
        within = torch.arange(len(self._users)) - offsets_of(rows)[:-1].repeat_interleave(rows)
        self._starts = sequences.offsets[self._users] + within * self.length
        ends = sequences.offsets[self._users + 1]
        self.num_targets = (ends - self._starts).clamp(max=self.length)

    def __len__(self) -> int:
        return len(self._users)

    def places(self, rows: Tensor) -> Tensor:
        """Return where in ``sequences.values`` the targets of some rows stand."""
        return places_of(self._starts[rows], self.num_targets[rows])

    def batch(self, rows: Tensor) -> BagBatch:
        """Return the examples ``rows`` [U], each a few targets of one user."""
        users, starts, lengths = self._users[rows], self._starts[rows], self.num_targets[rows]
        values, offsets = self.sequences.values, self.sequences.offsets
        targets = torch.from_numpy(joined_slices(values.numpy(), starts.numpy(), lengths.numpy()))
        owners = torch.arange(len(rows)).repeat_interleave(lengths)
        first, last = offsets[users], offsets[users + 1]
        sizes = (last - first).clamp(max=self.max_history)
        # Of too many items a stretch that holds the targets.
        begin = torch.minimum(torch.maximum(starts - self.max_history // 2, first), last - sizes)
        places = torch.arange(int(sizes.max()) if len(sizes) else 0)
        bags = values[(begin[:, None] + places).clamp(max=len(values) - 1)]
        bags = bags.masked_fill(places >= sizes[:, None], ABSENT)
        return BagBatch(bags, targets, owners, users[owners])
