"""Which methods a configuration is put together from, and which settings they have together."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from widemax.config.fitting import (
    PER_EXAMPLE,
    check_fit,
    check_mixed,
    meeting,
    no_effect,
    one_of,
    overridden,
    unmet,
    wordless,
)
from widemax.config.mixing import Part, parse_parts
from widemax.config.run_options import AUTO, AUTO_WITH, RUN, SLOTS, SOURCES
from widemax.config.settings import all_options, by_heading, in_group, slot_option
from widemax.declarations import Declaration, Option, Value, find, names, nearest, shortened, shown
from widemax.declarations.shared import UNORDERED

AUTO_ORDER = "auto"


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
    for part, need, _ in unmet(parts, list(parts.values())):
        if usual.kind in (part.kind, need.slot):
            return f"{part.name} needs {need.slot} = {one_of(meeting(need))}"
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
    slot_option("model").check("model", name)
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
    # A word is usual where the option takes it, which one of a plug-in may not.
    usual = {
        name: found
        for name, found in usual.items()
        if name not in options or not wordless(name, found[0], options[name], parts)
    }
    for name, option in options.items():
        if name in parts:
            values[name] = parts[name].name
        elif option.parts:
            # In one way of writing, so that equal mixtures are equal.
            values[name] = option.check(name, ", ".join(str(part) for part, _ in mixed))
        elif name in given:
            if reason := wordless(name, given[name], option, parts):
                raise ValueError(f"{name} {reason}")
            values[name] = option.check(name, given[name])
        else:
            values[name] = option.check(name, usual[name][0]) if name in usual else option.default
        origins[name] = "given" if name in given else usual.get(name, (0, "default"))[1]
    for name in given:
        reason = overridden(name, parts, mixed) or no_effect(name, options, values, parts, source)
        if reason:
            raise ValueError(f"{name} {reason}")
    check_fit(parts, [each for _, each in mixed], values)
    check_mixed([each for _, each in mixed], values, given)
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
        found[slot] = slot_option(slot)
        for option in part.options:
            found.setdefault(option.name, in_group(option, part.kind))
    for mixed_part, part in mixed:
        for option in part.options:
            if option.name not in dict(mixed_part.options):
                found.setdefault(option.name, in_group(option, part.kind))
    for part in (RUN, *(SOURCES[each] for each in SOURCES if source in (None, each))):
        found |= {option.name: option for option in part.options}
    return by_heading(found)


def check_key(name: str, known: Mapping[str, Option]) -> None:
    """Raise if nothing has a setting of that name; the error names the nearest one.

    >>> check_key("learning-rat", all_options())
    Traceback (most recent call last):
    ValueError: 'learning-rat' is not a setting; did you mean 'learning_rate'?
    """
    if name not in known:
        hint = nearest(name, tuple(known)) or "; widemax train --help-all lists them"
        raise ValueError(f"{shortened(repr(name))} is not a setting{hint}")


def _shown(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
