"""A learning rate from a range test: a short training by growing rates, whose losses say which."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from widemax.training.guard import NonFiniteError

RANGE_STEPS = 100
"""Steps of a range test."""
LOWEST_RATE, HIGHEST_RATE = 1e-5, 10.0
"""The rates of its first and last step."""
BELOW_HALFWAY = 2.0
"""How many times lower the chosen rate is than that at which half of the fall is done."""

_WIDTH = 5.0
"""Steps over which losses are averaged, to either side: as the standard deviation of a Gauss."""
_SPOILT = 3.0
"""How many times the first loss ends a test: from there on nothing is learned any more."""


@dataclass(frozen=True, kw_only=True)
class RangeTest:
    """The losses of a short training by growing rates, and the rate that they speak for."""

    rates: list[float]
    """The learning rate of each step that was taken."""
    losses: list[float]
    """The mean loss of its batch, before the update by that rate."""

    @property
    def halfway(self) -> float:
        """The first rate at which half is done of what the averaged loss ever falls.

        Not where it is lowest: a loss that lies flat, as it does once a model has learned which
        classes are frequent, is lowest anywhere within two decades.
        """
        smooth = smoothed(self.losses)
        middle = (smooth[0] + min(smooth)) / 2
        if middle >= smooth[0]:
            raise ValueError(
                "learning_rate cannot be found: the loss never fell in a range test of "
                f"{len(self.losses)} steps; give a number"
            )
        return next(rate for rate, loss in zip(self.rates, smooth, strict=True) if loss <= middle)

    @property
    def rate(self) -> float:
        """The rate to train with, of two figures: half of the rate ``halfway``."""
        return float(f"{self.halfway / BELOW_HALFWAY:.1e}")


def range_test(
    take: Callable[[int, float], float],
    *,
    steps: int = RANGE_STEPS,
    lowest: float = LOWEST_RATE,
    highest: float = HIGHEST_RATE,
    on_step: Callable[[int], None] = lambda step: None,
) -> RangeTest:
    """Train for a few steps by rates that grow by the same factor, after Smith (2017).

    ``take`` does a step by a rate and returns the loss of its batch. The test ends early where
    losses are not finite or three times the first; what it trains is spoilt and to be thrown away.
    Where not even ten steps are left, the model cannot be trained as it is.

    >>> weight = [4.0]
    >>> def take(step: int, rate: float) -> float:
    ...     loss = weight[0] ** 2 / 2
    ...     weight[0] -= rate * weight[0]
    ...     return loss
    >>> range_test(take).rate
    0.025
    """
    growth = (highest / lowest) ** (1 / (steps - 1))
    rates: list[float] = []
    losses: list[float] = []
    for step in range(steps):
        rate = lowest * growth**step
        try:
            loss = take(step, rate)
        except NonFiniteError:
            break
        if not math.isfinite(loss):
            break
        rates.append(rate)
        losses.append(loss)
        if loss > losses[0] + (_SPOILT - 1) * abs(losses[0]):
            break
        on_step(step + 1)
    if len(losses) < 10:
        raise ValueError(
            f"learning_rate cannot be found: a range test came to {len(losses)} of {steps} steps "
            f"before losses were not finite, or {_SPOILT:g} times the first; give a number"
        )
    return RangeTest(rates=rates, losses=losses)


def smoothed(losses: list[float]) -> list[float]:
    """Return each loss averaged with its neighbours, near ones above all; nothing lags behind.

    >>> [round(each, 2) for each in smoothed([9.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])]
    [1.52, 1.35, 1.19, 1.04, 0.91, 0.78, 0.67, 0.57]
    """
    found = []
    for place in range(len(losses)):
        weights = [math.exp(-(((other - place) / _WIDTH) ** 2) / 2) for other in range(len(losses))]
        total = sum(weight * loss for weight, loss in zip(weights, losses, strict=True))
        found.append(total / sum(weights))
    return found
