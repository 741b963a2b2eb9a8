"""The program ``widemax``: its verbs, and how an error is shown."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Softmax for wide outputs: train models that choose among very many classes.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"widemax {version('widemax')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, help="Show the version and stop.")
    ] = False,
) -> None:
    """Take the options that belong to no verb."""


@app.command()
def demo(
    num_classes: Annotated[int, typer.Option(help="Items in the simulated catalogue.")] = 20_000,
    steps: Annotated[int, typer.Option(help="Training steps of each method.")] = 400,
    seed: Annotated[int, typer.Option(help="Seed of the world, the models and the draws.")] = 0,
    json: Annotated[str | None, typer.Option(help="Also write the figures to this file.")] = None,
) -> None:
    """Train one small model with six output layers and compare each with the known truth."""
    # Imported here: torch takes seconds to load, and --help should not.
    from widemax.cli.demo import run_demo

    run_demo(num_classes=num_classes, steps=steps, seed=seed, json_path=json)


def main() -> None:
    """Run the program; a mistake of the user is one clear line and exit code 2."""
    try:
        app()
    except (ValueError, OSError) as error:
        typer.echo(f"widemax: {error}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        typer.echo("widemax: stopped", err=True)
        sys.exit(130)
