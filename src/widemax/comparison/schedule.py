"""Which training of a comparison comes next: learning rates by successive halving, then seeds.

What to do follows from what is done and from nothing else, so that a comparison that was killed
goes on as if it had not been. (Optuna's pruner of the same name decides while a training runs,
by what others happen to have reached by then.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

KEPT = 3
"""One of so many rates goes on to the next round, which is so many times as long."""


class Trial(NamedTuple):
    """One training: of which contender, at which factor of the usual rate, from which seed."""

    contender: str
    factor: float
    seed: int

    @property
    def name(self) -> str:
        """Its name among the trials of its contender."""
        return f"rate-{self.factor:g}-seed-{self.seed}"


class Leg(NamedTuple):
    """A trial, and the step that it is to be trained to."""

    trial: Trial
    until: int


Results = Mapping[Trial, Mapping[str, Any]]
"""What each trial has come to so far: ``best``, ``metric`` and ``until``, or ``failed``."""


def factors_of(rates: int) -> list[float]:
    """Return by what the usual learning rate is multiplied, the usual one first.

    >>> [round(each, 2) for each in factors_of(3)]
    [1.0, 3.0, 0.33]
    """
    places = sorted(
        range(-(rates // 2), rates - rates // 2), key=lambda place: (abs(place), -place)
    )
    return [3.0**place for place in places]


def rounds_of(rates: int) -> list[tuple[int, float]]:
    """Return how many rates each round has, and up to which share of the steps it goes.

    >>> rounds_of(3), rounds_of(1)
    ([(3, 0.333...), (1, 1.0)], [(1, 1.0)])
    """
    counts = [rates]
    while counts[-1] > 1:
        counts.append(math.ceil(counts[-1] / KEPT))
    return [(count, KEPT ** -(len(counts) - 1.0 - place)) for place, count in enumerate(counts)]


def cost_of(rates: int, seeds: int) -> float:
    """Return how many whole trainings a contender takes.

    >>> round(cost_of(3, 2), 3)
    2.667
    """
    spent, before = 0.0, 0.0
    for count, share in rounds_of(rates):
        spent, before = spent + count * (share - before), share
    return spent + seeds - 1


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The trainings of one contender."""

    contender: str
    """Its name."""
    steps: int
    """How long a whole training is."""
    rates: int
    """How many learning rates are tried."""
    seeds: Sequence[int]
    """The seeds of the whole trainings; rates are chosen with the first."""

    def legs(self) -> list[Leg]:
        """Return every stretch that may be trained, the shorter ones first."""
        ends = [max(1, round(share * self.steps)) for _, share in rounds_of(self.rates)]
        trials = [
            Trial(self.contender, factor, seed)
            for factor in factors_of(self.rates)
            for seed in self.seeds
        ]
        return [Leg(trial, until) for until in ends for trial in trials]

    def chosen(self, results: Results) -> Trial | None:
        """Return the trial whose rate was chosen; None if that is not decided."""
        kept = self._kept(results)
        return kept[0] if kept and len(kept) == 1 else None

    def due(self, results: Results) -> list[Leg]:
        """Return what can be trained now.

        >>> schedule = Schedule(contender="full", steps=90, rates=3, seeds=[0])
        >>> [leg.until for leg in schedule.due({})]
        [30, 30, 30]
        >>> done = {leg.trial: {"until": 30, "best": 0.1 * leg.trial.factor, "metric": "loss"}
        ...         for leg in schedule.due({})}
        >>> [(round(leg.trial.factor, 2), leg.until) for leg in schedule.due(done)]
        [(0.33, 90)]
        """
        alive = [Trial(self.contender, factor, self.seeds[0]) for factor in factors_of(self.rates)]
        for count, share in rounds_of(self.rates):
            alive = self._best(alive, results, count)
            until = max(1, round(share * self.steps))
            legs = [Leg(trial, until) for trial in alive if not _is_done(trial, until, results)]
            if legs and count > 1:
                return legs
        if not alive:
            return []
        others = [Trial(self.contender, alive[0].factor, seed) for seed in self.seeds[1:]]
        whole = [Leg(trial, self.steps) for trial in (alive[0], *others)]
        return [leg for leg in whole if not _is_done(*leg, results)]

    def finished(self, results: Results) -> list[Trial]:
        """Return the whole trainings that have come to something, one for each seed."""
        chosen = self.chosen(results)
        if chosen is None:
            return []
        whole = [Trial(self.contender, chosen.factor, seed) for seed in self.seeds]
        return [
            trial
            for trial in whole
            if "failed" not in results.get(trial, {"failed": ""})
            and results[trial]["until"] >= self.steps
        ]

    def _kept(self, results: Results) -> list[Trial] | None:
        alive = [Trial(self.contender, factor, self.seeds[0]) for factor in factors_of(self.rates)]
        for count, share in rounds_of(self.rates):
            alive = self._best(alive, results, count)
            until = max(1, round(share * self.steps))
            if count > 1 and not all(_is_done(trial, until, results) for trial in alive):
                return None
        return alive

    @staticmethod
    def _best(alive: list[Trial], results: Results, count: int) -> list[Trial]:
        """Return the best of some trials, in their order; those that have failed are out."""
        if len(alive) <= count:
            return [each for each in alive if "failed" not in results.get(each, {})]
        able = [each for each in alive if "failed" not in results[each]]
        return sorted(able, key=lambda each: badness(results[each]))[:count]


def badness(result: Mapping[str, Any]) -> float:
    """Return the best metric of a trial as something to minimise."""
    value = float(result["best"])
    if math.isnan(value):
        return math.inf
    return value if result["metric"] == "loss" else -value


def _is_done(trial: Trial, until: int, results: Results) -> bool:
    found = results.get(trial)
    return found is not None and ("failed" in found or found["until"] >= until)
