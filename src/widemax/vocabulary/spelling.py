"""Keys as people write them: what a text can stand for, and how a message shows one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeAlias

Key: TypeAlias = str | int

MOST_COMPARED = 10_000
"""Of the keys, which are in falling count, so many are compared with a misspelt one."""

_LONGEST_KEY_SHOWN = 64
_MOST_NEAR = 3
_WHOLE = re.compile("-?[0-9]{1,19}")


def key_like(key: Key, *, whole: bool) -> Key | None:
    """Return a key as those of a column are, text or whole numbers; None if it cannot be one.

    Text from a command line may stand for a whole number.

    >>> key_like("07", whole=True), key_like(7, whole=False), key_like("tea", whole=True)
    (7, '7', None)
    """
    text = str(key)
    if not whole:
        return text
    if _WHOLE.fullmatch(text) is None:
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def quoted(key: object) -> str:
    """Return a key for a message: quoted, escaped and of bounded length."""
    if isinstance(key, str) and len(key) > _LONGEST_KEY_SHOWN:
        return repr(key[:_LONGEST_KEY_SHOWN]) + "…"
    return repr(key)


class UnknownNameError(ValueError):
    """Something was named that there is not; ``suggestions`` are the nearest spellings."""

    def __init__(self, message: str, suggestions: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.suggestions = list(suggestions)
        """What may have been meant, the nearest first."""


def not_among(key: object, first: Sequence[Key], total: int) -> str:
    """Return the end of a message about a missing key, with the nearest spellings if there are any.

    They are sought among the ``first`` keys, of which there are ``total``.

    >>> not_among("tae", ["tea", "rum"], 2)
    "is 'tae', which is not among the 2 keys; nearest: 'tea'"
    """
    message = f"is {quoted(key)}, which is not among the {total:,} keys"
    near = nearest_spellings(key, first)
    return f"{message}; nearest: {', '.join(map(quoted, near))}" if near else message


def nearest_spellings(key: object, first: Sequence[Key]) -> list[str]:
    """Return at most three of some keys that are spelt most like another.

    >>> [nearest_spellings(key, ["tea", "u0001", "u0003"]) for key in ("tae", "TEA", "3")]
    [['tea'], ['tea'], ['u0003']]
    """
    if not isinstance(key, str) or len(key) > _LONGEST_KEY_SHOWN:
        return []
    from difflib import get_close_matches

    short = [text for text in map(str, first) if len(text) <= _LONGEST_KEY_SHOWN]
    same = [text for text in short if text.lower() == key.lower()][:_MOST_NEAR]
    return same or _numbered(key, short) or get_close_matches(key, short)


def _numbered(key: str, short: Sequence[str]) -> list[str]:
    """Return at most three keys that are a number with something before it, such as u0003 for 3."""
    if not key.isdecimal():
        return []
    wanted = re.compile(rf"(.*[^0-9])?0*{key.lstrip('0') or '0'}")
    return [text for text in short if wanted.fullmatch(text)][:_MOST_NEAR]


def near_or_some(near: Sequence[str], first: Sequence[Key]) -> str:
    """Return the end of a message about a missing key: the nearest ones, or else what some are.

    >>> near_or_some(["tea"], ["tea", "rum"]), near_or_some([], ["tea", "rum"])
    ("; nearest: 'tea'", ", such as 'tea', 'rum'")
    """
    if near:
        return f"; nearest: {', '.join(map(quoted, near))}"
    return f", such as {', '.join(map(quoted, first[:_MOST_NEAR]))}" if first else ""
