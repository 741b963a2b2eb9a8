"""How long the contenders of a comparison train, and how much they are asked, within its budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from widemax.comparison.schedule import cost_of, rounds_of
from widemax.comparison.trial import MEASURING

VALIDATIONS = 9
"""How often a whole training is validated: three times in the first third."""
_RESERVE = 0.1
"""The share of the budget that is left for what was not foreseen."""
_FOR_VALIDATION = 0.25
"""The share of its time that a contender spends on being validated, at most."""
_FEWEST_QUESTIONS = 2_000
"""With fewer, validation could not tell contenders apart."""

Measured = Mapping[str, Mapping[str, float]]
"""By contender: seconds of ``prepared``, a ``step``, a ``validation`` of so many ``questions`` and
the ``test``, and ``usual_steps``."""


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


def affordable_questions(measured: Measured, terms: Terms) -> int:
    """Return how many questions a validation may have, so that trainings have most of the time.

    >>> taken = {"prepared": 1.0, "step": 0.1, "validation": 4.0, "questions": 20_000, "test": 4.0,
    ...     "usual_steps": 10_000}
    >>> both = {"full": taken, "nce": {**taken, "validation": 1.0}}
    >>> affordable_questions(both, Terms(budget=600)), affordable_questions(both, Terms(budget=90))
    (20000, 3200)
    """
    questions = int(next(iter(measured.values()))["questions"])
    allowed = []
    for each in measured.values():
        there = terms.seconds() / len(measured) - terms.beside(each)
        wanted = terms.trainings() * VALIDATIONS * each["validation"]
        allowed.append(questions * _FOR_VALIDATION * there / wanted if wanted else questions)
    if min(allowed) >= questions:
        return questions
    # In hundreds: such a number is said, and typed again.
    return min(questions, max(_FEWEST_QUESTIONS, int(min(allowed)) // 100 * 100))


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
        least = {
            name: fixed[name] + whole * VALIDATIONS * each["step"]
            for name, each in measured.items()
        }
        slowest = max(least, key=lambda name: least[name])
        total = sum(least.values()) if terms.equal == "steps" else count * least[slowest]
        raise ValueError(
            f"budget = {terms.budget:g} s is too short: "
            f"{total / terms.workers / (1 - _RESERVE):.0f} s would just do for {slowest}, whose "
            f"validation takes {measured[slowest]['validation']:.2g} s, whose test "
            f"{measured[slowest]['test']:.2g} s and whose step {measured[slowest]['step']:.2g} s; "
            "allow more with --resume, which keeps what was measured, or begin anew with fewer "
            "contenders, rates or seeds, or a smaller --validation-size or --test-size"
        )
    return {name: int(min(each, measured[name]["usual_steps"])) for name, each in steps.items()}
