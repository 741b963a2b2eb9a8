"""What a step of training is, and the options that several trainers have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from widemax.declarations import Option

LENGTH, MACHINE = "Length of the run", "Checkpoints and machine"
"""Headings under which options of trainers stand."""


class Steps(Protocol):
    """Training cut into steps, each determined by its number."""

    model: nn.Module
    per_epoch: int

    def take(self, step: int, learning_rate: float) -> None:
        """Do step ``step``, counted from 0 over all epochs."""

    def publish(self) -> None:
        """Bring the parameters of the model up to date, before they are read."""

    def state(self) -> dict[str, Any]:
        """Return all that the next step depends on and the model does not hold."""

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go back to a state; the model has been loaded already."""


class Examples(Protocol):
    """Examples that can be counted and taken in batches."""

    def __len__(self) -> int: ...

    def batch(self, rows: Tensor) -> Any:
        """Return the examples of some rows."""


LEARNING_RATE = Option(
    "learning_rate", 0.001, "The learning rate after the warm-up.", least=1e-12, most=1000.0
)
SCHEDULE = Option(
    "schedule",
    "constant",
    "How the learning rate falls towards the end.",
    choices=("constant", "linear", "cosine"),
)
WARMUP_STEPS = Option(
    "warmup_steps", 0, "Steps over which the learning rate rises from 0.", most=10**12
)
EPOCHS = Option(
    "epochs", 10, "Passes over the data.", least=1, most=1_000_000, unless="steps", group=LENGTH
)
STEPS = Option(
    "steps",
    0,
    "Steps to train for; 0 trains for --epochs.",
    most=10**12,
    group=LENGTH,
)
DEVICE = Option(
    "device",
    "cpu",
    "Where steps are computed; auto is a GPU if torch finds one. Validation and checkpoints stay "
    "on the CPU.",
    choices=("auto", "cpu", "cuda", "mps"),
    group=MACHINE,
)


def check_on_host(device: str, what: str) -> None:
    """Refuse a device other than the CPU for what runs on no other."""
    if device not in ("auto", "cpu"):
        raise ValueError(f"device must be cpu or auto, got {device!r}: {what}")


def shuffled(num_rows: int, seed: int, epoch: int) -> Tensor:
    """Return the order of the rows in an epoch, the same whenever it is asked for."""
    seeded = torch.Generator().manual_seed((seed * 1_000_003 + epoch) % 2**63)
    return torch.randperm(num_rows, generator=seeded)
