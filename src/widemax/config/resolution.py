"""Which methods a configuration is put together from, and which settings they have together."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from widemax.config.mixing import Part, parse_parts
from widemax.config.run_options import AUTO, AUTO_WITH, GROUPS, RUN, SLOTS, SOURCES, place
from widemax.declarations import (
    Declaration,
    Need,
    Option,
    Value,
    declared,
    find,
    names,
    nearest,
    shortened,
    shown,
)
from widemax.declarations.shared import UNORDERED

PER_EXAMPLE = "per-example"
"""The trait of samplers that always draw for each example."""

AUTO_ORDER = "auto"

_INSTEAD = {"item_features": "--titles (titles) shows the columns of a file with any model"}
"""What else may have been wanted of a setting that a method does not have."""


@dataclass(frozen=True, kw_only=True)
class Resolution:
    """The methods of a configuration, and every setting that these have."""

    parts: Mapping[str, Declaration]
    """The method in each slot."""
    mixed: tuple[tuple[Part, Declaration], ...]
    """The methods of a mixture."""
    options: Mapping[str, Option]
    """Every setting of the chosen methods and of the data, in the order of the headings."""
    values: Mapping[str, Value]
    """What each of them is."""
    origins: Mapping[str, str]
    """Why: given, usual with a method, or because another one does not fit; else "default"."""


def resolve(
    given: Mapping[str, Value], source: str | None, traits: Collection[str] = ()
) -> Resolution:
    """Put the methods together that are given, usual or default, and check that they fit.

    ``traits`` are those of the data's format, for a model that is usually trained otherwise there.

    >>> resolve({"model": "skip-gram"}, None).values["trainer"]
    'kernel'
    >>> other = resolve({"model": "skip-gram", "unique": True}, None)
    >>> other.values["trainer"], other.origins["trainer"]
    ('torch', 'because kernel needs unique = false')
    """
    known = all_options()
    for name in given:
        check_key(name, known)
    if source not in (None, *SOURCES):
        raise ValueError(f"source must be {one_of(list(SOURCES))}, got {shown(source)}")
    model = _model(given, source)
    chosen = [given.get(slot) for slot in SLOTS]
    if not is_ordered(given.get("item_order", AUTO_ORDER), traits):
        chosen.append(UNORDERED)
    for name, usual in model.usual_with.items():
        if name in chosen:
            model = replace(model, usual={**model.usual, **usual})
    if reason := _against_the_usual_trainer(given, model):
        model = replace(model, usual={**model.usual, "trainer": SLOTS["trainer"].default})
    resolution = _resolved(given, model, source)
    if not reason:
        return resolution
    return replace(resolution, origins={**resolution.origins, "trainer": f"because {reason}"})


def is_ordered(asked: Value, traits: Collection[str]) -> bool:
    """Return whether the items of a user have an order, by ``item_order`` or else by the format.

    >>> is_ordered("auto", ["unordered"]), is_ordered("kept", ["unordered"])
    (False, True)
    """
    return UNORDERED not in traits if asked == AUTO_ORDER else asked == "kept"


def _against_the_usual_trainer(given: Mapping[str, Value], model: Declaration) -> str:
    """Return why the model's usual trainer cannot do what is given; empty if it can.

    Also empty if the trainer is given, or if the model can be trained by no other.
    """
    parts = dict(_chosen(given, model))
    usual, general = parts["trainer"], find("trainer", SLOTS["trainer"].default)
    if "trainer" in given or not all(need.is_met(model) for need in general.needs):
        return ""
    for part, need, _ in _unmet(parts, list(parts.values())):
        if usual.kind in (part.kind, need.slot):
            return f"{part.name} needs {need.slot} = {one_of(_meeting(need))}"
    for name, wanted in usual.fixed.items():
        if given.get(name, wanted) != wanted:
            return f"{usual.name} needs {name} = {_shown(wanted)}"
    own = {option.name for part in parts.values() for option in part.options}
    for option in general.options:
        if option.name in given and option.name not in own:
            return f"{usual.name} has no {option.name}"
    return ""


def _model(given: Mapping[str, Value], source: str | None) -> Declaration:
    name = given.get("model", SLOTS["model"].default)
    if name != "auto":
        return find("model", name) if name in names("model") else _unknown_model(name)
    wanted = [model for option, model in AUTO_WITH.items() if given.get(option)]
    if wanted and source != "text":
        return find("model", wanted[0])
    if source is not None:
        return find("model", AUTO[source])
    # The data decide later: until then the settings of both are settings.
    log, text = (find("model", each) for each in AUTO.values())
    return replace(
        log,
        name="auto",
        options=tuple({option.name: option for option in (*log.options, *text.options)}.values()),
        traits=tuple(dict.fromkeys((*log.traits, *text.traits))),
        usual={},
        usual_with={},
    )


def _unknown_model(name: object) -> Declaration:
    _slot_option("model").check("model", name)
    raise AssertionError


def _resolved(given: Mapping[str, Value], model: Declaration, source: str | None) -> Resolution:
    parts: dict[str, Declaration] = {}
    for slot, part in _chosen(given, model):
        parts[slot] = part
    usual = _usual(parts, source)
    mixed = _mixed(given, usual, parts)
    for _, part in mixed:
        if PER_EXAMPLE in part.traits and not usual.get("per_example", (False, ""))[0]:
            usual["per_example"] = True, f"needed by {_called(part)}"
    options = _options(parts, mixed, source)
    _check_usual(usual, options)
    for name in given:
        if name in options and options[name].unless not in given:
            # What is usual must not keep from its effect what is given.
            usual.pop(options[name].unless, None)
    values: dict[str, Value] = {}
    origins: dict[str, str] = {}
    for name, option in options.items():
        if name in parts:
            values[name] = parts[name].name
        elif option.parts:
            # In one way of writing, so that equal mixtures are equal.
            values[name] = option.check(name, ", ".join(str(part) for part, _ in mixed))
        elif name in given:
            if reason := _wordless(name, given[name], option, parts):
                raise ValueError(f"{name} {reason}")
            values[name] = option.check(name, given[name])
        else:
            values[name] = option.check(name, usual[name][0]) if name in usual else option.default
        origins[name] = "given" if name in given else usual.get(name, (0, "default"))[1]
    for name in given:
        reason = _overridden(name, parts, mixed) or _no_effect(name, options, values, parts, source)
        if reason:
            raise ValueError(f"{name} {reason}")
    _check_fit(parts, [each for _, each in mixed], values)
    _check_mixed([each for _, each in mixed], values, given)
    return Resolution(parts=parts, mixed=mixed, options=options, values=values, origins=origins)


def _chosen(given: Mapping[str, Value], model: Declaration) -> Iterator[tuple[str, Declaration]]:
    """Yield the method in each slot, from the model down."""
    yield "model", model
    above, waiting = [model], list(model.slots)
    while waiting:
        slot = waiting.pop(0)
        usual = [each.usual[slot] for each in above if slot in each.usual]
        part = find(slot, given.get(slot, usual[0] if usual else SLOTS[slot].default))
        yield slot, part
        above.append(part)
        waiting += part.slots


def _usual(parts: Mapping[str, Declaration], source: str | None) -> dict[str, tuple[Value, str]]:
    """Return what the methods and the data are usually trained with; the model knows best.

    What a method cannot be trained without comes before what is usual with another.
    """
    found: dict[str, tuple[Value, str]] = {}
    chosen = {part.name for part in parts.values()}
    for part in (*parts.values(), *((SOURCES[source],) if source else ())):
        conditional = [part.usual_with[name] for name in part.usual_with if name in chosen]
        for usual in (*conditional, part.usual):
            for name, value in usual.items():
                found.setdefault(name, (value, f"usual with {_called(part)}"))
    for part in parts.values():
        for name, value in part.fixed.items():
            if name in found and found[name][0] != value:
                found[name] = value, f"needed by {_called(part)}"
    return found


def _called(part: Declaration) -> str:
    return f"a {part.name}" if part.kind == "source" else f"{part.kind} {part.name}"


def _check_usual(usual: Mapping[str, tuple[Value, str]], options: Mapping[str, Option]) -> None:
    """Raise if a method is usually trained with what no method has."""
    others = usual.keys() - options.keys()
    known = all_options() if others else options
    for name, (_, reason) in usual.items():
        if name not in known:
            raise ValueError(f"{shortened(repr(name))}, {reason}, is not a setting")


def _mixed(
    given: Mapping[str, Value],
    usual: Mapping[str, tuple[Value, str]],
    parts: Mapping[str, Declaration],
) -> tuple[tuple[Part, Declaration], ...]:
    for part in parts.values():
        for option in part.options:
            if option.parts:
                default = usual.get(option.name, (option.default, ""))[0]
                text = option.check(option.name, given.get(option.name, default))
                listed = parse_parts(option.parts, option.name, str(text))
                return tuple((each, find(option.parts, each.name)) for each in listed)
    return ()


def _options(
    parts: Mapping[str, Declaration],
    mixed: tuple[tuple[Part, Declaration], ...],
    source: str | None,
) -> dict[str, Option]:
    """Return every setting of the methods and of the data, heading by heading."""
    found: dict[str, Option] = {}
    for slot, part in parts.items():
        found[slot] = _slot_option(slot)
        for option in part.options:
            found.setdefault(option.name, in_group(option, part.kind))
    for mixed_part, part in mixed:
        for option in part.options:
            if option.name not in dict(mixed_part.options):
                found.setdefault(option.name, in_group(option, part.kind))
    for part in (RUN, *(SOURCES[each] for each in SOURCES if source in (None, each))):
        found |= {option.name: option for option in part.options}
    return _by_heading(found)


def in_group(option: Option, kind: str) -> Option:
    """Return an option with the heading it stands under."""
    return option if option.group else replace(option, group=GROUPS[kind])


def _slot_option(slot: str) -> Option:
    """Return the setting that names the method of a slot."""
    choices = ("auto", *names(slot)) if slot == "model" else names(slot)
    return replace(SLOTS[slot], choices=choices, group=GROUPS[slot], names_method=True)


def _by_heading(options: Mapping[str, Option]) -> dict[str, Option]:
    return dict(sorted(options.items(), key=lambda each: place(each[1])))


def all_options() -> dict[str, Option]:
    """Return every setting there is, whichever method it belongs to, heading by heading.

    >>> all_options()["dimension"].limits
    'a whole number between 1 and 65,536'
    """
    found: dict[str, Option] = {}
    for slot in SLOTS:
        found[slot] = _slot_option(slot)
        for part in declared(slot).values():
            for each in part.options:
                # A word that some method takes for a number is a value wherever settings are read.
                if each.name not in found or (each.word and not found[each.name].word):
                    found[each.name] = in_group(each, slot)
    for part in (RUN, *SOURCES.values()):
        found |= {option.name: option for option in part.options}
    return _by_heading(found)


def varying_defaults() -> set[str]:
    """Return the settings that some method usually has with another value than the default.

    >>> {"dimension", "sampler", "seed"} & varying_defaults() == {"dimension", "sampler"}
    True
    """
    known = all_options()
    return {
        name
        for kind in SLOTS
        for part in declared(kind).values()
        for values in (
            {option.name: option.default for option in part.options},
            part.usual,
            *part.usual_with.values(),
        )
        for name, value in values.items()
        if name in known and known[name].default != value
    }


def check_key(name: str, known: Mapping[str, Option]) -> None:
    """Raise if nothing has a setting of that name; the error names the nearest one.

    >>> check_key("learning-rat", all_options())
    Traceback (most recent call last):
    ValueError: 'learning-rat' is not a setting; did you mean 'learning_rate'?
    """
    if name not in known:
        hint = nearest(name, tuple(known)) or "; widemax train --help-all lists them"
        raise ValueError(f"{shortened(repr(name))} is not a setting{hint}")


def _no_effect(
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
    hint = f"; {_INSTEAD[name]}" if name in _INSTEAD else ""
    return f"has no effect with {chosen}: it needs {wanted}{hint}"


def _wordless(name: str, value: Value, option: Option, parts: Mapping[str, Declaration]) -> str:
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


def _overridden(
    name: str, parts: Mapping[str, Declaration], mixed: tuple[tuple[Part, Declaration], ...]
) -> str:
    """Say so if every part of a mixture that has an option sets its own value of it."""
    if any(name in option_names(part) for part in parts.values()):
        return ""
    having = [part for part, each in mixed if name in option_names(each)]
    if not having or any(name not in dict(part.options) for part in having):
        return ""
    return "has no effect: every part of the mixture that has it sets its own"


def option_names(part: Declaration) -> set[str]:
    """Return the names of a method's options."""
    return {option.name for option in part.options}


