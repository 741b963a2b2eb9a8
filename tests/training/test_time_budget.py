"""A training that is limited by time: its schedule follows the clock, and it can be continued."""

import pytest

import widemax as wm
from widemax.runs.training.preparing import prepare
from widemax.training import loop
from widemax.training.schedules import learning_rate_at

SETTINGS = {"model": "next-item", "epochs": 5, "dimension": 4, "schedule": "linear", "head": "full"}
SETTINGS |= {"learning_rate": 0.5, "batch_size": 16, "validation_size": 0, "test_size": 0}


@pytest.fixture
def log(tmp_path):
    rows = [f"u{user},i{(user + k) % 9}" for user in range(40) for k in range(6)]
    (tmp_path / "log.csv").write_text("user,item\n" + "\n".join(rows) + "\n")
    return tmp_path / "log.csv"


@pytest.fixture
def clock(monkeypatch):
    """Each look at the clock finds it a second later."""
    seconds = iter(range(10**6))
    monkeypatch.setattr(loop.time, "perf_counter", lambda: float(next(seconds)))


def rates(log, folder, *, resume=False, **settings):
    """Return the learning rate of each step of a run, and why it ended."""
    training = prepare(log, wm.Config(**SETTINGS, **settings), folder, resume=resume)
    taken, take = [], training.loop.steps.take

    def noted(step, learning_rate):
        taken.append(learning_rate)
        take(step, learning_rate)

    training.loop.steps.take = noted
    return taken, training.run().finished


def test_the_share_of_the_time_counts_where_it_is_larger_than_that_of_the_steps():
    rate = learning_rate_at("linear", 1.0, total_steps=10, warmup_steps=2)
    assert rate(4) == rate(4, 0.1) == 0.75
    assert rate(4, 0.5) == 0.5
    assert rate(0, 0.5) == 0.5  # the warm-up is of steps


def test_a_schedule_ends_with_the_time(log, tmp_path, clock):
    taken, finished = rates(log, tmp_path / "run", time_budget=10.0)
    assert finished == "time"
    assert taken == pytest.approx([0.5 * (1 - step / 10) for step in range(10)])


def test_time_to_spare_leaves_the_schedule_to_the_steps(log, tmp_path, clock):
    plain, _ = rates(log, tmp_path / "plain")
    taken, finished = rates(log, tmp_path / "run", time_budget=10_000.0)
    assert (taken, finished) == (plain, "steps")


def test_steps_that_are_given_are_what_a_schedule_follows(log, tmp_path, clock):
    settings = {name: value for name, value in SETTINGS.items() if name != "epochs"}
    training = prepare(log, wm.Config(**settings, steps=40, time_budget=10.0), tmp_path / "run")
    assert not training.loop.plan.follows_time


def test_more_time_continues_a_run_that_had_too_little(log, tmp_path, clock):
    first, _ = rates(log, tmp_path / "run", time_budget=10.0)
    more, finished = rates(log, tmp_path / "run", time_budget=20.0, resume=True)
    assert finished == "time"
    assert len(first) == len(more) == 10
    assert more == pytest.approx([0.5 * (1 - step / 20) for step in range(10, 20)])
