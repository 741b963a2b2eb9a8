"""A learning rate that a range test finds: which one, once, and without a trace in the run."""

import math

import pytest
import torch
from typer.testing import CliRunner

import widemax as wm
from widemax.cli.app import app
from widemax.config.toml import read_toml
from widemax.runs.folder.settings import stored_config
from widemax.runs.training import starting
from widemax.runs.training.preparing import prepare
from widemax.training.guard import NonFiniteError
from widemax.training.range_test import BELOW_HALFWAY, RANGE_STEPS, RangeTest, range_test


def descending(halfway, *, first=8.0, last=5.0):
    """Return a training whose loss falls from a level to another, and is between them at a rate."""

    def take(step, rate):
        return last + (first - last) / (1 + (rate / halfway) ** 2)

    return take


@pytest.mark.parametrize("halfway", [1e-3, 2e-2, 0.5])
def test_the_rate_follows_where_the_loss_falls(halfway):
    found = range_test(descending(halfway))
    assert len(found.losses) == RANGE_STEPS
    assert found.rates[0] == pytest.approx(1e-5)
    assert found.rates[-1] == pytest.approx(10.0)
    ratios = {later / earlier for earlier, later in zip(found.rates, found.rates[1:], strict=False)}
    assert max(ratios) == pytest.approx(min(ratios))
    assert found.halfway == pytest.approx(halfway, rel=0.2)
    assert found.rate == pytest.approx(found.halfway / BELOW_HALFWAY, rel=0.06)


def test_a_later_rise_and_a_second_fall_from_a_worse_level_do_not_count():
    fall = descending(1e-3)

    def take(step, rate):
        spoilt = 6.0 / (1 + (0.05 / rate) ** 4)
        return fall(step, rate) + spoilt * (1.0 if rate < 2 else 0.3)

    assert range_test(take).halfway == pytest.approx(1e-3, rel=0.2)


@pytest.mark.parametrize("end", [math.nan, math.inf, 25.0, NonFiniteError])
def test_a_test_ends_where_the_loss_does(end):
    fall, seen = descending(1e-3), []

    def take(step, rate):
        if step < 60:
            return fall(step, rate)
        if end is NonFiniteError:
            raise NonFiniteError(step=step, tensor="weight", value=math.nan)
        return end

    found = range_test(take, on_step=seen.append)
    assert len(found.losses) == (61 if end == 25.0 else 60)
    assert seen == list(range(1, 61))
    assert found.halfway == pytest.approx(1e-3, rel=0.2)


def test_what_cannot_be_trained_says_so():
    with pytest.raises(ValueError, match=r"^learning_rate cannot be found: .* 0 of 100 steps"):
        range_test(lambda step, rate: math.nan)
    with pytest.raises(ValueError, match=r"^learning_rate cannot be found: the loss never fell"):
        _ = range_test(lambda step, rate: 1.0 + step / 100).rate
    flat = RangeTest(rates=[1e-3] * 20, losses=[2.0] * 20)
    with pytest.raises(ValueError, match="never fell"):
        _ = flat.rate


@pytest.fixture
def log(tmp_path):
    rows = [f"{user},{(user * 3 + step) % 20}" for user in range(60) for step in range(6)]
    path = tmp_path / "log.csv"
    path.write_text("\n".join(["user,item", *rows]) + "\n")
    return path


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("the cat sat on the mat and the dog sat on the log\n" * 200)
    return path


SMALL = {"dimension": 8, "batch_size": 100, "epochs": 2, "patience": 0}
CASES = {
    "tables": {"model": "next-item", "averaging": 0.5},
    "dropout": {"model": "sasrec", "max_history": 5, "dropout": 0.3},
    "words": {"model": "nnlm", "hidden_size": 8, "min_count": 1},
    # What a step leaves to the next, and streams that are read in order.
    "carried": {"model": "lstm", "hidden_size": 8, "min_count": 1, "dropout": 0.2},
}


def same(one, other):
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        return all(same(value, other[name]) for name, value in one.items())
    if isinstance(one, list | tuple):
        return all(same(*pair) for pair in zip(one, other, strict=True))
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


