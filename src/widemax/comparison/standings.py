"""Who came where in a comparison, and how sure that is."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from widemax.comparison.contenders import Contender
from widemax.comparison.schedule import Results, Schedule, Trial, badness

_SURE = 2.0
"""How many standard errors apart two contenders are that are told apart."""


@dataclass(kw_only=True)
class Standing:
    """What one contender came to: means over its seeds."""

    name: str
    """The contender."""
    metric: str = ""
    """What was measured in validation."""
    value: float = math.nan
    """The mean of the best validation of each seed."""
    error: float = math.nan
    """Its standard error: of the choice of questions, and of the seeds where there are several."""
    seeds: int = 0
    """How many whole trainings it had."""
    learning_rate: float = math.nan
    """The one that was chosen."""
    steps: int = 0
    """How long a whole training was."""
    seconds: float = math.nan
    """How long it took, validations included."""
    memory: int = 0
    """Bytes at the most beside the program itself."""
    tied: bool = False
    """Whether the difference to the first is within twice its standard error."""
    front: bool = False
    """Whether nothing else is both better and smaller."""
    leads: tuple[float, float] | None = None
    """From when to when, in seconds of training, its metric was the best of all."""
    test: Mapping[str, float] = field(default_factory=dict)
    """The mean of what the test came to, which was asked once, at the end."""
    curve: Sequence[Sequence[float]] = ()
    """Step, seconds, metric and its standard error at each validation of the first seed."""
    failed: str = ""
    """Why there is nothing to show."""


def standings_of(
    contenders: Sequence[Contender],
    schedules: Sequence[Schedule],
    results: Results,
    tested: Mapping[Trial, Mapping[str, Any]],
) -> list[Standing]:
    """Return what each contender has come to by now, the best first."""
    planned = {each.contender: each for each in schedules}
    found = []
    for contender in contenders:
        schedule = planned.get(contender.name)
        if schedule is None:
            found.append(Standing(name=contender.name))
        else:
            found.append(_standing(schedule, results, tested))
    found.sort(key=_key)
    _compare(found)
    return found


def _key(standing: Standing) -> float:
    if math.isnan(standing.value):
        return math.inf
    return standing.value if standing.metric == "loss" else -standing.value


def _standing(
    schedule: Schedule, results: Results, tested: Mapping[Trial, Mapping[str, Any]]
) -> Standing:
    standing = Standing(name=schedule.contender, steps=schedule.steps)
    trials: list[Trial] = schedule.finished(results) or _best_so_far(schedule, results)
    if not trials:
        reasons = {
            str(result["failed"])
            for trial, result in results.items()
            if trial.contender == schedule.contender and "failed" in result
        }
        standing.failed = min(reasons, default="")
        return standing
    rows = [results[trial] for trial in trials]
    values = [float(row["best"]) for row in rows]
    standing.metric, standing.value = rows[0]["metric"], statistics.fmean(values)
    standing.seeds = len(rows)
    # Seeds are asked the same questions: their noise does not shrink with more of them.
    of_questions = statistics.fmean(float(row["best_error"]) for row in rows)
    of_seeds = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    standing.error = math.hypot(of_questions, of_seeds)
    standing.learning_rate = float(rows[0]["learning_rate"])
    standing.seconds = statistics.fmean(float(row["seconds"]) for row in rows)
    standing.memory = max(int(row["memory"]) for row in rows)
    standing.curve = rows[0]["curve"]
    asked = [tested[trial]["figures"] for trial in trials if "figures" in tested.get(trial, {})]
    if asked:
        names = asked[0].keys()
        standing.test = {name: statistics.fmean(each[name] for each in asked) for name in names}
    return standing


def _best_so_far(schedule: Schedule, results: Results) -> list[Trial]:
    able = [
        trial
        for trial, result in results.items()
        if trial.contender == schedule.contender and "failed" not in result
    ]
    return [min(able, key=lambda trial: badness(results[trial]))] if able else []


def _compare(found: Sequence[Standing]) -> None:
    """Say of each contender whether it can be told from the first, and what it is best in."""
    there = [each for each in found if not each.failed and not math.isnan(each.value)]
    for each in there:
        apart = abs(each.value - there[0].value)
        each.tied = apart <= _SURE * math.hypot(each.error, there[0].error)
        each.front = not any(
            _key(other) <= _key(each)
            and other.memory <= each.memory
            and (_key(other), other.memory) != (_key(each), each.memory)
            for other in there
        )
    for name, span in _leaders(there).items():
        next(each for each in there if each.name == name).leads = span


def _leaders(there: Sequence[Standing]) -> dict[str, tuple[float, float]]:
    """Return who was ahead when: from the first to the last moment, in seconds."""
    moments = sorted({point[1] for each in there for point in each.curve})
    spans: dict[str, tuple[float, float]] = {}
    for moment in moments:
        so_far = {
            each.name: min(_signed(each, point[2]) for point in each.curve if point[1] <= moment)
            for each in there
            if each.curve and each.curve[0][1] <= moment
        }
        name = min(so_far, key=lambda name: so_far[name])
        spans[name] = (spans.get(name, (moment, moment))[0], moment)
    return spans


def _signed(standing: Standing, value: float) -> float:
    return value if standing.metric == "loss" else -value
