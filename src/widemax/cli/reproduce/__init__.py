"""``widemax reproduce``: the published figures, by the commands that a user would type."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from widemax.cli.answers import path_of

FOLDER = Path("widemax-reproduce")


def _names(incomplete: str) -> list[str]:
    """Return the sets whose names begin with what is typed."""
    from widemax.cli.reproduce.sets import published_sets

    return [name for name in published_sets() if name.startswith(incomplete)]


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            metavar="SET",
            help="The set to run; without one, all are listed.",
            autocompletion=_names,
            show_default=False,
        ),
    ] = "",
    flags: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- FLAGS",
            help="Further flags of `train`, after --: a smaller budget, a seed.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            parser=path_of,
            metavar="FOLDER",
            envvar="WIDEMAX_DATA",
            help="Where the data lie, which are not part of widemax.",
            show_default=False,
        ),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="ROW", help="Run this row alone; repeat for more.")
    ] = None,
    folder: Annotated[
        Path,
        typer.Option(parser=path_of, metavar="FOLDER", help="Where runs and figures are kept."),
    ] = FOLDER,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where it was: what is done is not done again.")
    ] = False,
) -> None:
    """Train and evaluate what published figures are about, and print both side by side."""
    from widemax.cli.reproduce.job import list_sets, run_set

    if not name:
        if only or flags:
            raise ValueError(f"name the set to run: one of {', '.join(_names(''))}")
        list_sets(data)
    else:
        run_set(name, data, folder, only=only or [], flags=flags or [], resume=resume)