@pytest.mark.parametrize("name", CASES)
def test_the_training_is_that_of_the_rate_typed_bit_for_bit(name, log, text, tmp_path):
    source = text if name in ("words", "carried") else log
    settings = {**SMALL, **CASES[name]}
    before = torch.get_rng_state()
    found = prepare(source, wm.Config(**settings, learning_rate="auto"), tmp_path / "found")
    assert torch.equal(before, torch.get_rng_state())
    rate = found.config.learning_rate
    assert isinstance(rate, float)
    typed = prepare(source, wm.Config(**settings, learning_rate=rate), tmp_path / "typed")
    for _ in range(2):  # as they start, and as they end
        found.loop.steps.publish()
        typed.loop.steps.publish()
        assert same(found.model.state_dict(), typed.model.state_dict())
        assert same(found.loop.steps.state(), typed.loop.steps.state())
        assert torch.equal(found.random_state, typed.random_state)
        found.run()
        typed.run()


def test_the_figure_is_kept_and_a_resumed_run_does_not_look_for_it_again(
    log, tmp_path, monkeypatch
):
    config = wm.Config(model="next-item", **SMALL, learning_rate="auto")
    training = prepare(log, config, tmp_path / "run")
    training.run()
    rate = training.config.learning_rate
    assert read_toml(tmp_path / "run" / "config.toml")["learning_rate"] == rate
    assert stored_config(tmp_path / "run").learning_rate == rate
    monkeypatch.setattr(starting, "range_test", None)
    for given in ({}, {"learning_rate": "auto"}, {"learning_rate": rate}):
        again = wm.Config(model="next-item", **given, epochs=3)
        resumed = prepare(log, again, tmp_path / "run", resume=True)
        assert resumed.config.learning_rate == rate
        assert resumed.loop.plan.learning_rate(0, 0.0) == rate
        resumed.loop.store.__exit__(None, None, None)


def test_a_run_of_a_typed_rate_is_not_resumed_by_another(log, tmp_path):
    prepare(log, wm.Config(model="next-item", **SMALL), tmp_path / "run").run()
    config = wm.Config(model="next-item", learning_rate="auto")
    with pytest.raises(ValueError, match=r"^learning_rate is 'auto', and .* was started with 0"):
        prepare(log, config, tmp_path / "run", resume=True)


def test_the_command_says_what_was_found(log, tmp_path):
    settings = {**SMALL, "model": "next-item", "learning-rate": "auto", "folder": tmp_path / "run"}
    flags = [part for name, value in settings.items()
             for part in (f"--{name.replace('_', '-')}", str(value))]  # fmt: skip
    result = CliRunner().invoke(app, ["train", str(log), *flags])
    assert result.exit_code == 0, result.output
    said = [line for line in result.output.splitlines() if line.startswith("learning rate")]
    rate = stored_config(tmp_path / "run").learning_rate
    assert len(said) == 1
    assert said[0].startswith(f"learning rate {rate:g}, by a range test of 100 steps: ")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--model", "skip-gram", "--learning-rate", "auto"],
         "--learning-rate cannot be 'auto' with trainer = 'kernel': it needs trainer = torch"),
        (["--model", "ease", "--learning-rate", "auto"], "--learning-rate has no effect with"),
        (["--learning-rate", "outo"], "--learning-rate must be a number between 1e-12 and 1000, "
         "or auto, got the text 'outo'; did you mean 'auto'?"),
        (["--learning-rate", "0"], "--learning-rate must be a number between 1e-12 and 1000, or"),
        (["--model", "next-item", "--weight-decay", "0.1"],
         "weight_decay = 0.1 has no effect: NextItem has no layers"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused_in_a_line(flags, said, log, tmp_path):
    run = ["train", str(log), "--folder", str(tmp_path / "run"), *flags]
    result = CliRunner().invoke(app, run)
    assert isinstance(result.exception, ValueError)  # what the program ends with 2 for
    assert str(result.exception).startswith(said)
    assert not (tmp_path / "run").exists()


def test_decay_by_part_is_that_of_the_flags(log, tmp_path):
    settings = {"model": "sasrec", "max_history": 5, **SMALL}
    config = wm.Config(**settings, weight_decay=0.3, table_weight_decay=0.05)
    training = prepare(log, config, tmp_path / "run")
    training.loop.steps.take(0, 0.01)
    names = {id(each): name for name, each in training.model.named_parameters()}
    decays = {
        names[id(parameter)]: group["weight_decay"]
        for group in training.loop.steps.optimizer.param_groups
        for parameter in group["params"]
    }
    assert decays.keys() == set(names.values())
    assert decays["encoder.items.weight"] == decays["encoder.positions"] == 0.05
    assert decays["encoder.blocks.0.inner.weight"] == 0.3
    assert decays["encoder.norm.weight"] == decays["encoder.blocks.0.attention.output.bias"] == 0.0
    assert decays["head.scorer.bias"] == 0.0
    training.loop.store.__exit__(None, None, None)
