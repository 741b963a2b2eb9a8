"""The command line: one file per verb."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import islice


def main(arguments: list[str] | None = None) -> None:
    """Run the program ``widemax``; Ctrl-C at any moment ends it with exit code 130.

    Plug-ins come first: the flags of a verb are those of the methods that are known by then.
    """
    try:
        _run(arguments)
    except KeyboardInterrupt:
        from widemax.cli.interruption import STOPPED, guard_start, say_stopped

        # What was to be saved is saved: to press it again ends what is left.
        guard_start()
        say_stopped()
        sys.exit(STOPPED)


def _run(given: list[str] | None) -> None:
    arguments = sys.argv[1:] if given is None else given
    # The settings of every run are known before a plug-in can claim one of their names.
    import widemax.config.run_options  # noqa: F401
    from widemax.cli.errors import ErrorDisplay
    from widemax.declarations.table import load_installed_plugins, load_plugin

    debug = "--debug" in arguments or bool(os.environ.get("WIDEMAX_DEBUG"))
    errors = ErrorDisplay(tracebacks=debug)
    try:
        if given is None and any("postgres" in word for word in arguments):
            from widemax.cli.passwords import hide_passwords

            hide_passwords()
        load_installed_plugins()
        for plugin in plugins_of(arguments):
            load_plugin(plugin)
    except ValueError as error:
        sys.exit(errors.show(error))
    from widemax.cli.app import run_app
    from widemax.cli.interruption import guard_verb

    guard_verb()
    run_app(arguments, errors)


def plugins_of(arguments: list[str]) -> Iterator[str]:
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
