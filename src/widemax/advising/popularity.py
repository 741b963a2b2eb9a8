"""How often classes are targets: a curve over ranks, small whatever the number of classes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widemax.limits import check_whole

MAX_CLASSES = 2**40
"""Most classes that a plan is made for."""

_ALONE = 1024
_GROUPS = 512


@dataclass(frozen=True, eq=False)
class Popularity:
    """Shares of the targets by rank, the first ranks alone, the others in groups that grow.

    >>> curve = Popularity.zipf(10_000)
    >>> round(curve.entropy_bits, 2), round(curve.top_share(0.1), 2)
    (9.53, 0.76)
    >>> round(curve.distinct(1000))
    512
    """

    sizes: NDArray[np.float64]
    """Classes of each group, [G]."""
    shares: NDArray[np.float64]
    """The mean share of the targets that a class of the group has, [G]; 0 for one never seen."""

    @classmethod
    def zipf(cls, num_classes: int, exponent: float = 1.0) -> Popularity:
        """Return the curve where the share of rank r is 1 / r^exponent of the first one's."""
        edges = _edges(check_whole("classes", num_classes, 1, MAX_CLASSES))
        low, high = edges[:-1] + 0.5, edges[1:] + 0.5
        if exponent == 1.0:
            mass = np.log(high / low)
        else:
            mass = (high ** (1 - exponent) - low ** (1 - exponent)) / (1 - exponent)
        sizes = np.diff(edges)
        # A rank of its own needs no integral.
        alone = sizes == 1
        mass[alone] = edges[1:][alone] ** -exponent
        return cls(sizes, mass / sizes / mass.sum())

    @classmethod
    def from_counts(cls, counts: Any) -> Popularity:
        """Return the curve of counts [V], in any order.

        >>> round(Popularity.from_counts([1, 2, 1]).entropy_bits, 2)
        1.5
        """
        ordered = np.sort(np.asarray(counts, dtype=np.float64))[::-1]
        check_whole("classes", len(ordered), 1, MAX_CLASSES)
        edges = _edges(len(ordered)).astype(np.int64)
        mass = np.add.reduceat(ordered, edges[:-1])
        sizes = np.diff(edges).astype(np.float64)
        total = mass.sum()
        # Of classes that nobody counted all are alike.
        shares = mass / sizes / total if total else np.full(len(sizes), 1 / sizes.sum())
        return cls(sizes, shares)

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return round(float(self.sizes.sum()))

    @property
    def entropy_bits(self) -> float:
        """The entropy of the targets: the shortest path to a class, on average."""
        seen = self.shares > 0
        shares = self.shares[seen]
        return float(-(self.sizes[seen] * shares * np.log2(shares)).sum())

    def top_share(self, part: float) -> float:
        """Return which share of the targets the most popular ``part`` of the classes has."""
        wanted = part * float(self.sizes.sum())
        taken = np.clip(wanted - (np.cumsum(self.sizes) - self.sizes), 0.0, self.sizes)
        return float((taken * self.shares).sum())

    def mass_between(self, start: float, stop: float) -> float:
        """Return which share of the targets the ranks from ``start`` to below ``stop`` have."""
        total = float(self.sizes.sum())
        return self.top_share(stop / total) - self.top_share(start / total)

    def distinct(self, draws: float) -> float:
        """Return how many distinct classes so many targets are expected to have."""
        return float((self.sizes * -np.expm1(-draws * self.shares)).sum())

    def sum_error(self, proposal: NDArray[np.float64], draws: float, *, distinct: bool) -> float:
        """Return how far off the sum over all classes is, estimated from draws, as a share of it.

        The root of its relative variance, where scores are log shares: (Σ p²/q − 1) / S for S draws
        by ``proposal`` q [G]; of ``distinct`` ones at most Σ p²·(1/Q − 1), Q being the chance to be
        drawn.

        >>> curve = Popularity.zipf(100_000)
        >>> [round(curve.sum_error(curve.by_power(0.5), size, distinct=True), 3)
        ...  for size in (250, 1000, 4000)]
        [0.199, 0.082, 0.022]
        """
        seen = self.shares > 0
        sizes, shares, chances = self.sizes[seen], self.shares[seen], proposal[seen]
        if (chances <= 0).any():
            return math.inf
        if distinct:
            inverse = 1 / chances_of_distinct(sizes, chances, draws) - 1
            return math.sqrt(float((sizes * shares**2 * inverse).sum()))
        return math.sqrt(max(0.0, float((sizes * shares**2 / chances).sum()) - 1) / draws)

    def by_power(self, power: float, extra: float = 0.0) -> NDArray[np.float64]:
        """Return the probability of a class of each group, drawn by its share to a power, [G].

        ``extra`` is added to every share before, in mean shares 1 / V.
        """
        raised = (self.shares + extra / self.sizes.sum()) ** power
        proposal: NDArray[np.float64] = raised / (self.sizes * raised).sum()
        return proposal

    def log_uniform(self) -> NDArray[np.float64]:
        """Return the probability of a class of each group, drawn log-uniformly by rank, [G]."""
        ends = np.cumsum(self.sizes)
        mass = np.log((ends + 1) / (ends - self.sizes + 1)) / math.log(ends[-1] + 1)
        proposal: NDArray[np.float64] = mass / self.sizes
        return proposal


def chances_of_distinct(
    sizes: NDArray[np.float64], chances: NDArray[np.float64], draws: float
) -> NDArray[np.float64]:
    """Return the chance of each class to be among so many distinct draws, [G]."""
    wanted = min(draws, 0.999 * float(sizes.sum()))
    low, high = 0.0, 1.0
    rate = np.log1p(-np.minimum(chances, 1 - 1e-12))
    while (sizes * -np.expm1(high * rate)).sum() < wanted:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        if (sizes * -np.expm1(middle * rate)).sum() < wanted:
            low = middle
        else:
            high = middle
    found: NDArray[np.float64] = np.maximum(-np.expm1(high * rate), 1e-300)
    return found


def _edges(num_classes: int) -> NDArray[np.float64]:
    """Return where each group of ranks ends, from 0 on."""
    alone = np.arange(min(num_classes, _ALONE) + 1, dtype=np.float64)
    if num_classes <= _ALONE:
        return alone
    rest = np.unique(np.geomspace(_ALONE, num_classes, _GROUPS).round())
    return np.concatenate([alone, rest[rest > _ALONE]])
