"""The program ``widemax``: its verbs, and how an error is shown."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from widemax.cli.analogy import analogy
from widemax.cli.compare import compare
from widemax.cli.demo import demo
from widemax.cli.errors import ErrorDisplay, notes_in_one_line
from widemax.cli.evaluate import evaluate
from widemax.cli.export import export
from widemax.cli.generate import generate
from widemax.cli.index import index
from widemax.cli.recommend import recommend
from widemax.cli.report import report
from widemax.cli.reproduce import reproduce
from widemax.cli.runs import runs
from widemax.cli.score import score
from widemax.cli.similar import similar
from widemax.cli.train import TrainCommand, train

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Softmax for wide outputs: train models that choose among very many classes.",
)

app.command()(demo)
app.command(cls=TrainCommand)(train)
app.command(cls=TrainCommand)(compare)
for verb in (
    evaluate,
    similar,
    analogy,
    generate,
    recommend,
    index,
    score,
    export,
    report,
    runs,
    reproduce,
):
    app.command()(verb)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"widemax {version('widemax')}")
        raise typer.Exit


@app.callback()
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
    try:
        with notes_in_one_line():
            app(arguments, obj=errors)
    except Exception as error:
        sys.exit(errors.show(error))
