"""When a training has done enough: how sure its validations are, and whether they still rise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

_FEWEST = 6
"""Validations from which on a curve can be said to rise."""
_LEAST_RISE = 0.01
"""A rise over the last third of less than this is not worth to go on for."""


class Validation(dict[str, float]):
    """The metrics of a model by name, and of each question the one that decides."""

    def __init__(self, metrics: Mapping[str, float], per_question: Tensor | None = None) -> None:
        super().__init__(metrics)
        self.per_question = per_question


class Difference(NamedTuple):
    """The mean of some differences, and its standard error."""

    mean: float
    error: float

    @classmethod
    def of(cls, values: Tensor) -> Difference:
        """Take one difference for each question, [N].

        Between two checkpoints on the same questions it varies much less than either does.

        >>> import torch
        >>> Difference.of(torch.tensor([0.0, 0.0, 1.0, 1.0], dtype=torch.float64))
        Difference(mean=0.5, error=0.288...)
        """
        if len(values) < 2 or not bool(values.isfinite().all()):
            return cls(float(values.mean()), math.inf)
        return cls(float(values.mean()), float(values.std()) / math.sqrt(len(values)))


def rise(curve: Sequence[tuple[int, float]]) -> float | None:
    """Return by which share a metric rose over the last third of its curve; None if it did not.

    ``curve`` are steps and values, larger being better. A line is fitted to the last third of the
    steps; its rise must be at least 1 % of their mean and twice its own standard error.

    >>> rise([(step, 1 - 1 / step) for step in range(1, 10)])
    0.06...
    >>> rise([(step, 0.5) for step in range(1, 10)])
    """
    last = curve[-1][0] if curve else 0
    part = [each for each in curve if each[0] >= last * 2 / 3]
    if len(curve) < _FEWEST or len(part) < 3:
        return None
    steps, values = (torch.tensor(each, dtype=torch.float64) for each in zip(*part, strict=True))
    centred = steps - steps.mean()
    slope = float((centred @ values) / (centred @ centred))
    left = values - values.mean() - slope * centred
    error = math.sqrt(float(left @ left) / (len(part) - 2) / float(centred @ centred))
    level = abs(float(values.mean()))
    share = slope * float(steps[-1] - steps[0]) / level if level else 0.0
    return share if share >= _LEAST_RISE and slope > 2 * error else None
