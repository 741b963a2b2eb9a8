"""A configuration as the flags that lead to it, and another one that differs in a few settings."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

from widemax.config.config import Config
from widemax.config.fitting import switched_off
from widemax.config.run_options import SLOTS
from widemax.config.settings import all_options
from widemax.declarations import Value

_REPLACEABLE = ("trainer", "scorer", "objective", "sampler", "head")
"""Methods that give way to a change that they do not go with, the least important first."""


def revised(config: Config, source: str, changes: Mapping[str, Value]) -> Config:
    """Return a configuration with some settings changed, and whatever it still has as it was.

    Unlike ``Config.changed`` it drops settings of a method that is no longer part of it. What does
    not fit together is a ValueError.

    >>> config = Config(source="log", model="next-item", label_smoothing=0.1, num_samples=64)
    >>> other = revised(config, "log", {"objective": "corrected-log-q"})
    >>> other.objective, other.has("label_smoothing"), other.num_samples
    ('corrected-log-q', False, 64)
    """
    base = _fitting(config, source, changes)
    kept: dict[str, Value] = {}
    for name, value in config.values.items():
        fits = name in base.values and name not in changes and name not in SLOTS
        if fits and not switched_off(config.options[name], config.values):
            kept[name] = value
    return Config(source=source, **{**base.given, **kept})


def _fitting(config: Config, source: str, changes: Mapping[str, Value]) -> Config:
    """Return the methods of a configuration with some changes, and as many others as it takes."""
    slots = {slot: config.values[slot] for slot in SLOTS if config.has(slot)}
    others = [slot for slot in _REPLACEABLE if slot in slots and slot not in changes]
    for number in range(len(others) + 1):
        for left_out in combinations(others, number):
            kept = {slot: name for slot, name in slots.items() if slot not in left_out}
            try:
                return Config(source=source, **{**kept, **changes})
            except ValueError as error:
                reason = error
    raise reason


def minimal_settings(config: Config, source: str) -> dict[str, Value]:
    """Return as few settings as lead to a configuration for a "log", a "text" or a format.

    >>> config = Config(source="log", model="mind", num_interests=2, dropout=0.0, metric="ndcg@20")
    >>> minimal_settings(config, "log")["num_interests"]
    2
    """
    wanted = dict(config.values)
    usual = Config(source=source, model=wanted["model"])
    given = {
        name: value
        for name, value in wanted.items()
        if usual.values.get(name) != value and not switched_off(config.options[name], wanted)
    }
    given = {"model": wanted["model"], **given}
    for name in [name for name in given if name != "model"]:
        rest = {key: value for key, value in given.items() if key != name}
        try:
            same = dict(Config(source=source, **rest).values) == wanted
        except ValueError:
            continue
        if same:
            given = rest
    return given


def as_flags(settings: Mapping[str, Value]) -> list[str]:
    """Return settings as words of a command line.

    >>> as_flags({"unique": False, "num_samples": 64, "objective": "nce"})
    ['--no-unique', '--num-samples', '64', '--objective', 'nce']
    """
    known, words = all_options(), []
    for name, value in settings.items():
        flag = known[name].flag
        if isinstance(value, bool):
            words.append(flag if value else flag.replace("--", "--no-", 1))
        elif known[name].kind is not bool:  # of which "auto" is what no flag stands for
            words += [flag, str(value)]
    return words
