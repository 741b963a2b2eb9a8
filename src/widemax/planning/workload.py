"""What is trained, and which rows of its tables a step touches, on average."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from widemax.advising.popularity import MAX_CLASSES, Popularity, chances_of_distinct
from widemax.limits import check_whole

HEADS = ("sampled", "full")
SAMPLERS = ("unigram", "log-uniform", "uniform", "in-batch")
STATES = {"sgd": 0, "rowwise-adagrad": 0, "adagrad": 1, "adam": 2}
"""Numbers that an optimiser keeps for each number of a table, beside those of a row."""
ROW_BYTES = {"sgd": 0, "rowwise-adagrad": 4, "adagrad": 0, "adam": 8}
"""Bytes that an optimiser keeps for each row besides."""
_DISTORTION = 0.5
"""Of ``next-item`` by default, whose unigram sampler also counts each class once more."""


class Touched(NamedTuple):
    """Distinct rows of the input and of the class table, on average."""

    inputs: float
    """Rows of what is read."""
    classes: float
    """Rows of what is predicted."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A ``next-item`` model in training: the mean of a history, and a head over all classes.

    >>> load = Workload(classes=10**9, dimension=128, batch_size=32768)
    >>> round(load.touched(32768 / 64).classes)
    1231
    """

    classes: int
    """How many classes there are, each with a row of the input and of the class table."""
    dimension: int = 64
    """Numbers of a row."""
    batch_size: int = 512
    """Targets of a step, of all processes together."""
    max_history: int = 10
    """Items that are read for a target."""
    head: str = "sampled"
    """The head: sampled or full."""
    sampler: str = "unigram"
    """What candidates are drawn by, for a sampled head."""
    num_samples: int = 800
    """How many are drawn, where they are not those of the batch."""
    optimizer: str = "adam"
    """The optimiser."""
    bias: bool = True
    """Whether each class has a bias."""
    examples: int = 0
    """Interactions to train on; 0: not known."""
    popularity: Popularity = field(default=None, repr=False, compare=False)  # type: ignore[assignment]
    """How often classes are targets; by default as Zipf's law says."""

    def __post_init__(self) -> None:
        check_whole("classes", self.classes, 2, MAX_CLASSES)
        check_whole("dimension", self.dimension, 1, 2**20)
        check_whole("batch_size", self.batch_size, 1, 2**40)
        check_whole("max_history", self.max_history, 1, 2**20)
        check_whole("num_samples", self.num_samples, 1, 2**31)
        check_whole("examples", self.examples, 0, 2**60)
        for name, known in (("head", HEADS), ("sampler", SAMPLERS), ("optimizer", tuple(STATES))):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}"
                )
        if self.popularity is None:
            object.__setattr__(self, "popularity", Popularity.zipf(self.classes))

    @property
    def drawn(self) -> int:
        """Candidates that are drawn for the whole batch; half of the classes at most."""
        drawing = self.head == "sampled" and self.sampler != "in-batch"
        return min(self.num_samples, max(1, self.classes // 2)) if drawing else 0

    @property
    def candidates(self) -> float:
        """Classes that compete with a target."""
        if self.head == "full":
            return self.classes
        return self.batch_size if self.sampler == "in-batch" else self.drawn

    @property
    def class_widths(self) -> list[int]:
        """Numbers of a class in each tensor of the head: its vector, its bias."""
        return [self.dimension, 1] if self.bias else [self.dimension]

    @property
    def row_numbers(self) -> int:
        """Numbers of a class in all tables."""
        return self.dimension + sum(self.class_widths)

    def touched(self, rows: float, part: tuple[float, float] = (0.0, 1.0)) -> Touched:
        """Return the rows that a process with so many targets touches, in a part of the tables.

        ``part`` is from where to where, as shares of the classes in the order of their ranks.
        """
        held = self._held(part)
        curve = self.popularity
        targets = self.batch_size if self.sampler == "in-batch" and self.head == "sampled" else rows
        untouched = np.exp(-targets * curve.shares) * (1 - self._drawn_chances)
        return Touched(
            inputs=float((held * -np.expm1(-rows * self.max_history * curve.shares)).sum()),
            classes=float((held * (1 - untouched)).sum()),
        )

    @cached_property
    def _drawn_chances(self) -> NDArray[np.float64]:
        """The chance of a class of each group to be drawn as a candidate, [G]."""
        curve = self.popularity
        if not self.drawn:
            return np.zeros(len(curve.sizes))
        extra = self.classes / self.examples if self.examples else 0.0
        if self.sampler == "log-uniform":
            proposal = curve.log_uniform()
        else:
            uniform = self.sampler == "uniform"
            proposal = curve.by_power(0.0 if uniform else _DISTORTION, extra)
        return chances_of_distinct(curve.sizes, proposal, self.drawn)

    def _held(self, part: tuple[float, float]) -> NDArray[np.float64]:
        """Return how many classes of each group lie in a part of the ranks, [G]."""
        ends = np.cumsum(self.popularity.sizes)
        first, last = part[0] * ends[-1], part[1] * ends[-1]
        held: NDArray[np.float64] = np.minimum(ends, last) - np.maximum(
            ends - self.popularity.sizes, first
        )
        return np.maximum(held, 0.0)
