"""Several methods with weights, written as one text or as tables of a TOML file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from widemax.declarations import Declaration, Option, Value, declared, find, shortened, shown

MOST_PARTS = 16
MOST_WEIGHT = 10**9

MIXES = "mixes"
"""The trait of methods that can be part of a mixture."""

# No blanks at either end: pieces are stripped, so that no text takes long to be refused.
_PART = re.compile(r"([^\s(),=]+)(?:\s*\(([^()]*)\))?(?:\s*=\s*([0-9.eE+-]+))?")
_SETTING = re.compile(r"(\w+)\s*=\s*([^\s(),]+)")
_OF_THE_WHOLE = ("num_samples", "unique", "per_example")
"""What the parts of a mixture have in common: it cannot be set for one of them."""


@dataclass(frozen=True)
class Part:
    """One of several methods, with its weight and options of its own."""

    name: str
    """The method."""
    weight: float
    """Its share, relative to the others."""
    options: tuple[tuple[str, Value], ...] = ()
    """What is set for it alone."""

    def __str__(self) -> str:
        options = ", ".join(f"{name}={_shown(value)}" for name, value in self.options)
        weight = int(self.weight) if self.weight.is_integer() else self.weight
        return f"{self.name}{f'({options})' if options else ''}={weight}"


def parse_parts(kind: str, name: str, text: str) -> tuple[Part, ...]:
    """Return the parts that a text lists, each a declared method of a kind.

    >>> for part in parse_parts("sampler", "mixture", "unigram(distortion=0.5)=3, uniform"):
    ...     print(part)
    unigram(distortion=0.5)=3
    uniform=1
    """
    parts = []
    # At the commas that are not within parentheses.
    for piece in re.split(r",(?![^()]*\))", text):
        match = _PART.fullmatch(piece.strip())
        if match is None:
            raise _wrong(kind, name, text)
        method, options, weight = match.groups()
        settings = _settings(kind, name, text, options)
        parts.append(_part(kind, name, method, _value(weight or "1"), settings))
    if not 1 < len(parts) <= MOST_PARTS:
        raise _wrong(kind, name, text)
    return tuple(parts)


def parts_text(kind: str, name: str, tables: Any) -> str:
    """Return the tables of a TOML file, each with a method's name, as the text of parts.

    >>> tables = [{"sampler": "uniform"}, {"sampler": "unigram", "weight": 2, "distortion": 1}]
    >>> parts_text("sampler", "mixture", tables)
    'uniform=1, unigram(distortion=1.0)=2'
    """
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ValueError(
            f"{name} must be a text such as 'a=1, b=0.5' or tables [[{name}]], got {shown(tables)}"
        )
    if not 1 < len(tables) <= MOST_PARTS:
        raise ValueError(f"{name} must have 2 to {MOST_PARTS} tables, got {len(tables):,}")
    parts = []
    for table in tables:
        rest = {key: value for key, value in table.items() if key not in (kind, "weight")}
        weight = table.get("weight", 1)
        parts.append(_part(kind, name, table.get(kind), weight, rest))
    return ", ".join(map(str, parts))


def _part(kind: str, name: str, method: object, weight: Any, given: dict[str, Any]) -> Part:
    try:
        declaration = find(kind, method)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    if MIXES not in declaration.traits:
        able = [each.name for each in declared(kind).values() if MIXES in each.traits]
        raise ValueError(
            f"{name}: {kind} {declaration.name!r} cannot be one of several; those that can are "
            f"{', '.join(able)}"
        )
    known = _own_options(declaration)
    options = []
    for key, value in given.items():
        if key not in known:
            raise ValueError(
                f"{name}: {shortened(repr(key))} cannot be set for {kind} {declaration.name!r} "
                f"alone: {_settable(known)}"
            )
        checked = known[key].check(f"{name}: {key}", value)
        if isinstance(checked, str) and not _is_word(checked):
            raise ValueError(
                f"{name}: {key} must be one word that is no number, got {shown(value)}"
            )
        options.append((key, checked))
    # Compared before an int becomes a float, which a huge one cannot; a NaN fails here too.
    if type(weight) not in (int, float) or not 0 < weight < MOST_WEIGHT:
        raise ValueError(
            f"{name}: weight must be a number above 0 and below {MOST_WEIGHT:,}, "
            f"got {shown(weight)}"
        )
    return Part(declaration.name, float(weight), tuple(options))


def _settable(known: dict[str, Option]) -> str:
    return f"what can is {', '.join(known)}" if known else "it has no settings of its own"


def _own_options(declaration: Declaration) -> dict[str, Option]:
    """Return what can be set for a part alone: neither what all share, nor where data come from."""
    return {
        option.name: option
        for option in declaration.options
        if option.name not in _OF_THE_WHOLE and not option.group and not option.parts
    }


def _settings(kind: str, name: str, text: str, options: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for piece in options.split(",") if options else ():
        match = _SETTING.fullmatch(piece.strip())
        if match is None or match.group(1) in found:
            raise _wrong(kind, name, text)
        found[match.group(1)] = _value(match.group(2))
    return found


def _value(word: str) -> Value:
    if word in ("true", "false"):
        return word == "true"
    for read in (int, float):
        try:
            return read(word)
        except ValueError:
            continue
    return word


def _is_word(text: str) -> bool:
    """Return whether a text reads back as it is from among the options of a part."""
    return bool(_SETTING.fullmatch(f"a={text}")) and _value(text) == text


def _shown(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value}"


def _wrong(kind: str, name: str, text: str) -> ValueError:
    return ValueError(
        f"{name} must list 2 to {MOST_PARTS} {kind}s with weights, such as 'a=1, b=0.5', "
        f"got {shown(text)}"
    )