def _check_mixed(
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


def _check_fit(
    parts: Mapping[str, Declaration], mixed: list[Declaration], values: Mapping[str, Value]
) -> None:
    """Raise for methods that are right by themselves and wrong together."""
    every = [*parts.values(), *mixed]
    for part, need, other in _unmet(parts, every):
        raise ValueError(
            f"{part.kind} = {part.name!r} {need.why}: {need.slot} must be "
            f"{one_of(_meeting(need))}, got {other.name!r}"
        )
    for part in every:
        for name, wanted in part.fixed.items():
            if name in values and values[name] != wanted:
                raise ValueError(
                    f"{part.kind} = {part.name!r} needs {name} = {wanted!r}, got {values[name]!r}"
                )


def _unmet(
    parts: Mapping[str, Declaration], every: list[Declaration]
) -> Iterator[tuple[Declaration, Need, Declaration]]:
    """Yield each method, what it needs, and the other one that is not so."""
    for part in every:
        for need in part.needs:
            other = parts.get(need.slot)
            # A model that the data decide on is checked when they have.
            if other is not None and other.name != "auto" and not need.is_met(other):
                yield part, need, other


def _meeting(need: Need) -> list[str]:
    return [each.name for each in declared(need.slot).values() if need.is_met(each)]


def _shown(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
