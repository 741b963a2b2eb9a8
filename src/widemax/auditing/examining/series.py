"""How bias and variance fall with the number of samples: figures, and the slopes of their lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from widemax.auditing.measuring.report import AuditReport

_STUDENT_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""97.5 % points of Student's t with 1 to 10 degrees of freedom."""


@dataclass(frozen=True, kw_only=True)
class Slope:
    """The slope of log y against log x by least squares, with its 95 % confidence interval.

    >>> slope = Slope.fitted([16, 64, 256], [0.4, 0.1, 0.025])
    >>> round(slope.value, 6), round(slope.high - slope.low, 6)
    (-1.0, 0.0)
    """

    value: float
    """−1 where y falls like 1/x."""
    low: float
    """The low end, by the scatter of the points around the line."""
    high: float
    """The high end."""
    points: int
    """Points that the line is fitted to."""

    @classmethod
    def fitted(cls, x: Sequence[float], y: Sequence[float]) -> Slope | None:
        """Return the slope of three points or more; None: there are fewer."""
        if len(x) < 3:
            return None
        across, up = ([math.log(each) for each in values] for values in (x, y))
        middle, height = sum(across) / len(across), sum(up) / len(up)
        width = sum((each - middle) ** 2 for each in across)
        pairs = list(zip(across, up, strict=True))
        value = sum((a - middle) * (b - height) for a, b in pairs) / width
        rest = sum((b - height - value * (a - middle)) ** 2 for a, b in pairs)
        freedom = len(x) - 2
        margin = math.sqrt(rest / freedom / width)
        margin *= _STUDENT_T[min(freedom, len(_STUDENT_T)) - 1]
        return cls(value=value, low=value - margin, high=value + margin, points=len(x))


@dataclass(frozen=True, kw_only=True)
class SampleSeries:
    """Audits of one head with several numbers of samples."""

    num_samples: tuple[int, ...]
    """Rising."""
    reports: tuple[AuditReport, ...]
    """What was found with each."""

    @property
    def bias_slope(self) -> Slope | None:
        """How the bias falls; numbers at which noise hides it are left out."""
        seen = [
            (size, report.bias)
            for size, report in zip(self.num_samples, self.reports, strict=True)
            if report.bias_low > 0
        ]
        return Slope.fitted([size for size, _ in seen], [bias for _, bias in seen])

    @property
    def variance_slope(self) -> Slope | None:
        """How the variance of one step, the square of its spread, falls."""
        seen = [
            (size, report.spread**2)
            for size, report in zip(self.num_samples, self.reports, strict=True)
            if report.spread > 0
        ]
        return Slope.fitted([size for size, _ in seen], [variance for _, variance in seen])
