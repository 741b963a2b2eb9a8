"""What experiments share: where the data are, a part to watch a training by, a state to keep."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import Tensor, nn

from widemax.data import Holdout

DATA = Path(os.environ.get("WIDEMAX_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
"""No part of this repository."""


def some_users(asked: Holdout, count: int) -> Holdout:
    """A random choice of questions, the same each time, to watch a training by."""
    order = torch.randperm(len(asked), generator=torch.Generator().manual_seed(0))
    rows = order[:count]
    return Holdout(asked.histories.chosen(rows), asked.targets.chosen(rows), asked.users[rows])


def state_of(model: nn.Module) -> dict[str, Tensor]:
    """A copy of the state, which training leaves as it is."""
    return {name: value.clone() for name, value in model.state_dict().items()}
