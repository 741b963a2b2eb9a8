"""One option of a method or a run: its type, limits, default and help, and the check they make."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

Value = bool | int | float | str

MAX_TEXT = 400
"""Most characters of a text that is not chosen from a list, such as a path."""

PLUGIN_HINT = "; a method of your own is made known by --plugin FILE"
"""What ends a message about a method that nothing known is spelt like."""

MAX_PARTS_TEXT = 1500
"""Most characters of a text that lists methods with weights: it fits a line of a TOML file."""

_NUMBER = re.compile(r"@[1-9][0-9]{0,4}\Z")

# Exactly these types: True is an int to isinstance, and a subclass may print as something else.
_ACCEPTED: dict[type, tuple[type, ...]] = {
    bool: (bool,),
    int: (int,),
    float: (float, int),
    str: (str,),
}


@dataclass(frozen=True)
class Option:
    """A named setting: numbers have limits, texts may have choices.

    >>> Option("epochs", 10, "Passes over the data.", least=1, most=100).check("epochs", 0)
    Traceback (most recent call last):
    ValueError: epochs must be a whole number between 1 and 100, got 0
    """

    name: str
    """The field of the configuration; with hyphens, the flag."""
    default: Value
    """What it is unless a method, a file or a flag says otherwise; its type is the option's."""
    help: str
    """One sentence."""
    least: float = 0
    """Smallest number allowed."""
    most: float = 0
    """Largest number allowed."""
    choices: tuple[str, ...] = ()
    """The texts allowed; empty allows any. ``ndcg@K`` stands for every whole number after it."""
    word: str = ""
    """A text that may stand for a value yet to be found, such as "auto"; empty: none may."""
    parts: str = ""
    """The kind of methods that a text lists with weights, such as ``unigram=1, uniform=1``."""
    only_with: str = ""
    """Another option that must not be 0 for this one to have an effect."""
    unless: str = ""
    """Another option that must be 0 for this one to have an effect."""
    of_features: bool = False
    """Whether it has an effect only where items or users have features."""
    names_method: bool = False
    """Whether its choices are methods, of which a plug-in may bring more."""
    group: str = ""
    """The heading in ``--help``; empty takes that of the method's kind."""

    @property
    def kind(self) -> type:
        """The type of every value: that of the default."""
        return type(self.default)

    @property
    def flag(self) -> str:
        """The flag on the command line.

        >>> Option("learning_rate", 0.1, "The step size.").flag
        '--learning-rate'
        """
        return "--" + self.name.replace("_", "-")

    @property
    def limits(self) -> str:
        """What a value must be, in words."""
        if self.kind is bool:
            return f"true, false or {self.word}" if self.word else "true or false"
        if self.choices:
            return "one of " + ", ".join(choice or '""' for choice in self.choices)
        if self.parts:
            return (
                f"a text of at most {MAX_PARTS_TEXT:,} characters that lists {self.parts}s with "
                "weights, such as a=1, b=0.5"
            )
        if self.kind is str:
            return f"a text of at most {MAX_TEXT} characters"
        name = "a whole number" if self.kind is int else "a number"
        limits = f"{name} between {_shown_limit(self.least)} and {_shown_limit(self.most)}"
        return f"{limits}, or {self.word}" if self.word else limits

    @property
    def limits_sentence(self) -> str:
        """The limits as a sentence of their own, to follow the help."""
        return f"{self.limits[0].upper()}{self.limits[1:]}."

    def check(self, name: str, value: object) -> Value:
        """Return ``value`` if the option may have it; a whole number may stand for a float."""
        if self.word and type(value) is str and value == self.word:
            return self.word
        if not self._admits(value):
            known = self.choices or ((self.word,) if self.word else ())
            unknown = PLUGIN_HINT if self.names_method and isinstance(value, str) else ""
            hint = nearest(value, known) or unknown
            raise ValueError(f"{name} must be {self.limits}, got {shown(value)}{hint}")
        checked: Value = self.kind(value)
        return checked

    def _admits(self, value: object) -> bool:
        if type(value) not in _ACCEPTED[self.kind]:
            return False
        if isinstance(value, str):
            longest = MAX_PARTS_TEXT if self.parts else MAX_TEXT
            chosen = value in self.choices or _NUMBER.sub("@K", value) in self.choices
            return chosen if self.choices else _is_storable(value, longest)
        # Compared before an int becomes a float, which a huge one cannot; a NaN fails here too.
        return isinstance(value, bool) or (
            isinstance(value, int | float) and self.least <= value <= self.most
        )

    def to_json(self) -> dict[str, Any]:
        """Return what ``declared.json`` keeps: what differs from an option's own defaults."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        plain = Option("", "", "")
        kept = {name: value for name, value in fields.items() if value != getattr(plain, name)}
        return {**kept, "default": self.default}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Option:
        """Return the option that ``to_json`` described."""
        return cls(**{**fields, "choices": tuple(fields.get("choices", ()))})


def nearest(value: object, names: tuple[str, ...]) -> str:
    """Return the hint that ends a message: the name nearest to a misspelt one, if any is near.

    >>> nearest("unigrm", ("uniform", "unigram"))
    "; did you mean 'unigram'?"
    """
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


def _is_storable(text: str, longest: int) -> bool:
    """Return whether a file can hold the text: half a surrogate pair has no place in UTF-8."""
    return len(text) <= longest and not any("\ud800" <= each <= "\udfff" for each in text)
