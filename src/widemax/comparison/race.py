"""A comparison: output layers on the same data, with the same encoder, order, start and budget."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from widemax.comparison.budgeting import (
    VALIDATIONS,
    Measured,
    Terms,
    asked_less,
    check_budget,
    steps_of,
    with_fewer_questions,
)
from widemax.comparison.contenders import COMPARED, Contender
from widemax.comparison.processes import run_jobs
from widemax.comparison.schedule import Leg, Schedule, Trial
from widemax.comparison.standings import Standing, standings_of
from widemax.comparison.trial import Job, result_of
from widemax.config import Config
from widemax.config.toml import to_toml
from widemax.declarations import Value
from widemax.storage.files import atomic_write, make_folder
from widemax.storage.json_text import finite
from widemax.storage.manifest import read_manifest, write_manifest

FORMAT_VERSION = 1
MEASURED = "measured"
PLAN, RESULT, WINNER = "comparison.json", "standings.json", "winner.toml"
DECIDED = (
    "learning_rate",
    "steps",
    "epochs",
    "time_budget",
    "patience",
    "patience_examples",
    "validate_every",
    "checkpoint_every",
    "keep_last",
    "threads",
    "tracking",
    "refit",
    *COMPARED,
)
"""Settings that a comparison decides itself."""


@dataclass
class Race:
    """A comparison in a folder, which holds all it needs to go on after a kill."""

    folder: Path
    """Where plan, trainings and results are kept."""
    source: str
    """The data."""
    kind: str
    """What they are: a text, or the format of a log."""
    contenders: Sequence[Contender]
    """Who takes part."""
    terms: Terms
    """What is the same for all of them."""
    plugins: Sequence[str] = ()
    """Modules with methods of the user's own."""
    steps: dict[str, int] = field(default_factory=dict)
    """How long a whole training of each contender is, once that is measured."""
    less: dict[str, int] = field(default_factory=dict)
    """How many questions are asked where the usual ones would take too long, by setting."""
    on_look: Callable[[Race, Sequence[Job]], None] = lambda race, running: None
    """Called twice a second with what is running."""

    def run(self) -> list[Standing]:
        """Measure, train and test what is not done yet; return who came where."""
        make_folder(self.folder)
        if not self.steps:
            self._run(self._measurements)
            self._plan()
        self._run(self._trainings)
        # Last, and once: nothing is chosen by it.
        self._run(self._tests)
        found = self.standings()
        self._write(found)
        return found

    def standings(self) -> list[Standing]:
        """Return who is where by now, the best first."""
        found = standings_of(self.contenders, self._schedules(), self._results(), self._tested())
        _, failed = self._measured()
        for each in found:
            if each.name not in self.steps:
                each.failed = failed.get(each.name, "")
        return found

    def _run(self, next_jobs: Callable[[], Sequence[Job]]) -> None:
        run_jobs(
            next_jobs,
            workers=self.terms.workers,
            on_look=lambda running: self.on_look(self, running),
        )

    # -- what is to be done ------------------------------------------------------------------

    def _measurements(self) -> list[Job]:
        measured, failed = self._measured()
        if not measured and len(failed) > 1 and len(set(failed.values())) == 1:
            return []  # what ails the data ails them all
        check_budget(measured, len(self.contenders) - len(failed), self.terms)
        jobs = (self._job(each, MEASURED) for each in self.contenders)
        return [job for job in jobs if not Path(job.result).exists()]

    def _trainings(self) -> list[Job]:
        results = self._results()
        # In turn: the first round of all contenders comes before the second of any.
        legs = [leg for schedule in self._schedules() for leg in schedule.due(results)]
        return [self._training(leg) for leg in sorted(legs, key=lambda leg: leg.trial.seed)]

    def _tests(self) -> list[Job]:
        results, jobs = self._results(), []
        for schedule in self._schedules():
            for trial in schedule.finished(results):
                job = self._job(self._named(trial.contender), trial.name, test=True)
                if not Path(job.result).exists():
                    jobs.append(job)
        return jobs

    def _schedules(self) -> list[Schedule]:
        first = int(str(self.contenders[0].settings.get("seed", 0)))
        seeds = range(first, first + self.terms.seeds)
        return [
            Schedule(contender=name, steps=steps, rates=self.terms.rates, seeds=seeds)
            for name, steps in self.steps.items()
        ]

    def _training(self, leg: Leg) -> Job:
        trial, contender = leg.trial, self._named(leg.trial.contender)
        steps = self.steps[trial.contender]
        every = max(1, steps // VALIDATIONS)
        usual = float(Config(source=self.kind, **contender.settings).learning_rate)
        settings = {
            "learning_rate": usual * trial.factor,
            "seed": trial.seed,
            "steps": steps,
            "validate_every": every,
            "checkpoint_every": every,
        }
        return self._job(contender, trial.name, settings, until=leg.until)

    def _job(
        self,
        contender: Contender,
        name: str,
        settings: Mapping[str, Value] | None = None,
        *,
        until: int = 0,
        test: bool = False,
    ) -> Job:
        place = self.folder / slug(contender.name)
        part = "test" if test else f"step-{until}"
        fixed: dict[str, Value] = {"threads": 1, "patience": 0, "keep_last": 1, **self.less}
        return Job(
            source=self.source,
            kind=self.kind,
            settings={**contender.settings, **fixed, **(settings or {})},
            folder=str(place / name),
            result=str(place / f"{name}.{part}.json"),
            until=until,
            test=test,
            plugins=tuple(self.plugins),
        )

    # -- what is done ------------------------------------------------------------------------

    def _results(self) -> dict[Trial, dict[str, Any]]:
        """Return what each trial has come to at the last step that it was trained to."""
        found: dict[Trial, dict[str, Any]] = {}
        for schedule in self._schedules():
            place = self.folder / slug(schedule.contender)
            for leg in schedule.legs():
                result = result_of(place / f"{leg.trial.name}.step-{leg.until}.json")
                if result is not None:
                    found[leg.trial] = result
        return found

    def _tested(self) -> dict[Trial, dict[str, Any]]:
        found = {}
        for schedule in self._schedules():
            place = self.folder / slug(schedule.contender)
            for trial in schedule.finished(self._results()):
                result = result_of(place / f"{trial.name}.test.json")
                if result is not None:
                    found[trial] = result
        return found

    def _named(self, name: str) -> Contender:
        return next(each for each in self.contenders if each.name == name)

    # -- how long each trains ----------------------------------------------------------------

    def _plan(self) -> None:
        """Decide how long each contender trains, once and for all."""
        measured, failed = self._measured()
        if not measured:
            self._forget()
            raise ValueError(_why_none(failed))
        # How much is asked is the user's to say.
        typed = self.contenders[0].settings
        less = asked_less(measured, self.terms)
        self.less = {name: size for name, size in less.items() if name not in typed}
        self.steps = steps_of(with_fewer_questions(measured, self.less), self.terms)
        plan = {
            "source": self.source,
            "kind": self.kind,
            "contenders": [[each.name, dict(each.settings)] for each in self.contenders],
            "terms": asdict(self.terms),
            "plugins": list(self.plugins),
            "steps": self.steps,
            "less": self.less,
        }
        write_manifest(self.folder / PLAN, FORMAT_VERSION, plan)

    def _measured(self) -> tuple[Measured, dict[str, str]]:
        """Return what was measured of each contender, and why others could not take a step."""
        found = {
            each.name: result_of(Path(self._job(each, MEASURED).result)) for each in self.contenders
        }
        able = {name: each for name, each in found.items() if each and "failed" not in each}
        failed = {
            name: str(each["failed"]) for name, each in found.items() if each and name not in able
        }
        return able, failed

    def _forget(self) -> None:
        """Remove what was measured, so that the folder is free for another attempt."""
        for each in self.contenders:
            shutil.rmtree(self.folder / slug(each.name), ignore_errors=True)

    def _write(self, found: Sequence[Standing]) -> None:
        """Keep who came where, and the configuration of the first."""
        rows = finite([asdict(each) for each in found])
        write_manifest(self.folder / RESULT, FORMAT_VERSION, {"standings": rows})
        best = found[0]
        if best.failed:
            return
        settings = {**self._named(best.name).settings, "learning_rate": best.learning_rate}
        with atomic_write(self.folder / WINNER) as file:
            file.write(to_toml(Config(source=self.kind, **settings)).encode())


def _why_none(failed: Mapping[str, str]) -> str:
    """Return why none of the contenders could take a step: once, if it is the same for all.

    >>> _why_none({"full": "log.csv has no user", "nce": "log.csv has no user"})
    'log.csv has no user'
    >>> _why_none({"full": "no memory", "nce": "no luck"})
    'no output layer could take a step: full: no memory; nce: no luck'
    """
    reasons = set(failed.values())
    if len(reasons) == 1:
        return reasons.pop()
    each = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
    return f"no output layer could take a step: {each}"


def stored_race(folder: Path) -> Race | None:
    """Return the comparison of a folder as it was planned; None if there is none yet.

    >>> print(stored_race(Path("nowhere")))
    None
    """
    if not (folder / PLAN).exists():
        return None
    plan = read_manifest(folder / PLAN, FORMAT_VERSION)
    return Race(
        folder=folder,
        source=plan["source"],
        kind=plan["kind"],
        contenders=[Contender(name, settings) for name, settings in plan["contenders"]],
        terms=Terms(**plan["terms"]),
        plugins=plan["plugins"],
        steps=plan["steps"],
        less=plan.get("less", {}),
    )


def slug(name: str) -> str:
    """Return a name as that of a folder.

    >>> slug("nce, log-uniform")
    'nce-log-uniform'
    """
    return re.sub(r"[^A-Za-z0-9.]+", "-", name)
