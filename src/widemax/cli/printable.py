"""Text from files and users, made safe to print."""

from __future__ import annotations


def printable(text: object) -> str:
    r"""Return a text with control characters shown as escapes: a title must not drive a terminal.

    >>> print(printable("tea\x1b[2J for two"))
    tea\x1b[2J for two
    """
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in str(text))
