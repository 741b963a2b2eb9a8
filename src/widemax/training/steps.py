"""What a step of training is: here by gradients; kernels bring steps of their own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from widemax.data import Sequences
from widemax.optim import clip_grad_norm_
from widemax.training.guard import check_finite


class Steps(Protocol):
    """Training cut into steps, each told apart by its number alone."""

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


class GradientSteps:
    """A batch, its losses, their gradient, the optimiser: one step of any torch model.

    The rows of epoch e are a permutation seeded by (seed, e), so the step alone says which batch
    comes next. Draws of samplers come from a generator of its own, dropout from torch's; both are
    part of the state.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        examples: Examples,
        *,
        batch_size: int,
        seed: int = 0,
        clip_norm: float = 0.0,
    ) -> None:
        if not len(examples):
            raise ValueError("there are no examples to train on")
        self.model, self.optimizer, self.examples = model, optimizer, examples
        self.batch_size, self.seed, self.clip_norm = batch_size, seed, clip_norm
        self.per_epoch = math.ceil(len(examples) / batch_size)
        self.generator = torch.Generator().manual_seed(seed)
        self._order: tuple[int, Tensor] | None = None

    def take(self, step: int, learning_rate: float) -> None:
        """Train on the batch of this step."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.model.train()
        self.optimizer.zero_grad()
        losses = self.model(self.examples.batch(self._rows(step)), generator=self.generator)
        losses.mean().backward()
        check_finite(self.model, losses, step=step)
        if self.clip_norm:
            clip_grad_norm_(self.model.parameters(), self.clip_norm)
        self.optimizer.step()

    def _rows(self, step: int) -> Tensor:
        epoch, place = divmod(step, self.per_epoch)
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, shuffled(len(self.examples), self.seed, epoch)
        start = place * self.batch_size
        return self._order[1][start : start + self.batch_size]

    def publish(self) -> None:
        """Do nothing: the optimiser works on the parameters themselves."""

    def state(self) -> dict[str, Any]:
        """Return the state of the optimiser and of the generators."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
            "torch": torch.get_rng_state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go back to a state."""
        self.optimizer.load_state_dict(state["optimizer"])
        self.generator.set_state(state["generator"])
        torch.set_rng_state(state["torch"])


@runtime_checkable
class Fitted(Protocol):
    """A model that is fitted in one go instead of trained step by step."""

    def fit(self, sequences: Sequences) -> None:
        """Fit to all sequences; what was fitted before is forgotten."""


class FitSteps:
    """The only step of a model that is counted instead of trained."""

    def __init__(self, model: Any, sequences: Sequences) -> None:
        self.model: nn.Module = model
        self._model, self._sequences = model, sequences
        self.per_epoch = 1

    def take(self, step: int, learning_rate: float) -> None:
        """Count."""
        self._model.fit(self._sequences)

    def publish(self) -> None:
        """Do nothing: what was counted is in the model."""

    def state(self) -> dict[str, Any]:
        """Return nothing: the model is all."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Do nothing."""


def shuffled(num_rows: int, seed: int, epoch: int) -> Tensor:
    """Return the order of the rows in an epoch, the same whenever it is asked for."""
    seeded = torch.Generator().manual_seed((seed * 1_000_003 + epoch) % 2**63)
    return torch.randperm(num_rows, generator=seeded)
