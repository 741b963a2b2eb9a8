"""``widemax recommend``: what best follows a history, or the history of a user."""

from __future__ import annotations

from typing import Annotated

import typer

from widemax.cli.answers import (
    AsJson,
    CheckpointName,
    Count,
    Exact,
    RunFolder,
    load_run,
    print_neighbours,
    say_step,
)


def recommend(
    run: RunFolder,
    user: Annotated[
        str | None, typer.Option(help="A user of the log that the run was trained on.")
    ] = None,
    history: Annotated[
        list[str] | None,
        typer.Option(help="An item of the history; repeat for more, oldest first."),
    ] = None,
    k: Count = 10,
    exact: Exact = False,
    checkpoint: CheckpointName = "best",
    json: AsJson = False,
) -> None:
    """Print what best follows a history: one that is given, or that of a user."""
    if (user is None) == (not history):
        raise ValueError("give either --user or --history")
    loaded = load_run(run, checkpoint)
    found = loaded.recommend(history or None, user=user, k=k, exact=exact)
    say_step(loaded)
    print_neighbours(found, as_json=json)
