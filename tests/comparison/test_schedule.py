"""Which training comes next: by what is done, and by nothing else."""

import itertools
import math
import random
import re
import time
from dataclasses import replace

import pytest

from widemax.comparison.budgeting import (
    VALIDATIONS,
    Terms,
    asked_less,
    check_budget,
    steps_of,
    with_fewer_questions,
)
from widemax.comparison.contenders import Contender
from widemax.comparison.schedule import Schedule, Trial, cost_of, factors_of, rounds_of
from widemax.comparison.standings import standings_of
from widemax.comparison.trial import median_seconds


def result(trial, until, value, metric="ndcg@20", error=0.01, **others):
    curve = [[until // 2, 1.0, value * 0.9, error], [until, 2.0, value, error]]
    return {
        "until": until,
        "metric": metric,
        "best": value,
        "best_error": error,
        "learning_rate": 0.01 * trial.factor,
        "seconds": 2.0,
        "memory": 10_000_000,
        "curve": curve,
        **others,
    }


def played(schedule, quality, order):
    """Train what is due, in a random order, until nothing is; return the legs and the results."""
    results, legs = {}, []
    while due := schedule.due(results):
        leg = order.choice(due)
        legs.append(leg)
        results[leg.trial] = result(leg.trial, leg.until, quality(leg.trial, leg.until))
    return legs, results


@pytest.mark.parametrize(("rates", "seeds"), [*itertools.product((1, 2, 3, 5, 9), (1, 3))])
def test_the_best_rate_is_found_whatever_comes_first_and_costs_what_was_said(rates, seeds):
    schedule = Schedule(contender="full", steps=900, rates=rates, seeds=range(seeds))
    best = factors_of(rates)[-1]
    found = []
    for seed in range(3):
        legs, results = played(
            schedule,
            lambda trial, until: until / 900 + (trial.factor == best),
            random.Random(seed),
        )
        assert schedule.chosen(results).factor == best
        assert [trial.seed for trial in schedule.finished(results)] == list(range(seeds))
        trained, steps = {}, 0
        for leg in legs:
            steps += leg.until - trained.get(leg.trial, 0)
            trained[leg.trial] = leg.until
        assert steps == pytest.approx(900 * cost_of(rates, seeds), rel=0.01)
        found.append(sorted(legs))
    assert found[0] == found[1] == found[2]


def test_a_loss_is_better_when_smaller():
    schedule = Schedule(contender="full", steps=9, rates=3, seeds=[0])
    results = {
        leg.trial: result(leg.trial, leg.until, leg.trial.factor, metric="loss")
        for leg in schedule.due({})
    }
    assert schedule.chosen(results).factor == min(factors_of(3))


def test_a_rate_that_diverges_is_out_and_a_contender_of_which_all_do_has_failed():
    schedule = Schedule(contender="full", steps=9, rates=3, seeds=[0, 1])
    first = [leg.trial for leg in schedule.due({})]
    results = {trial: {"until": 3, "failed": "nan at step 2"} for trial in first}
    results[first[2]] = result(first[2], 3, 0.1)
    assert schedule.chosen(results) == first[2]
    results[first[2]] = {"until": 9, "failed": "nan at step 7"}
    assert schedule.due(results) == []
    (standing,) = standings_of([Contender("full", {})], [schedule], results, {})
    assert standing.failed == "nan at step 2"


def test_rounds_end_with_one_whole_training():
    for rates in range(1, 28):
        rounds = rounds_of(rates)
        assert rounds[0][0] == rates
        assert rounds[-1] == (1, 1.0)


def test_equal_time_gives_the_same_seconds_and_a_budget_that_is_too_short_says_why():
    taken = {"prepared": 1.0, "validation": 2.0, "test": 3.0, "usual_steps": 10**9}
    measured = {"full": {**taken, "step": 0.5}, "nce": {**taken, "step": 0.01}}
    steps = steps_of(measured, Terms(budget=3600))
    assert steps["full"] * 0.5 == pytest.approx(steps["nce"] * 0.01, rel=0.01)
    with pytest.raises(ValueError, match=r"budget = 60 s is too short: [0-9]+ s would") as said:
        steps_of(measured, Terms(budget=60))
    # What was measured is in the folder by now, which is refused without it.
    assert "allow more with --resume" in str(said.value)
    needed = int(re.search(r"short: ([0-9]+) s", str(said.value))[1])
    assert steps_of(measured, Terms(budget=needed))["full"] == VALIDATIONS
    with pytest.raises(ValueError, match="too short"):
        steps_of(measured, Terms(budget=needed - 1))
    usual = {name: {**each, "usual_steps": 70} for name, each in measured.items()}
    assert steps_of(usual, Terms(budget=36000)) == {"full": 70, "nce": 70}


@pytest.mark.parametrize("equal", ["time", "steps"])
def test_a_budget_that_is_too_short_is_refused_once_that_is_certain(equal):
    taken = {"prepared": 1.0, "validation": 2.0, "test": 3.0, "usual_steps": 10**9, "step": 0.1}
    taken |= {"questions": 50_000, "test_questions": 90_000}
    measured = {"full": taken, "nce": {**taken, "step": 0.01}}
    terms = Terms(budget=3600, equal=equal)
    check_budget(measured, 2, terms)
    # Nothing is measured yet: each would be, for two seconds.
    with pytest.raises(ValueError, match=r"100 output layers take 112 s at the least"):
        check_budget({}, 100, replace(terms, budget=110))
    check_budget({}, 100, replace(terms, budget=112))
    # It refuses nothing that would do once all is measured and fewer questions are asked.
    for budget in range(1, 60):
        short = replace(terms, budget=budget)
        try:
            check_budget({"nce": measured["nce"]}, 2, short)
        except ValueError:
            with pytest.raises(ValueError, match="too short"):
                steps_of(with_fewer_questions(measured, asked_less(measured, short)), short)
        else:
            break
    # Of equal seconds each has what the slowest needs, of equal steps the other may need less.
    assert budget > (13 if equal == "time" else 5)


def test_validations_take_a_quarter_of_the_time_at_most_and_the_test_a_tenth():
    taken = {"prepared": 1.0, "step": 0.01, "questions": 50_000, "usual_steps": 10**9}
    taken |= {"test": 30.0, "test_questions": 100_000}
    measured = {"full": {**taken, "validation": 2.0}, "tree": {**taken, "validation": 6.0}}
    shares, tests = [], []
    for budget in (150, 300, 600, 7200):
        terms = Terms(budget=budget)
        less = asked_less(measured, terms)
        fewer = with_fewer_questions(measured, less)
        tree, steps = fewer["tree"], steps_of(fewer, terms)["tree"] * 0.01
        validations = VALIDATIONS * tree["validation"]
        shares.append(validations / (steps + validations))
        tests.append(terms.seeds * tree["test"] / (terms.seconds() / 2))
        assert tree["validation"] == 6.0 * less.get("validation_size", 50_000) / 50_000
    # As many as usual where there is time enough; otherwise no fewer than need be.
    assert shares[:3] == pytest.approx([0.25] * 3, rel=0.03)
    assert tests[:3] == pytest.approx([0.1] * 3, rel=0.03)
    assert asked_less(measured, Terms(budget=7200)) == {}
    assert shares[3] < 0.1
    assert asked_less(measured, Terms(budget=1)) == {"validation_size": 2_000, "test_size": 2_000}
    few = {**taken, "validation": 6.0, "questions": 900, "test_questions": 90}
    assert asked_less({"full": few}, Terms(budget=60)) == {}
    none = {**few, "test": 0.0, "test_questions": 0}
    assert asked_less({"full": none}, Terms(budget=60)) == {}


def test_a_step_that_is_held_up_does_not_shorten_the_race(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])

    def take(step):
        clock[0] += 3.0 if step == 1 else 0.25

    assert median_seconds(take) == 0.25


def test_contenders_within_the_spread_of_the_first_are_marked():
    names = {"full": 0.30, "nce": 0.29, "info-nce": 0.10}
    contenders = [Contender(name, {}) for name in names]
    schedules = [Schedule(contender=name, steps=9, rates=1, seeds=[0, 1]) for name in names]
    results = {
        trial: result(trial, 9, value + 0.001 * seed)
        for name, value in names.items()
        for seed in (0, 1)
        for trial in [Trial(name, 1.0, seed)]
    }
    found = standings_of(contenders, schedules, results, {})
    assert [each.name for each in found] == ["full", "nce", "info-nce"]
    assert [each.tied for each in found] == [True, True, False]
    assert found[0].value == pytest.approx(0.3005)
    # Seeds of standard deviation 0.0007 over √2, beside 0.01 of the questions.
    assert found[0].error == pytest.approx(math.hypot(0.01, 0.0005))
    assert found[0].leads == (1.0, 2.0)
    assert found[1].leads is None
