"""Every setting there is, whichever method it belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from widemax.config.run_options import GROUPS, RUN, SLOTS, SOURCES, place
from widemax.declarations import Declaration, Option, declared, names


def all_options() -> dict[str, Option]:
    """Return every setting there is, whichever method it belongs to, heading by heading.

    >>> all_options()["dimension"].limits
    'a whole number between 1 and 65,536'
    """
    found: dict[str, Option] = {}
    for slot in SLOTS:
        found[slot] = slot_option(slot)
        for part in declared(slot).values():
            for each in part.options:
                # A word that some method takes for a number is a value wherever settings are read.
                if each.name not in found or (each.word and not found[each.name].word):
                    found[each.name] = in_group(each, slot)
    for part in (RUN, *SOURCES.values()):
        found |= {option.name: option for option in part.options}
    return by_heading(found)


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


def option_names(part: Declaration) -> set[str]:
    """Return the names of a method's options."""
    return {option.name for option in part.options}


def in_group(option: Option, kind: str) -> Option:
    """Return an option with the heading it stands under."""
    return option if option.group else replace(option, group=GROUPS[kind])


def slot_option(slot: str) -> Option:
    """Return the setting that names the method of a slot."""
    choices = ("auto", *names(slot)) if slot == "model" else names(slot)
    return replace(SLOTS[slot], choices=choices, group=GROUPS[slot], names_method=True)


def by_heading(options: Mapping[str, Option]) -> dict[str, Option]:
    """Return options in the order of the headings that they stand under."""
    return dict(sorted(options.items(), key=lambda each: place(each[1])))
