"""What each user of a holdout is to be offered: looked up for many lists at once."""

from __future__ import annotations

import torch
from torch import Tensor

from widemax.data import Holdout, Sequences


class WantedTargets:
    """The distinct targets of each user, as sorted keys user·width + class."""

    def __init__(self, holdout: Holdout) -> None:
        self.users = len(holdout)
        self.width = int(holdout.targets.values.max()) + 1
        # A target that stands in the list twice is one target.
        self.keys: Tensor = torch.unique(self._keys(holdout.targets))

    @property
    def classes(self) -> Tensor:
        """The class of each target, int64 [T]."""
        return self.keys % self.width

    def per_user(self, chosen: Tensor | None = None) -> Tensor:
        """Return how many targets each user has, int64 [N], or how many that are chosen [T]."""
        owners = self.keys // self.width
        owners = owners if chosen is None else owners[chosen]
        return torch.bincount(owners, minlength=self.users)

    def found(self, rows: Tensor, ids: Tensor) -> Tensor:
        """Return which places of lists [B, k] for users [B] hold a target, bool [B, k]."""
        keys = rows[:, None] * self.width + ids
        # Classes that are nobody's target would be read as another user's.
        return self._places(keys)[1] & (ids >= 0) & (ids < self.width)

    def already_in(self, histories: Sequences) -> int:
        """Return how many targets their users had before."""
        had = torch.zeros(len(self.keys), dtype=torch.bool)
        places, is_there = self._places(self._keys(histories))
        had[places[is_there]] = True
        return int(had.sum())

    def _places(self, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Return where each key stands among the targets, and whether it does."""
        places = torch.searchsorted(self.keys, keys).clamp_(max=len(self.keys) - 1)
        return places, self.keys[places] == keys

    def _keys(self, sequences: Sequences) -> Tensor:
        owners = torch.arange(len(sequences)).repeat_interleave(sequences.lengths)
        known = sequences.values < self.width
        return owners[known] * self.width + sequences.values[known]
