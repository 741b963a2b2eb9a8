"""``widemax index``: what recommend and similar search in."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from widemax.cli.answers import AsJson, CheckpointName, RunFolder, load_run, say_step, strict_json
from widemax.cli.completion import one_of
from widemax.cli.progress import waiting

INDEX_KINDS = ("auto", "exact", "hnsw", "ivf", "ivf8")

_RECALL = 0.95


def index(
    run: RunFolder,
    kind: Annotated[
        str,
        typer.Option(
            help=f"One of {', '.join(INDEX_KINDS)}; auto goes by size and memory, and is "
            "exact below 50,000 keys.",
            autocompletion=one_of(INDEX_KINDS),
        ),
    ] = "auto",
    recall: Annotated[
        float, typer.Option(help="Share of the exact answers that must be found.")
    ] = _RECALL,
    memory: Annotated[
        float,
        typer.Option(min=0, help="Gigabytes the index may take; 0: half of what is free."),
    ] = 0.0,
    remove: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY",
            help="Never answer with this item again, its key or title; repeat for more. The index "
            "is changed, not built again.",
        ),
    ] = None,
    restore: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="Answer again with an item that was removed."),
    ] = None,
    checkpoint: CheckpointName = "best",
    json: AsJson = False,
) -> None:
    """Build the index that recommend and similar search, and print its recall and speed."""
    wanted = _kind(kind)
    if remove or restore:
        if wanted != "auto" or recall != _RECALL or memory or json:
            raise ValueError("--remove and --restore change the index there is: give no other flag")
        _change(run, checkpoint, remove or [], restore or [])
        return
    loaded = load_run(run, checkpoint)
    with waiting(f"indexing {run}"):
        built = loaded.build_index(wanted, recall=recall, memory=int(memory * 1e9))
    say_step(loaded)
    if json:
        rows = [{"for": each.purpose, "kind": each.kind, **asdict(each.report)} for each in built]
        typer.echo(strict_json(rows))
        return
    for each in built:
        found = "recall 1 by definition" if each.kind == "exact" else str(each.report)
        typer.echo(f"{each.purpose}: {each.kind}, {found}")


def _change(folder: Path, checkpoint: str, remove: list[str], restore: list[str]) -> None:
    loaded = load_run(folder, checkpoint)
    left_out = loaded.change_index(remove=remove, restore=restore)
    say_step(loaded)
    typer.echo(f"{left_out:,} of {len(loaded.vocabulary):,} items are left out")


def _kind(name: str) -> Any:
    if name not in INDEX_KINDS:
        raise ValueError(f"kind must be one of {', '.join(INDEX_KINDS)}, got {name!r}")
    return name
