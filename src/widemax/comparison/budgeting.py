"""How long the contenders of a comparison train, and how much they are asked, within its budget."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import ceil

from widemax.comparison.schedule import cost_of, rounds_of
from widemax.comparison.trial import MEASURING

VALIDATIONS = 9
"""How often a whole training is validated: three times in the first third."""
_RESERVE = 0.1
"""The share of the budget that is left for what was not foreseen."""
_FOR_VALIDATION = 0.25
"""The share of its time that a contender spends on being validated, at most."""
_FOR_TEST = 0.1
"""The share of its time that a contender spends on the test, at most."""
_FEWEST_QUESTIONS = 2_000
"""With fewer, contenders could not be told apart."""
_MORE_OR_LESS = (
    "allow more with --resume and the same flags, which keeps what was measured, or begin anew "
    "with fewer contenders, rates or seeds, or a smaller --validation-size or --test-size"
)

Measured = Mapping[str, Mapping[str, float]]
"""By contender: seconds of ``prepared``, a ``step``, a ``validation`` of so many ``questions`` and
the ``test`` of ``test_questions``, and ``usual_steps``."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What is the same for all contenders of a race."""

    budget: float
    """Seconds for all of it."""
    equal: str = "time"
    """Whether contenders have the same "time" or the same "steps"."""
    rates: int = 3
    """How many learning rates are tried for each."""
    seeds: int = 2
    """How many whole trainings each has."""
    workers: int = 2
    """How many trainings run side by side, a thread each."""

    def seconds(self) -> float:
        """Return the seconds of one process that the budget has, without its reserve."""
        return self.budget * (1 - _RESERVE) * self.workers

    def trainings(self) -> float:
        """Return how many whole trainings a contender has, those cut short by their share."""
        return cost_of(self.rates, self.seeds)

    def beside(self, measured: Mapping[str, float]) -> float:
        """Return the seconds of a contender that are neither for steps nor for validations."""
        started = sum(rates for rates, _ in rounds_of(self.rates)) + self.seeds - 1
        # Once more to measure it.
        return (
            (1 + started + self.seeds) * measured["prepared"]
            + MEASURING
            + self.seeds * measured["test"]
        )


def asked_less(measured: Measured, terms: Terms) -> dict[str, int]:
    """Return how much is asked where the usual would take too much of the time, by setting.

    >>> taken = {"prepared": 1.0, "step": 0.1, "validation": 4.0, "questions": 20_000, "test": 8.0,
    ...     "test_questions": 40_000, "usual_steps": 10_000}
    >>> both = {"full": taken, "nce": {**taken, "validation": 1.0}}
    >>> asked_less(both, Terms(budget=900)), asked_less(both, Terms(budget=100))
    ({}, {'test_size': 22500, 'validation_size': 3600})
    """
    there = terms.seconds() / len(measured)
    some = next(iter(measured.values()))
    longest = max(each["test"] for each in measured.values())
    part = _FOR_TEST * there / (terms.seeds * longest) if longest else 1.0
    less = _fewer("test_size", int(some["test_questions"]), part)
    measured = with_fewer_questions(measured, less)
    validations = [
        _FOR_VALIDATION
        * (there - terms.beside(each))
        / (terms.trainings() * VALIDATIONS * each["validation"])
        for each in measured.values()
    ]
    return less | _fewer("validation_size", int(some["questions"]), min(validations))


