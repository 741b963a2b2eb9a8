"""Settings that the data decide: the rules, and that a number which is typed wins."""

import pytest
import torch

from widemax.config import Config
from widemax.declarations import declared
from widemax.models import MIND, NextItem, YouTubeDNN
from widemax.models.automatic import chosen_temperature, open_settings, with_numbers
from widemax.training.epochs import chosen_epochs

SIZES = [0, 1, 10, 1000, 6172, 6173, 20_000, 100_000, 499_999, 500_000, 10**6, 10**9, 10**15]


def test_the_more_there_is_to_learn_from_the_lower_the_temperature():
    found = [chosen_temperature(size) for size in SIZES]
    assert found == sorted(found, reverse=True)
    assert (found[0], found[-1]) == (0.3, 0.1)
    assert chosen_temperature(500_000) == 0.1
    assert chosen_temperature(400_000) == 0.11
    assert chosen_temperature(31_250) == 0.2  # a sixteenth of half a million


@pytest.mark.parametrize(("trainer", "fewest", "most"), [("torch", 20, 100), ("kernel", 5, 40)])
def test_the_more_there_is_to_learn_from_the_fewer_the_epochs(trainer, fewest, most):
    found = [chosen_epochs("auto", size, trainer=trainer) for size in SIZES]
    assert found == sorted(found, reverse=True)
    assert (found[0], found[-1]) == (most, fewest)
    assert chosen_epochs("auto", 10**6, trainer=trainer) == 20
    assert chosen_epochs("auto", 250_000, trainer=trainer) == 40
    assert chosen_epochs(3, 250_000, trainer=trainer) == 3


DECIDED = {"temperature", "epochs", "max_history", "tied"}


@pytest.mark.parametrize("source", ["log", "text", "lists"])
@pytest.mark.parametrize("model", sorted(declared("model")))
def test_numbers_stand_for_all_that_their_number_decides(model, source):
    try:
        config = Config(source=source, model=model)
    except ValueError:
        return  # not for these data
    decided = with_numbers(config, 1000)
    # A length in steps leaves the epochs without effect.
    wanted = DECIDED - ({"epochs"} if config.get("steps", 0) else set())
    assert not open_settings(decided) & wanted
    before, after = dict(config.values), dict(decided.values)
    changed = {name for name in after if before[name] != after[name]}
    assert changed == open_settings(config) & wanted


@pytest.mark.parametrize("model", ["youtube-dnn", "next-item", "mind"])
def test_a_number_that_is_typed_wins(model):
    typed = {"temperature": 0.7, "epochs": 3, "max_history": 4}
    typed |= {"tied": False} if model != "next-item" else {}
    config = with_numbers(Config(source="log", model=model, **typed), 1000)
    assert {name: config.values[name] for name in typed} == typed


def test_a_length_in_steps_leaves_the_epochs_alone():
    config = with_numbers(Config(source="log", model="youtube-dnn", steps=7), 1000)
    assert config.values["epochs"] == "auto"


@pytest.mark.parametrize("make", [NextItem, MIND, YouTubeDNN])
@pytest.mark.parametrize(("total", "expected"), [(10**6, 0.1), (100_000, 0.15), (40, 0.3)])
def test_a_model_without_a_run_has_the_temperature_of_its_counts(make, total, expected):
    counts = torch.full((20,), total // 20)
    assert make.create(counts, dimension=4).head.scorer.temperature == expected
    assert make.create(counts, dimension=4, temperature=0.7).head.scorer.temperature == 0.7
