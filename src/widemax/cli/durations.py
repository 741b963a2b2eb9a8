"""Times as people type them: 90s, 10m, 2h, or a number of seconds."""

from __future__ import annotations

import re

from widemax.declarations import Value

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}


def seconds_of(text: str) -> float:
    """Return a time in seconds.

    >>> seconds_of("10m"), seconds_of("90")
    (600.0, 90.0)
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) *([smh]?)", text.strip())
    if not found or not float(found[1]):
        raise ValueError(f"--budget must be a time such as 90s, 10m or 2h, got {text!r}")
    return float(found[1]) * _UNITS[found[2]]


def seconds_or_text(text: str) -> Value:
    """Return a number, or a time in seconds; any other text is left to the option's own check.

    >>> seconds_or_text("10m"), seconds_or_text("0"), seconds_or_text("soon")
    (600.0, 0.0, 'soon')
    """
    for read in (float, seconds_of):
        try:
            return read(text)
        except ValueError:
            continue
    return text