def _fewer(name: str, questions: int, share: float) -> dict[str, int]:
    """Return so many questions that they are at most a share of the usual; nothing if all are."""
    if share >= 1 or questions <= _FEWEST_QUESTIONS:
        return {}
    # In hundreds: such a number is said, and typed again.
    return {name: max(_FEWEST_QUESTIONS, int(questions * share) // 100 * 100)}


def with_fewer_questions(measured: Measured, less: Mapping[str, int]) -> Measured:
    """Return what was measured as it would be with less asked."""

    def scaled(each: Mapping[str, float], name: str, questions: str) -> float:
        asked = less.get(f"{name}_size")
        return each[name] if asked is None else each[name] * asked / each[questions]

    return {
        name: {
            **each,
            "validation": scaled(each, "validation", "questions"),
            "test": scaled(each, "test", "test_questions"),
        }
        for name, each in measured.items()
    }


def steps_of(measured: Measured, terms: Terms) -> dict[str, int]:
    """Return how many steps a whole training of each contender has, within the budget.

    It is never longer than the model is usually trained.

    >>> taken = {"prepared": 1.0, "step": 0.1, "validation": 1.0, "test": 1.0}
    >>> taken["usual_steps"] = 10_000
    >>> both = {"full": taken, "nce": {**taken, "step": 0.05}}
    >>> steps_of(both, Terms(budget=600, seeds=1))
    {'full': 3095, 'nce': 6191}
    >>> steps_of(both, Terms(budget=600, seeds=1, equal="steps"))
    {'full': 4127, 'nce': 4127}
    """
    whole, count, there = terms.trainings(), len(measured), terms.seconds()
    fixed = {
        name: terms.beside(each) + whole * VALIDATIONS * each["validation"]
        for name, each in measured.items()
    }
    if terms.equal == "time":
        seconds = {name: there / count - fixed[name] for name in measured}
        steps = {name: seconds[name] / whole / each["step"] for name, each in measured.items()}
    else:
        left = there - sum(fixed.values())
        same = left / whole / sum(each["step"] for each in measured.values())
        steps = dict.fromkeys(measured, same)
    if min(steps.values()) < VALIDATIONS:
        least = {name: _least(each, terms) for name, each in measured.items()}
        slowest = max(least, key=lambda name: least[name])
        raise ValueError(
            f"budget = {terms.budget:g} s is too short: "
            f"{_budget_for(least.values(), count, terms)} s would just do for {slowest}, whose "
            f"validation takes {measured[slowest]['validation']:.2g} s, whose test "
            f"{measured[slowest]['test']:.2g} s and whose step {measured[slowest]['step']:.2g} s; "
            f"{_MORE_OR_LESS}"
        )
    return {name: int(min(each, measured[name]["usual_steps"])) for name, each in steps.items()}


def check_budget(measured: Measured, count: int, terms: Terms) -> None:
    """Raise as soon as it is certain that the budget does not do for ``count`` contenders.

    ``measured`` are those that were measured by now.

    >>> check_budget({}, 17, Terms(budget=2))
    Traceback (most recent call last):
    ValueError: budget = 2 s is too short: 17 output layers take 19 s at the least; ...
    """
    least = [_least(_with_fewest_questions(each), terms) for each in measured.values()]
    needed = _budget_for(least, count, terms)
    if needed > terms.budget:
        raise ValueError(
            f"budget = {terms.budget:g} s is too short: {count} output layers take {needed} s "
            f"at the least; {_MORE_OR_LESS}"
        )


def _with_fewest_questions(measured: Mapping[str, float]) -> Mapping[str, float]:
    """Return what was measured as it would be with as few questions as are ever asked."""
    there = {"validation_size": "questions", "test_size": "test_questions"}
    less = {size: _FEWEST_QUESTIONS for size, n in there.items() if measured[n] > _FEWEST_QUESTIONS}
    return with_fewer_questions({"": measured}, less)[""]


def _least(measured: Mapping[str, float], terms: Terms) -> float:
    """Return the seconds of a contender whose every training has a step for each validation."""
    steps = VALIDATIONS * (measured["validation"] + measured["step"])
    return terms.beside(measured) + terms.trainings() * steps


def _budget_for(least: Collection[float], count: int, terms: Terms) -> int:
    """Return the seconds for ``count`` contenders, of which some are known to take so long."""
    unknown = (count - len(least)) * MEASURING
    total = (
        sum(least) + unknown if terms.equal == "steps" else count * max(least, default=MEASURING)
    )
    return ceil(total / (terms.workers * (1 - _RESERVE)))
