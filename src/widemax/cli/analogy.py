"""``widemax analogy``: what C is to as A is to B."""

from __future__ import annotations

from typing import Annotated

import typer

from widemax.cli.answers import (
    AsJson,
    CheckpointName,
    Count,
    RunFolder,
    load_vectors,
    print_neighbours,
    say_step,
)


def analogy(
    run: RunFolder,
    a: Annotated[str, typer.Argument(metavar="A", help="man is to ...")],
    b: Annotated[str, typer.Argument(metavar="B", help="... king as ...")],
    c: Annotated[str, typer.Argument(metavar="C", help="... woman is to what?")],
    k: Count = 10,
    checkpoint: CheckpointName = "best",
    json: AsJson = False,
) -> None:
    """Complete an analogy: A is to B as C is to what?"""
    loaded = load_vectors(run, checkpoint)
    found = loaded.analogy(a, b, c, k=k)
    say_step(loaded)
    print_neighbours(found, as_json=json)
