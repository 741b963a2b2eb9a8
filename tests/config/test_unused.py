"""Settings without an effect are refused, wherever they come from; all others change something."""

import functools

import polars as pl
import pytest
import torch
from torch import nn

from tests.config.configurations import needed_by, settings_beside
from widemax.config import Config, read_config, show_config
from widemax.config.toml import to_toml, toml_value
from widemax.data import FeatureTable, Sequences
from widemax.data.summary import DataSummary
from widemax.declarations import declared, names
from widemax.declarations.table import load
from widemax.models.building import RunSetup
from widemax.vocabulary import Vocabulary

UNUSED = [
    ({"head": "full", "num_samples": 100}, "num_samples has no effect with head = 'full', which"),
    ({"head": "full", "sampler": "unigram"}, "sampler has no effect with head = 'full', which has"),
    # Also where it is the default: who says it believes that it matters.
    ({"head": "full", "sampler": "log-uniform"}, "sampler .* head = importance or sampled$"),
    ({"head": "importance", "objective": "nce"}, "objective .* it needs head = sampled$"),
    ({"sampler": "in-batch", "num_samples": 9}, "num_samples .* it needs sampler = adaptive"),
    ({"sampler": "uniform", "distortion": 0.5}, "distortion .* sampler = market or unigram$"),
    # Where a method that is usually taken with one has the setting, that one is named as well.
    ({"model": "popularity", "item_features": "items.csv"},
     "item_features .* it needs model = airbnb, airbnb-types, eges, sdm or two-tower; "
     r"--titles \(titles\) shows the columns of a file with any model$"),
    ({"steps": 5, "epochs": 2}, "epochs has no effect with steps = 5"),
    ({"model": "next-item", "window": 2}, "window has no effect with model = 'next-item': it"),
    ({"validation_size": 0, "patience": 2}, "patience has no effect with validation_size = 0"),
    ({"model": "sdm", "num_interests": 4}, "num_interests .* 'sdm': it needs model = mind$"),
    ({"model": "popularity", "learning_rate": 1.0}, "learning_rate .* popularity is fitted at "),
    ({"model": "cbow", "learning_rate": "auto"},
     "learning_rate cannot be 'auto' with trainer = 'kernel': it needs trainer = torch$"),
    ({"model": "popularity", "learning_rate": "auto"},
     "learning_rate .* by which popularity is fitted at once$"),
    ({"model": "popularity", "head": "full"}, "head .* 'popularity', which has no head: it needs"),
    ({"model": "ease", "num_samples": 5}, "num_samples .* 'ease', .*, and a head with a sampler$"),
    ({"model": "ease", "calibration": 0.5}, "calibration .*, and a head with an objective$"),
    ({"model": "two-tower", "bias": True},
     "bias .* head = 'sampled' and scorer = 'tower': it needs head = adaptive or hierarchical, or "
     "scorer = char-cnn, differentiated, sharded or table$"),
    ({"head": "adaptive", "similarity": "dot"}, "similarity .* which has no scorer"),
    ({"sampler": "uniform", "mixture": "uniform, unigram"}, "mixture .* sampler = mixture$"),
    ({"model": "popularity", "max_history": 9}, "max_history has no effect with model = 'popular"),
    ({"model": "mind", "num_layers": 0, "hidden_size": 9}, "hidden_size .* with num_layers = 0$"),
    ({"sampler": "mixture", "mixture": "unigram(distortion=1), uniform", "distortion": 0.5},
     "distortion has no effect: every part of the mixture that has it sets its own$"),
    ({"sampler": "mixture", "mixture": "unigram, market", "per_example": False},
     "per_example must be true: 'market' draws for each example$"),
    ({"model": "cbow", "trainer": "kernel", "batch_size": 4}, "batch_size .* trainer = torch$"),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "named"), UNUSED)
def test_fault_37_a_setting_without_effect_is_refused_from_python(settings, named):
    with pytest.raises(ValueError, match=f"^{named}"):
        Config(**settings)


@pytest.mark.parametrize(("settings", "named"), UNUSED)
def test_fault_37_a_flag_without_effect_is_refused_as_it_was_typed(settings, named):
    name, space, rest = named.partition(" ")
    with pytest.raises(ValueError, match=f"^--{name.replace('_', '-')}{space}{rest}"):
        read_config(None, settings)


