"""Configurations for tests, made from what the methods declare."""

from functools import cache
from itertools import combinations

from hypothesis import strategies as st

from widemax.config import Config
from widemax.config.fitting import switched_off
from widemax.config.mixing import MIXES
from widemax.config.run_options import SLOTS
from widemax.config.settings import all_options
from widemax.declarations import declared, names
from widemax.declarations.options import MAX_TEXT

METHODS = [{slot: name} for slot in SLOTS for name in names(slot)]


def accepted(**settings):
    """Return the configuration, None if it is refused."""
    try:
        return Config(**settings)
    except ValueError:
        return None


def needed_by(option):
    """Return a value of the setting without which an option has no effect, if there is one."""
    name = option.only_with
    return (
        {name: {int: 1, float: 0.5, bool: True, str: "x"}[all_options()[name].kind]} if name else {}
    )


@cache
def settings_beside(name, value):
    """Return the fewest methods, and what else it needs, beside which a setting has a value."""
    pairs = ({**one, **other} for one, other in combinations(METHODS, 2))
    for methods in ({}, *METHODS, *pairs):
        for given in (methods, {**methods, **needed_by(all_options()[name])}):
            if name not in given and accepted(**given, **{name: value}):
                return given
    raise AssertionError(f"nothing has {name} = {value!r}")


def values_of(option):
    """Return a strategy for the values that an option allows."""
    if option.kind is bool:
        return st.booleans()
    if option.choices:
        return st.sampled_from(option.choices)
    if option.parts:
        return mixtures(option.parts)
    if option.kind is str:
        return st.text(st.characters(exclude_categories=["Cs"]), max_size=MAX_TEXT)
    numbers = st.integers if option.kind is int else st.floats
    return numbers(option.least, option.most)


@st.composite
def mixtures(draw, kind):
    """Draw a text that lists methods, some with a weight and an option of their own."""
    able = [each for each in declared(kind).values() if MIXES in each.traits]
    pieces = []
    for method in draw(st.lists(st.sampled_from(able), min_size=2, max_size=16)):
        piece = method.name
        own = [option for option in method.options if option.name in ("distortion", "queue_size")]
        if own and draw(st.booleans()):
            piece += f" ({own[0].name} = {draw(values_of(own[0]))!r})"
        if draw(st.booleans()):
            weight = st.floats(0, 1e9, exclude_min=True, exclude_max=True) | st.integers(1, 10**8)
            piece += f" = {draw(weight)!r}"
        pieces.append(piece)
    return ", ".join(pieces)


@st.composite
def configs(draw, source=None):
    """Draw a model, other methods that go with it, and values for the settings they have."""
    given = {"model": draw(st.sampled_from(("auto", *names("model"))))}
    # Some methods only go with another one that is chosen first.
    for slot in draw(st.permutations([slot for slot in SLOTS if slot != "model"])):
        method = draw(st.none() | st.sampled_from(names(slot)))
        if method is not None and accepted(source=source, **given, **{slot: method}):
            given[slot] = method
    config = Config(source=source, **given)
    settings = st.sampled_from([name for name in config.options if name not in SLOTS])
    for name in draw(st.lists(settings, unique=True, max_size=15)):
        value = draw(values_of(config.options[name]))
        # Refused: no effect beside what is drawn by now, or fixed by a method.
        if accepted(source=source, **given, **{name: value}):
            given[name] = value
    return Config(source=source, **given)


def has_effect(config, name):
    """Return whether a setting has an effect in a configuration."""
    return config.has(name) and not switched_off(config.options[name], config.values)


OPTIONS = all_options()
