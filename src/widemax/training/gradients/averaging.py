"""Running means of the weights: what is judged and kept, beside the weights that are trained."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from widemax.validation import check_fraction


class RunningMean:
    """The running mean of a model's parameters over the steps of its training.

    After step t, m ← d·m + (1 − d)·w with d = min(decay, (1 + t) / (10 + t)), so that the first
    steps, far from where they lead, are soon forgotten. Steps at a constant rate go around the
    place where they lead: their mean is nearer to it (Polyak & Juditsky 1992).

    A step costs one pass over all parameters, also over rows of tables that it did not touch.

    >>> model = nn.Linear(1, 1, bias=False)
    >>> mean = RunningMean(model, 0.9)
    >>> for step in range(200):
    ...     _ = model.weight.data.fill_((-1.0) ** step)
    ...     mean.update(step)
    >>> mean.show()
    >>> bool(model.weight.abs() < 0.1)
    True
    >>> mean.hide()
    >>> model.weight.item()
    -1.0
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = check_fraction("decay", decay)
        self._parameters = dict(model.named_parameters())
        self._means = [each.detach().clone() for each in self._parameters.values()]
        self._trained: list[Tensor] | None = None

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take the parameters of a step into the mean."""
        weight = 1 - min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self._means, [*self._parameters.values()], weight)

    @torch.no_grad()
    def show(self) -> None:
        """Give the model the means as its parameters, until ``hide``."""
        if self._trained is None:
            self._trained = [each.detach().clone() for each in self._parameters.values()]
            self._copy(self._means)

    @torch.no_grad()
    def hide(self) -> None:
        """Give the model the parameters back that are trained."""
        if self._trained is not None:
            self._copy(self._trained)
            self._trained = None

    def state(self) -> dict[str, Tensor]:
        """Return the parameters that are trained; the model has the means while they are shown."""
        if self._trained is None:
            raise ValueError("the means must be shown when the model is saved")
        return dict(zip(self._parameters, self._trained, strict=True))

    @torch.no_grad()
    def load_state(self, trained: Mapping[str, Tensor]) -> None:
        """Go back to a state, the model having been loaded with the means."""
        self._means = [each.detach().clone() for each in self._parameters.values()]
        self._trained = [trained[name].clone() for name in self._parameters]

    def _copy(self, values: list[Tensor]) -> None:
        for parameter, value in zip(self._parameters.values(), values, strict=True):
            parameter.copy_(value)
