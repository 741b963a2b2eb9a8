"""Training in one step, by counting or in closed form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from widemax.data import Sequences
from widemax.declarations import Need, Setup, declare
from widemax.training.steps import DEVICE, check_on_host


@declare.trainer(
    "fit",
    options=[DEVICE],
    needs=[Need("model", trait="fitted", why="fits in one go")],
)
class FitSteps:
    """Fits a model in one step, by counting or in closed form."""

    def __init__(self, model: Any, sequences: Sequences) -> None:
        self.model: nn.Module = model
        self._model, self._sequences = model, sequences
        self.per_epoch = 1

    @classmethod
    def build(cls, setup: Setup, model: Any) -> FitSteps:
        """Return how a run fits its model: on all it trains on."""
        check_on_host(setup.options.device, "models that are fitted in one go run on the CPU")
        return cls(model, setup.corpus)

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