@pytest.mark.parametrize(("settings", "named"), UNUSED)
def test_fault_37_what_a_file_sets_in_vain_is_refused_with_its_name(settings, named, tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("\n".join(f"{name} = {toml_value(value)}" for name, value in settings.items()))
    with pytest.raises(ValueError, match=f"^{path}: {named}"):
        read_config(path, {})


def test_a_flag_can_take_the_effect_of_a_setting_in_the_file(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('num_samples = 100\nsampler = "log-uniform"\nseed = 3\n')
    assert read_config(path, {}).config == Config(num_samples=100, seed=3)
    with pytest.raises(ValueError, match=f"^{path}: num_samples has no effect with head = 'full'"):
        read_config(path, {"head": "full"})
    # A flag overrides the file, and then it is the flag that is at fault.
    with pytest.raises(ValueError, match=r"^--num-samples has no effect"):
        read_config(path, {"head": "full", "num_samples": 5})


@pytest.mark.parametrize("model", ["auto", *names("model")])
@pytest.mark.parametrize("written", [to_toml, None])
def test_a_file_that_the_program_wrote_is_read_again(written, model, tmp_path):
    path = tmp_path / "run.toml"
    settings = {"model": model, "head": "full", "validation_size": 0, "steps": 7}
    possible = Config(model=model)
    resolved = read_config(None, {each: settings[each] for each in settings if possible.has(each)})
    path.write_text(written(resolved.config) if written else show_config(resolved))
    assert read_config(path, {}).config == resolved.config


KEYS = [f"word{number:02}" for number in range(30)]
WORDS = Vocabulary.from_counts(KEYS, [100 - 3 * number for number in range(30)])
TEXT = Sequences.from_lists([[(start * step) % 30 for step in range(9)] for start in range(30)])
FEATURES = FeatureTable.fit(
    pl.DataFrame({"key": KEYS, "group": [f"g{key[-1]}" for key in KEYS]}), KEYS, key_column="key"
)
OTHER = {
    "distortion": 0.1, "mixture": "unigram=1, uniform=2", "max_classes": 5, "queue_size": 7,
    "num_ranks": 9, "top_k": 5, "tree": "balanced", "similarity": "cosine", "shard_by": "div",
}  # fmt: skip


def shape_of(thing, depth=16):
    """Return all that distinguishes two methods: their types, numbers, texts and tensors."""
    if isinstance(thing, torch.Tensor):
        return tuple(thing.shape), thing.dtype, thing.double().sum().item()
    if isinstance(thing, functools.partial):
        return thing.func.__name__, sorted(thing.keywords.items())
    if isinstance(thing, bool | int | float | str | type(None)):
        return thing
    if isinstance(thing, list | tuple):
        return [shape_of(each, depth - 1) for each in thing]
    if isinstance(thing, dict):
        return [(str(key), shape_of(each, depth - 1)) for key, each in thing.items()]
    if depth and hasattr(thing, "__dict__") and not isinstance(thing, torch.Generator):
        return type(thing).__name__, shape_of(vars(thing), depth - 1)
    return type(thing).__name__


def head_of(config):
    torch.manual_seed(0)
    summary = DataSummary(kind="text", vocabulary=WORDS, item_features=FEATURES)
    return RunSetup(config, summary, TEXT).head(8)


PARTS = [
    (kind, each.name, option.name)
    for kind in ("head", "scorer", "sampler", "objective")
    for each in declared(kind).values()
    for option in each.options
    if option.group != "Data"
]


@pytest.mark.parametrize(("kind", "method", "name"), PARTS)
def test_a_setting_that_is_allowed_changes_the_head_that_is_built(kind, method, name):
    settings = {**settings_beside(kind, method), kind: method}
    # Such as hidden units, which need a hidden layer.
    settings |= needed_by(Config(**settings).options[name])
    small = {"num_samples": 3} if Config(**settings).has("num_samples") else {}
    config = Config(**settings | small)
    option = config.options[name]
    value = OTHER.get(name, not config.values[name] if option.kind is bool else None)
    if value is None:
        value = config.values[name] + 1 if option.kind is int else (option.least + 1) / 2
    assert value != config.values[name]
    assert shape_of(head_of(config)) == shape_of(head_of(config))
    assert shape_of(head_of(config)) != shape_of(head_of(config.changed(**{name: value})))


@pytest.mark.parametrize(
    ("kind", "method"),
    [(kind, each) for kind in ("head", "scorer", "sampler", "objective") for each in names(kind)],
)
def test_what_is_built_is_the_method_that_was_named(kind, method):
    head = head_of(Config(**settings_beside(kind, method), **{kind: method}))
    built = head if kind == "head" else getattr(head, kind)
    wanted = load(declared(kind)[method])
    if isinstance(built, nn.Module):
        assert type(built) is wanted
    else:
        assert getattr(built, "func", built) is wanted
