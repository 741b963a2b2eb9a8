"""The configuration: what it declares, what it accepts, and where its values come from."""

import dataclasses
import importlib
import inspect
import json
import math
import tomllib

import pytest
import torch

from widemax import registry
from widemax.optim import RowAdam
from widemax.runs.config.config import NOT_BY_NAME, Config, settings
from widemax.runs.config.resolved import read_config, show
from widemax.runs.config.settings import MAX_TEXT, registered
from widemax.runs.heads import build_sampler
from widemax.sampling import UnigramSampler
from widemax.scoring import TableScorer
from widemax.validation import MAX_SAMPLES


@pytest.mark.parametrize("table", ["SAMPLERS", "OBJECTIVES", "HEADS", "SCORERS", "MODELS"])
def test_names_are_those_of_the_registry(table):
    """They are read from its source, so a table that is no plain dict would lose them."""
    assert registered(table) == tuple(getattr(registry, table, ()))


def test_choices_come_from_the_registry():
    assert {*settings()["sampler"].choices, *NOT_BY_NAME} == {*registry.SAMPLERS}
    assert settings()["objective"].choices == tuple(registry.OBJECTIVES)
    assert settings()["head"].choices == tuple(registry.HEADS)
    models = getattr(registry, "MODELS", {})
    assert set(settings()["model"].choices) == {"auto", *models}


@pytest.mark.parametrize("name", settings()["sampler"].choices)
def test_every_sampler_that_is_offered_can_be_built(name):
    sampler = build_sampler(Config(sampler=name), torch.tensor([5, 3, 1]))
    assert type(sampler) is registry.SAMPLERS[name]


def test_defaults_are_those_of_the_library():
    def default(function, name):
        return inspect.signature(function).parameters[name].default

    assert Config().distortion == default(UnigramSampler, "distortion")
    assert Config().similarity == default(TableScorer, "similarity")
    assert Config().temperature == default(TableScorer, "temperature")
    assert Config().bias == default(TableScorer, "bias")
    assert Config().learning_rate == default(RowAdam, "lr")
    assert settings()["num_samples"].most == MAX_SAMPLES


@pytest.mark.parametrize("name", settings())
def test_every_declaration_is_whole(name):
    setting = settings()[name]
    assert setting.help.endswith(".")
    assert "[" not in setting.help, "the terminal would take it for markup"
    assert setting.kind in (bool, int, float, str)
    assert setting.check(name, setting.default) == setting.default
    if setting.kind in (int, float):
        assert setting.least < setting.most
        assert type(setting.least) is type(setting.most) is setting.kind
    if setting.choices:
        assert setting.default in setting.choices


@pytest.mark.parametrize("name", [name for name, each in settings().items() if each.most])
def test_both_limits_belong_to_the_range_and_their_neighbours_do_not(name):
    setting = settings()[name]
    if setting.kind is int:
        outside = setting.least - 1, setting.most + 1
    else:
        outside = math.nextafter(setting.least, -math.inf), math.nextafter(setting.most, math.inf)
    for value in (setting.least, setting.most):
        assert setting.check(name, value) == value
    for value in outside:
        with pytest.raises(ValueError, match=rf"^{name} must be a .*number between"):
            setting.check(name, value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"dimension": 0}, "dimension must be a whole number between 1 and 65,536, got 0"),
        ({"dimension": 64.0}, "dimension must be a whole number .*, got 64.0"),
        ({"dimension": True}, "dimension must be a whole number .*, got true"),
        ({"dimension": "64"}, "dimension must be a whole number .*, got the text '64'"),
        ({"seed": -1}, "seed must be .*, got -1"),
        ({"seed": 1 << 20_000}, "seed must be .*, got a number of 20,001 bits"),
        ({"learning_rate": math.nan}, "learning_rate must be a number .*, got nan"),
        ({"time_budget": math.inf}, "time_budget must be a number .*, got inf"),
        ({"clip_norm": -math.inf}, "clip_norm must be a number .*, got -inf"),
        ({"clip_norm": 10**400}, "clip_norm must be a number .*, got a number of 1,329 bits"),
        ({"learning_rate": False}, "learning_rate must be a number .*, got false"),
        ({"learning_rate": None}, "learning_rate must be .*, got a value of type NoneType"),
        ({"bias": 1}, "bias must be true or false, got 1"),
        ({"bias": "true"}, "bias must be true or false, got the text 'true'"),
        ({"similarity": "cosin"}, r"one of dot, cosine, got .*; did you mean 'cosine'\?"),
        ({"similarity": 3}, "similarity must be one of dot, cosine, got 3$"),
        ({"head": "zzzz"}, "got the text 'zzzz'$"),
        ({"user_column": "u" * (MAX_TEXT + 1)}, "user_column must be a text of at most 200"),
        ({"user_column": "\ud800"}, r"user_column must be .*, got the text '\\ud800'"),
        ({"user_column": ["a"]}, "user_column must be .*, got a list"),
        ({"steps": 10, "warmup_steps": 11}, "warmup_steps must be at most steps = 10, got 11"),
        ({"head": "adaptive", "temperature": 2}, "temperature 1, got 'dot' and 2"),
        ({"head": "hierarchical", "similarity": "cosine"}, "similarity must be 'dot'"),
        ({"head": "importance", "sampler": "in-batch"}, "head = 'importance' draws"),
        ({"objective": "full-softmax"}, "sampler must be 'all', got 'log-uniform'"),
    ],
)
def test_a_wrong_value_is_named_with_what_it_must_be(values, message):
    with pytest.raises(ValueError, match=message):
        Config(**values)


