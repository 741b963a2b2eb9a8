"""From group means of a noisy gradient to its bias, with the noise taken out."""

from __future__ import annotations

import math
from typing import NamedTuple, Self

import torch
from torch import Tensor

NUM_GROUPS = 20
"""Independent groups of draws: enough for an interval, few enough to keep in memory."""

_STUDENT_T = 2.093
"""The 97.5 % point of Student's t with NUM_GROUPS − 1 = 19 degrees of freedom."""

_HIDDEN_ERRORS = 3.0
"""How many standard errors of bias noise may cancel: with 3 the upper end misses 0 to 7 %."""

_SKETCH_ERRORS = 2.0
"""How many standard errors of a sketch the interval allows for, on both sides."""


class Interval(NamedTuple):
    """An estimate and the ends of its 95 % confidence interval."""

    value: float
    low: float
    high: float


class Moments(NamedTuple):
    """Inner products of d_k = (mean gradient of group k) − g*, summed over the rows.

    They add up over rows, so that parts of the examples are judged alone and together.
    """

    gram: Tensor
    """⟨d_j, d_k⟩, float64 [K, K]."""
    along: Tensor
    """⟨d_k, g*⟩, float64 [K]."""
    size: float
    """‖g*‖²."""
    squares: float = 0.0
    """Σ over the rows of (tr ⟨d_j, d_k⟩)²: how evenly the rows share the sum."""

    @classmethod
    def of(cls, means: Tensor, exact: Tensor) -> Self:
        """Return the moments of group means [R, K, W]; ``means`` is overwritten."""
        deviations = means.sub_(exact[:, None])
        grams = torch.bmm(deviations, deviations.mT).double()
        return cls(
            gram=grams.sum(0),
            along=torch.bmm(deviations, exact[:, :, None])[..., 0].double().sum(0),
            size=float(exact.double().square().sum()),
            squares=float(grams.diagonal(dim1=1, dim2=2).sum(1).square().sum()),
        )

    def plus(self, other: Self) -> Self:
        """Return the moments of the rows of both."""
        gram, along = self.gram + other.gram, self.along + other.along
        return type(self)(gram, along, self.size + other.size, self.squares + other.squares)

    @property
    def effective_rows(self) -> float:
        """How many rows of equal size would have this sum of squares."""
        return float(self.gram.trace()) ** 2 / self.squares if self.squares else 1.0


def relative_bias(moments: Moments, sketch_error: float = 0.0) -> Interval:
    """Return ‖E g − g*‖ / ‖g*‖ and its interval.

    The squared norm of a mean is too large by its variance; the mean of ⟨d_j, d_k⟩ over pairs of
    different, hence independent groups is not. Its error comes from leaving out one group at a
    time, which errs on the wide side (Efron & Stein 1981). A bias of the size of the noise may be
    hidden by it: the upper end allows for that much in the direction where noise is worst. Where
    the vectors are sketches, both ends allow for the error of those.
    """
    square = _mean_of_pairs(moments.gram)
    margin = _STUDENT_T * _jackknife_error(moments.gram)
    value = math.sqrt(max(0.0, square))
    low = math.sqrt(max(0.0, square - margin))
    hidden = _HIDDEN_ERRORS * _largest_error(moments.gram)
    high = max(math.sqrt(max(0.0, square + margin)), math.hypot(value, hidden))
    size, allowed = math.sqrt(moments.size), min(1.0, _SKETCH_ERRORS * sketch_error)
    return Interval(value / size, low * (1 - allowed) / size, high * (1 + allowed) / size)


def relative_spread(moments: Moments, draws_per_group: int) -> float:
    """Return sqrt(E ‖g − E g‖²) / ‖g*‖ of a single draw."""
    of_group_mean = float(moments.gram.diagonal().mean()) - _mean_of_pairs(moments.gram)
    return math.sqrt(max(0.0, of_group_mean) * draws_per_group / moments.size)


def cosine(moments: Moments) -> float:
    """Return the cosine between E g and g*, the noise of the mean taken out of its length."""
    along = float(moments.along.mean())
    square = moments.size + 2 * along + max(0.0, _mean_of_pairs(moments.gram))
    if square <= 0:
        return 0.0
    return max(-1.0, min(1.0, (moments.size + along) / math.sqrt(square * moments.size)))


def relative_length(moments: Moments) -> float:
    """Return ⟨E g, g*⟩ / ‖g*‖²: below 1 a step goes less far in the right direction."""
    return 1.0 + float(moments.along.mean()) / moments.size


def _mean_of_pairs(gram: Tensor) -> float:
    groups = len(gram)
    return float(gram.sum() - gram.trace()) / (groups * (groups - 1))


def _jackknife_error(gram: Tensor) -> float:
    """Return the standard error of the mean over pairs, from leaving out each group in turn."""
    groups = len(gram)
    with_others = gram.sum(1) - gram.diagonal()
    left_out = (with_others.sum() - 2 * with_others) / ((groups - 1) * (groups - 2))
    variance = (groups - 1) / groups * (left_out - left_out.mean()).square().sum()
    return math.sqrt(float(variance))


def _largest_error(gram: Tensor) -> float:
    """Return at least the standard error of the mean gradient in its worst direction.

    With Σ the covariance of d_k, ⟨d_j, d_k⟩ less what depends on j or k alone has variance tr Σ²,
    and no eigenvalue of Σ is above sqrt(tr Σ²).
    """
    groups = len(gram)
    means = (gram.sum(1) - gram.diagonal()) / (groups - 1)
    effects = (means - means.mean()) * ((groups - 1) / (groups - 2))
    rest = (gram - means.mean() - effects - effects[:, None]).fill_diagonal_(0.0)
    square = float(rest.square().sum()) / (groups * (groups - 3))
    return math.sqrt(math.sqrt(square) / groups)
