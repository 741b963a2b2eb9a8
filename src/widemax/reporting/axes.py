"""Axes of a plot: where values stand, and which of them are labelled."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

_NICE = (1.0, 2.0, 2.5, 5.0, 10.0)
_MOST_DECADES = 6


@dataclass(frozen=True)
class Axis:
    """A range of values laid on a range of pixels, by their logarithms if ``log``."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def place(self, value: float) -> float:
        """Return the pixel of a value.

        >>> Axis(1, 100, 0, 200, log=True).place(10)
        100.0
        """
        low, high, value = (self._scaled(each) for each in (self.low, self.high, value))
        return self.start + (value - low) / (high - low) * (self.stop - self.start)

    def _scaled(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def ticks(self) -> list[float]:
        """Return the values to label.

        >>> Axis(0, 1, 0, 1).ticks()
        [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
        >>> Axis(3, 2000, 0, 1, log=True).ticks()
        [10.0, 100.0, 1000.0]
        >>> Axis(0.4, 12, 0, 1, log=True).ticks()
        [0.5, 1.0, 2.0, 5.0, 10.0]
        """
        return _decades(self.low, self.high) if self.log else _even(self.low, self.high)


def axis_of(
    values: Iterable[float],
    start: float,
    stop: float,
    *,
    log: bool = False,
    from_zero: bool = False,
) -> Axis:
    """Return an axis on which all values have room.

    >>> axis_of([1.0, 3.0], 0, 100, from_zero=True)
    Axis(low=0.0, high=3.15, start=0, stop=100, log=False)
    """
    there = [each for each in values if math.isfinite(each) and (each > 0 or not log)]
    low, high = (min(there), max(there)) if there else (1.0, 2.0)
    if log:
        margin = 10 ** (0.05 * (math.log10(high / low) or 1.0))
        return Axis(low / margin, high * margin, start, stop, True)
    low = min(low, 0.0) if from_zero else low
    margin = 0.05 * (high - low or abs(high) or 1.0)
    return Axis(low if from_zero else low - margin, high + margin, start, stop)


def label_of(value: float) -> str:
    """Return a number as a label has it.

    >>> [label_of(each) for each in (0.25, 219.5, 1000.0, 20_000.0, 1e6, 0.00012)]
    ['0.25', '219.5', '1,000', '20k', '1M', '0.00012']
    """
    for unit, sign in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= unit:
            return f"{value / (1e3 if sign == 'k' else unit):g}{sign}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.6g}"


def _even(low: float, high: float) -> list[float]:
    rough = (high - low) / 5
    unit = 10 ** math.floor(math.log10(rough))
    step = next(each * unit for each in _NICE if each * unit >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(place * step, 12) for place in range(first, last + 1)]


def _decades(low: float, high: float) -> list[float]:
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    every = max(1, math.ceil((last - first + 1) / _MOST_DECADES))
    found = [10.0**power for power in range(first, last + 1, every)]
    if len(found) > 2:
        return found
    powers = range(first - 1, last + 1)
    between = [each * 10.0**power for power in powers for each in (1, 2, 5)]
    return [each for each in between if low <= each <= high] or _even(low, high)
