"""One setting of a run: declared once, and from that its check, its help and its words."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TypeVar

Value = bool | int | float | str
T = TypeVar("T", bool, int, float, str)

MAX_TEXT = 200
"""Most characters of a text that is not chosen from a list, such as the name of a column."""

# Exactly these types: True is an int to isinstance, and a subclass may print as something else.
_ACCEPTED: dict[type, tuple[type, ...]] = {
    bool: (bool,),
    int: (int,),
    float: (float, int),
    str: (str,),
}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The declaration of a setting: numbers have limits, texts may have choices."""

    group: str
    default: Value
    help: str
    least: float
    most: float
    choices: tuple[str, ...]

    @property
    def kind(self) -> type:
        """The type of every value: that of the default."""
        return type(self.default)

    @property
    def limits(self) -> str:
        """What a value must be, in words."""
        if self.kind is bool:
            return "true or false"
        if self.choices:
            return "one of " + ", ".join(choice or '""' for choice in self.choices)
        if self.kind is str:
            return f"a text of at most {MAX_TEXT} characters"
        name = "a whole number" if self.kind is int else "a number"
        return f"{name} between {_shown_limit(self.least)} and {_shown_limit(self.most)}"

    @property
    def limits_sentence(self) -> str:
        """The limits as a sentence of their own, to stand behind the help."""
        return f"{self.limits[0].upper()}{self.limits[1:]}."

    def check(self, name: str, value: object) -> Value:
        """Return ``value`` if the setting may have it; a whole number may stand for a float."""
        if not self._admits(value):
            raise ValueError(
                f"{name} must be {self.limits}, got {shown(value)}{nearest(value, self.choices)}"
            )
        checked: Value = self.kind(value)
        return checked

    def _admits(self, value: object) -> bool:
        if type(value) not in _ACCEPTED[self.kind]:
            return False
        if isinstance(value, str):
            return value in self.choices if self.choices else _is_storable(value)
        # Compared before an int becomes a float, which a huge one cannot; a NaN fails here too.
        return isinstance(value, bool) or (
            isinstance(value, int | float) and self.least <= value <= self.most
        )


def setting(
    group: str,
    default: T,
    help: str,
    *,
    least: float = 0,
    most: float = 0,
    choices: tuple[str, ...] = (),
) -> T:
    """Declare a field of the configuration.

    >>> from dataclasses import dataclass, fields
    >>> @dataclass(frozen=True)
    ... class Example:
    ...     epochs: int = setting("Length", 10, "Passes over the data.", least=1, most=100)
    >>> fields(Example)[0].metadata["setting"].check("epochs", 0)
    Traceback (most recent call last):
    ValueError: epochs must be a whole number between 1 and 100, got 0
    """
    declaration = Setting(
        group=group, default=default, help=help, least=least, most=most, choices=choices
    )
    return field(default=default, metadata={"setting": declaration})


@cache
def registered(table: str) -> tuple[str, ...]:
    """Return the names in a table of ``widemax.registry``; none if there is no such table.

    They are read from its source, because importing the registry imports torch, and neither
    ``--help`` nor a misspelt name should wait seconds for that.

    >>> registered("OBJECTIVES")[:2]
    ('corrected-log-q', 'full-logistic')
    """
    source = (Path(__file__).parents[2] / "registry.py").read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        if not isinstance(node, ast.AnnAssign | ast.Assign) or not isinstance(node.value, ast.Dict):
            continue
        target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
        if isinstance(target, ast.Name) and target.id == table:
            keys = [key.value for key in node.value.keys if isinstance(key, ast.Constant)]
            return tuple(key for key in keys if isinstance(key, str))
    return ()


def nearest(value: object, names: tuple[str, ...]) -> str:
    """Return the hint that ends a message: the name nearest to a misspelt one, if any is near."""
    if not isinstance(value, str):
        return ""
    # Cut, because the comparison takes the product of both lengths.
    found = get_close_matches(value[:MAX_TEXT], names, n=1)
    return f"; did you mean {found[0]!r}?" if found else ""


def shown(value: object) -> str:
    """Return a value for a message, with its type where that is the likely mistake.

    >>> shown("0.1"), shown(True), shown({"a": 1}), shown(1 << 99)
    ("the text '0.1'", 'true', 'a table', 'a number of 100 bits')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        # Python refuses to print an int of thousands of digits.
        long = value.bit_length() > 64
        return f"a number of {value.bit_length():,} bits" if long else f"{value:,}"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, str):
        return f"the text {shortened(repr(value))}"
    # What TOML knows besides: its words for them, and never their contents.
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    return f"a value of type {type(value).__name__}"


def shortened(text: str, most: int = 80) -> str:
    """Return ``text`` with its middle left out where it is longer than ``most``.

    >>> shortened("abcdefghij", 7)
    'ab…ghij'
    """
    if len(text) <= most:
        return text
    tail = most // 2 + 1
    return text[: most - tail - 1] + "…" + text[-tail:]


def _shown_limit(limit: float) -> str:
    return f"{limit:,}" if isinstance(limit, int) else f"{limit:g}"


def _is_storable(text: str) -> bool:
    """Return whether a file can hold the text: half a surrogate pair has no place in UTF-8."""
    return len(text) <= MAX_TEXT and not any("\ud800" <= each <= "\udfff" for each in text)
