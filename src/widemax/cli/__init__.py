"""The command line: one file per verb."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice


def main(arguments: list[str] | None = None) -> None:
    """Run the program ``widemax``.

    Plug-ins come first: the flags of a verb are those of the methods that are known by then.
    """
    from widemax.cli.errors import ErrorDisplay
    from widemax.declarations.table import load_installed_plugins, load_plugin

    arguments = sys.argv[1:] if arguments is None else arguments
    errors = ErrorDisplay(tracebacks="--debug" in arguments)
    try:
        load_installed_plugins()
        for plugin in _plugins(arguments):
            load_plugin(plugin)
    except ValueError as error:
        sys.exit(errors.show(error))
    from widemax.cli.app import main as run

    run(arguments, errors)


def _plugins(arguments: list[str]) -> Iterator[str]:
    """Yield the plug-ins that are named before the verb."""
    waiting = iter(arguments)
    for word in waiting:
        if word == "--plugin":
            # Without one, the parser says what is missing.
            yield from islice(waiting, 1)
        elif word.startswith("--plugin="):
            yield word.removeprefix("--plugin=")
        elif not word.startswith("-"):
            return
