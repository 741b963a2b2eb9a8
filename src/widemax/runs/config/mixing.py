"""Several methods with weights, written as one text or as tables of a TOML file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from widemax.declarations import Value, find, shortened, shown

MOST_PARTS = 16

_PART = re.compile(r"\s*([a-z0-9.-]+)\s*(?:\(([^()]*)\))?\s*(?:=\s*([0-9.eE+-]+))?\s*")
_SETTING = re.compile(r"\s*([a-z_0-9]+)\s*=\s*(\S+)\s*")


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
        return f"{self.name}{f'({options})' if options else ''}={self.weight:g}"


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
        match = _PART.fullmatch(piece)
        if match is None:
            raise _wrong(kind, name, text)
        method, options, weight = match.groups()
        parts.append(_part(kind, name, method, weight or "1", _settings(kind, name, text, options)))
    if not 1 < len(parts) <= MOST_PARTS:
        raise _wrong(kind, name, text)
    return tuple(parts)


def parts_text(kind: str, name: str, tables: Any) -> str:
    """Return the tables of a TOML file, each with a method's name, as the text of parts.

    >>> parts_text("sampler", "mixture", [{"sampler": "uniform"}, {"sampler": "all", "weight": 2}])
    'uniform=1, all=2'
    """
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ValueError(
            f"{name} must be a text such as 'a=1, b=0.5' or tables [[{name}]], got {shown(tables)}"
        )
    parts = []
    for table in tables:
        rest = {key: value for key, value in table.items() if key not in (kind, "weight")}
        weight = table.get("weight", 1)
        parts.append(_part(kind, name, table.get(kind), weight, rest))
    return ", ".join(map(str, parts))


def _part(kind: str, name: str, method: object, weight: Any, given: dict[str, Any]) -> Part:
    declaration = find(kind, method)
    known = {option.name: option for option in declaration.options}
    options = []
    for key, value in given.items():
        if key not in known:
            raise ValueError(
                f"{name}: {shortened(repr(key))} is not an option of {kind} {declaration.name!r}, "
                f"which has {', '.join(known) or 'none'}"
            )
        options.append((key, known[key].check(f"{name}: {key}", value)))
    try:
        share = float(weight)
    except (TypeError, ValueError):
        share = -1.0
    if isinstance(weight, bool) or not 0 < share < 1e9:
        raise ValueError(f"{name}: weight must be a number above 0, got {shown(weight)}")
    return Part(declaration.name, share, tuple(options))


def _settings(kind: str, name: str, text: str, options: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for piece in (options or "").split(",") if options else ():
        match = _SETTING.fullmatch(piece)
        if match is None:
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


def _shown(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value}"


def _wrong(kind: str, name: str, text: str) -> ValueError:
    return ValueError(
        f"{name} must list 2 to {MOST_PARTS} {kind}s with weights, such as 'a=1, b=0.5', "
        f"got {shown(text)}"
    )
