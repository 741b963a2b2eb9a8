"""What every verb is made of: a wrong option is answered with those that were likely meant."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from typer.core import TyperCommand

_MOST = 4
_CLOSE = 0.8


class Verb(TyperCommand):
    """A verb that knows what a wrong option may have been meant for."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse as usual, and say of an option that there is none which ones are near."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            # Typer raises an exception of its own or, before 0.27, one of click: known by these.
            wrong = getattr(error, "option_name", "")
            if hasattr(error, "possibilities") and wrong.startswith("--"):
                flags = [flag for each in self.params for flag in each.opts]
                near = likely_meant(wrong, flags)
                setattr(error, "possibilities", None)  # noqa: B010
                if near:
                    setattr(error, "message", f"No such option: {wrong}; did you mean {near}?")  # noqa: B010
            raise


def likely_meant(wrong: str, flags: Sequence[str]) -> str:
    """Return the options that one which does not exist may stand for, the likeliest first.

    >>> flags = ["--query", "--user-column", "--learning-rate", "--user-features", "--folder"]
    >>> likely_meant("--user", flags), likely_meant("--rate", flags)
    ('--user-column or --user-features', '--learning-rate')
    >>> likely_meant("--foldr", flags), likely_meant("--nothing", flags)
    ('--folder', '')
    """
    parts = set(wrong.removeprefix("--").split("-"))
    begins = [flag for flag in flags if flag.startswith(wrong)]
    holds = [flag for flag in flags if parts <= set(flag.removeprefix("--").split("-"))]
    close = get_close_matches(wrong, flags, n=_MOST, cutoff=_CLOSE)
    return " or ".join(list(dict.fromkeys([*begins, *holds, *close]))[:_MOST])