def test_a_long_wrong_value_does_not_flood_the_message():
    with pytest.raises(ValueError, match="sampler must be") as raised:
        Config(sampler="x" * 1_000_000)
    assert len(str(raised.value)) < 400


def test_a_configuration_is_frozen_and_holds_its_declared_types():
    config = Config(learning_rate=1, warmup_steps=11)
    assert type(config.learning_rate) is float
    for name, setting in settings().items():
        assert type(getattr(config, name)) is setting.kind
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.seed = 1
    with pytest.raises(ValueError, match="epochs must be"):
        dataclasses.replace(config, epochs=0)
    with pytest.raises(TypeError):
        Config("auto")


def test_flags_win_over_the_file_and_the_file_over_the_defaults(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("epochs = 3\nseed = 5\nlearning_rate = 1")
    resolved = read_config(path, {"seed": 7, "bias": False, "head": None})
    assert resolved.config == Config(epochs=3, seed=7, learning_rate=1.0)
    assert {name: origin for name, origin in resolved.origins.items() if origin != "default"} == {
        "epochs": f"file {path}",
        "learning_rate": f"file {path}",
        "seed": "flag",
        "bias": "flag",
    }
    assert list(resolved.origins) == list(settings())


def test_a_wrong_flag_is_named_as_it_was_typed():
    with pytest.raises(ValueError, match=r"^--learning-rate must be .*, got 0"):
        read_config(None, {"learning_rate": 0})
    with pytest.raises(ValueError, match=r"'learning_rte' is not .* mean 'learning_rate'\?"):
        read_config(None, {"learning_rte": 0.1})


def test_what_is_shown_is_itself_a_configuration_file(tmp_path):
    path = tmp_path / 'odd\x1b[31m\n"name".toml'
    path.write_text("epochs = 3")
    resolved = read_config(path, {"user_column": '\x1b]0;title\x07 #"\\'})
    text = show(resolved)
    assert Config(**tomllib.loads(text)) == resolved.config
    assert len(text.splitlines()) == len(settings())
    assert text.replace("\n", "").isprintable(), "a file's name must not command the terminal"
    starts = {line.index(" # ") for line in text.splitlines()}
    assert len(starts) == 1


def test_what_is_shown_as_json_holds_every_value_and_its_origin():
    entries = json.loads(show(read_config(None, {"seed": 4}), as_json=True))
    assert {name: entry["value"] for name, entry in entries.items()} == dataclasses.asdict(
        Config(seed=4)
    )
    assert {name for name, entry in entries.items() if entry["origin"] == "flag"} == {"seed"}


def test_a_registry_with_models_gives_their_names(monkeypatch):
    """The table of models may be written in either way that Python has for a constant."""
    module = importlib.import_module("widemax.runs.config.settings")
    for source in ('MODELS: Mapping[str, int] = {"nnlm": 1, "YouTube": 2}', "MODELS = {'nnlm': 1}"):
        monkeypatch.setattr(module.Path, "read_text", lambda *_, text=source, **__: text)
        registered.cache_clear()
        assert registered("MODELS")[0] == "nnlm"
        assert registered("SAMPLERS") == ()
    registered.cache_clear()
