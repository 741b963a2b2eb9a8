"""``widemax similar``: the neighbours of words or items."""

from __future__ import annotations

from typing import Annotated

import typer

from widemax.cli.answers import (
    AsJson,
    CheckpointName,
    Count,
    Exact,
    RunFolder,
    load_vectors,
    neighbour_rows,
    print_neighbours,
    say_step,
    strict_json,
)
from widemax.cli.printable import printable


def similar(
    run: RunFolder,
    keys: Annotated[
        list[str], typer.Argument(help="Words or items of the run; items also by their titles.")
    ],
    k: Count = 10,
    exact: Exact = False,
    checkpoint: CheckpointName = "best",
    json: AsJson = False,
) -> None:
    """Print the keys most similar to each given one."""
    loaded = load_vectors(run, checkpoint, exact=exact)
    # All of them before the first is printed: a misspelt last key leaves no half answer.
    answers = [loaded.similar(key, k=k, exact=exact) for key in keys]
    say_step(loaded)
    if json and len(keys) > 1:
        rows = {key: neighbour_rows(found) for key, found in zip(keys, answers, strict=True)}
        typer.echo(strict_json(rows))
        return
    for key, found in zip(keys, answers, strict=True):
        if len(keys) > 1:
            typer.echo(f"{printable(key)}:")
        print_neighbours(found, as_json=json)
