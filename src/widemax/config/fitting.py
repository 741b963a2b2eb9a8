"""What goes together: methods that need others, and settings that have an effect beside others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from widemax.config.mixing import Part
from widemax.config.run_options import LENGTH, SLOTS, SOURCES
from widemax.config.settings import option_names
from widemax.declarations import Declaration, Need, Option, Value, declared

PER_EXAMPLE = "per-example"
"""The trait of samplers that always draw for each example."""

_FITTED = "fitted"
"""The trait of models that have no steps."""

_INSTEAD = {"item_features": "--titles (titles) shows the columns of a file with any model"}
"""What else may have been wanted of a setting that a method does not have."""


def no_effect(
    name: str,
    options: Mapping[str, Option],
    values: Mapping[str, Value],
    parts: Mapping[str, Declaration],
    source: str | None,
) -> str:
    """Return why a setting has no effect; empty if it has one."""
    if name in options:
        return switched_off(options[name], values)
    for kind, own in SOURCES.items():
        if any(option.name == name for option in own.options):
            return f"is for a {kind}, and this is a {source}"
    if name in SLOTS:
        return _without_slot(name, parts)
    owners = [
        (kind, each.name)
        for kind in SLOTS
        for each in declared(kind).values()
        if name in option_names(each)
    ]
    kinds = [kind for kind in dict(owners) if kind in parts]
    # A method that usually goes with one that has the setting takes it as well.
    owners = [
        (kind, each.name)
        for kind in dict(owners)
        for each in declared(kind).values()
        if (kind, each.name) in owners or not set(owners).isdisjoint(each.usual.items())
    ]
    if not kinds:
        return _without_slot(owners[0][0], parts)
    chosen = " and ".join(f"{kind} = {parts[kind].name!r}" for kind in kinds)
    wanted = ", or ".join(
        f"{kind} = {one_of([name for its_kind, name in owners if its_kind == kind])}"
        for kind in kinds
    )
    if kinds == ["trainer"] and _FITTED in parts["model"].traits:
        return f"has no effect with {chosen}, by which {parts['model'].name} is fitted at once"
    hint = f"; {_INSTEAD[name]}" if name in _INSTEAD else ""
    return f"has no effect with {chosen}: it needs {wanted}{hint}"


def wordless(name: str, value: Value, option: Option, parts: Mapping[str, Declaration]) -> str:
    """Return why a word cannot stand for a number, where other methods take it; else nothing."""
    if not isinstance(value, str) or option.word or option.kind is str:
        return ""
    owners = [
        (slot, each.name)
        for slot in parts
        for each in declared(slot).values()
        if any((own.name, own.word) == (name, value) for own in each.options)
    ]
    if not owners:
        return ""
    slot = owners[0][0]
    wanted = one_of([each for its_slot, each in owners if its_slot == slot])
    return f"cannot be {value!r} with {slot} = {parts[slot].name!r}: it needs {slot} = {wanted}"


def one_of(names: list[str]) -> str:
    """Return names as a choice in words.

    >>> one_of(["a", "b", "c"])
    'a, b or c'
    """
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def switched_off(option: Option, values: Mapping[str, Value]) -> str:
    """Return which other setting makes one of the chosen methods' settings pointless, if any."""
    if option.only_with and not values.get(option.only_with):
        return f"has no effect with {option.only_with} = {values.get(option.only_with)!r}"
    if option.unless and values.get(option.unless):
        return f"has no effect with {option.unless} = {values[option.unless]!r}"
    return ""


def still_meant(
    earlier: Mapping[str, Value], later: Mapping[str, Value], options: Mapping[str, Option]
) -> dict[str, Value]:
    """Return the earlier settings but those that go where later ones win over them.

    These are what a later one leaves without effect, and a length that would leave a later one so.

    >>> from widemax.config.settings import all_options
    >>> still_meant({"epochs": 3, "seed": 1}, {"steps": 500}, all_options())
    {'seed': 1}
    >>> still_meant({"steps": 500, "seed": 1}, {"epochs": 3}, all_options())
    {'seed': 1}
    """
    lengths = {name: each.unless for name, each in options.items() if each.group == LENGTH}
    taken = {lengths[name] for name in later if name in lengths}
    return {
        name: value
        for name, value in earlier.items()
        if name not in taken and not (name in options and later.get(options[name].unless))
    }


def _without_slot(slot: str, parts: Mapping[str, Declaration]) -> str:
    """Say which method of the configuration has no place for a kind, and which ones have one."""
    for kind in SLOTS:
        having = [each.name for each in declared(kind).values() if slot in each.slots]
        if having and kind in parts:
            return (
                f"has no effect with {kind} = {parts[kind].name!r}, which has no {slot}: it needs "
                f"{kind} = {one_of(having)}"
            )
        if having:
            article = "an" if slot[0] in "aeiou" else "a"
            return f"{_without_slot(kind, parts)}, and a {kind} with {article} {slot}"
    raise AssertionError(slot)


def overridden(
    name: str, parts: Mapping[str, Declaration], mixed: tuple[tuple[Part, Declaration], ...]
) -> str:
    """Say so if every part of a mixture that has an option sets its own value of it."""
    if any(name in option_names(part) for part in parts.values()):
        return ""
    having = [part for part, each in mixed if name in option_names(each)]
    if not having or any(name not in dict(part.options) for part in having):
        return ""
    return "has no effect: every part of the mixture that has it sets its own"


def check_mixed(
    mixed: list[Declaration], values: Mapping[str, Value], given: Mapping[str, Value]
) -> None:
    """Raise for parts that draw for each example beside parts that draw for the whole batch."""
    by_example = [each.name for each in mixed if PER_EXAMPLE in each.traits]
    shared = [
        each.name
        for each in mixed
        if PER_EXAMPLE not in each.traits and "per_example" not in option_names(each)
    ]
    if by_example and given.get("per_example") is False:
        raise ValueError(f"per_example must be true: {by_example[0]!r} draws for each example")
    if shared and (by_example or values.get("per_example")):
        other = f"{by_example[0]!r} draws" if by_example else "per_example = true draws"
        raise ValueError(
            f"mixture: {shared[0]!r} has one list of candidates for the whole batch and {other} "
            "for each example: they cannot be mixed"
        )


def check_fit(
    parts: Mapping[str, Declaration], mixed: list[Declaration], values: Mapping[str, Value]
) -> None:
    """Raise for methods that are right by themselves and wrong together."""
    every = [*parts.values(), *mixed]
    for part, need, other in unmet(parts, every):
        raise ValueError(
            f"{part.kind} = {part.name!r} {need.why}: {need.slot} must be "
            f"{one_of(meeting(need))}, got {other.name!r}"
        )
    for part in every:
        for name, wanted in part.fixed.items():
            if name in values and values[name] != wanted:
                raise ValueError(
                    f"{part.kind} = {part.name!r} needs {name} = {wanted!r}, got {values[name]!r}"
                )


def unmet(
    parts: Mapping[str, Declaration], every: list[Declaration]
) -> Iterator[tuple[Declaration, Need, Declaration]]:
    """Yield each method, what it needs, and the other one that is not so."""
    for part in every:
        for need in part.needs:
            other = parts.get(need.slot)
            # A model that the data decide on is checked when they have.
            if other is not None and other.name != "auto" and not need.is_met(other):
                yield part, need, other


def meeting(need: Need) -> list[str]:
    """Return the methods that are as another one needs them."""
    return [each.name for each in declared(need.slot).values() if need.is_met(each)]
