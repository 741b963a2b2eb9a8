"""What the shell offers after a Tab."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def one_of(names: Sequence[str]) -> Callable[[str], list[str]]:
    """Return the completion of an option that takes one of these names.

    >>> one_of(["unigram", "uniform", "all"])("uni")
    ['unigram', 'uniform']
    """

    def complete(incomplete: str) -> list[str]:
        # Typer knows the parameter by its name.
        return [name for name in names if name and name.startswith(incomplete)]

    return complete
