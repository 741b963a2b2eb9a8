"""The program ``widemax``: its verbs, and how an error is shown."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Annotated

import typer

from widemax.cli.errors import ErrorDisplay, notes_in_one_line
from widemax.cli.verb import Verb

VERBS = (
    "demo",
    "train",
    "compare",
    "advise",
    "plan",
    "evaluate",
    "audit",
    "similar",
    "analogy",
    "generate",
    "recommend",
    "index",
    "score",
    "export",
    "serve",
    "report",
    "runs",
    "reproduce",
)
"""In the order of the help; each is the function of that name in the module of that name."""


def program(verbs: Iterable[str] = VERBS) -> typer.Typer:
    """Return the program with some of its verbs, whose modules are imported now."""
    made = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        help="Softmax for wide outputs: train models that choose among very many classes.",
    )
    made.callback()(options)
    for verb in verbs:
        module = import_module(f"widemax.cli.{verb}")
        made.command(cls=getattr(module, "COMMAND", Verb))(getattr(module, verb))
    return made


def __getattr__(name: str) -> typer.Typer:
    """Return the whole program as ``app``, made when it is first asked for."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()["app"] = whole = program()
    return whole


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"widemax {version('widemax')}")
        raise typer.Exit


def options(
    context: typer.Context,
    debug: Annotated[
        bool,
        typer.Option("--debug", envvar="WIDEMAX_DEBUG", help="Show the traceback of an error."),
    ] = False,
    plugin: Annotated[
        list[str] | None,
        typer.Option(
            "--plugin",
            metavar="FILE",
            help="A module or .py file with methods of your own; its code is run. Repeat for more.",
        ),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, help="Show the version and stop.")
    ] = False,
) -> None:
    """Take the options that belong to no verb; ``main`` has imported the plug-ins before."""
    if isinstance(context.obj, ErrorDisplay):
        context.obj.tracebacks = debug


def run_app(arguments: list[str], errors: ErrorDisplay) -> None:
    """Run a verb; an error is one line: exit code 2 for a mistake, 1 for a defect."""
    # A verb alone starts in half the time of all; a word that is none is looked for among them.
    verb = _verb(arguments)
    try:
        with notes_in_one_line():
            program([verb] if verb in VERBS else VERBS)(arguments, obj=errors)
    except Exception as error:
        sys.exit(errors.show(error))


def _verb(arguments: Sequence[str]) -> str:
    """Return the first word that is no option of the program, nor the file of a plug-in."""
    words = iter(arguments)
    for word in words:
        if word == "--plugin":
            next(words, "")
        elif not word.startswith("-"):
            return word
    return ""
