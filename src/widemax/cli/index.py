"""``widemax index``: what recommend and similar search in."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from widemax.cli.answers import AsJson, CheckpointName, RunFolder, load_run, say_step, strict_json
from widemax.cli.completion import one_of
from widemax.cli.progress import waiting

INDEX_KINDS = ("auto", "exact", "hnsw", "ivf")


def index(
    run: RunFolder,
    kind: Annotated[
        str,
        typer.Option(
            help=f"One of {', '.join(INDEX_KINDS)}; auto is exact below 50,000 keys.",
            autocompletion=one_of(INDEX_KINDS),
        ),
    ] = "auto",
    recall: Annotated[
        float, typer.Option(help="Share of the exact answers that must be found.")
    ] = 0.95,
    checkpoint: CheckpointName = "best",
    json: AsJson = False,
) -> None:
    """Build the index that recommend and similar search, and print its recall and speed."""
    loaded, wanted = load_run(run, checkpoint), _kind(kind)
    with waiting(f"indexing {run}"):
        built = loaded.build_index(wanted, recall=recall)
    say_step(loaded)
    if json:
        rows = [{"for": each.purpose, "kind": each.kind, **asdict(each.report)} for each in built]
        typer.echo(strict_json(rows))
        return
    for each in built:
        found = "recall 1 by definition" if each.kind == "exact" else str(each.report)
        typer.echo(f"{each.purpose}: {each.kind}, {found}")


def _kind(name: str) -> Any:
    if name not in INDEX_KINDS:
        raise ValueError(f"kind must be one of {', '.join(INDEX_KINDS)}, got {name!r}")
    return name
