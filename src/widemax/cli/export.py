"""``widemax export``: vectors, an index or an encoder for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from widemax.cli.answers import CheckpointName, RunFolder, load_run, place_argument, say_step
from widemax.cli.completion import one_of
from widemax.cli.printable import printable
from widemax.cli.progress import waiting
from widemax.declarations import find, names
from widemax.declarations.table import load
from widemax.runs.export import check_destination
from widemax.stores.postgres import check_table_name

if TYPE_CHECKING:
    from widemax.runs.run import Run
    from widemax.runs.vectors.stored_vectors import StoredVectors
    from widemax.vectors import KeyedVectors


def export(
    run: RunFolder,
    path: Annotated[
        Path,
        typer.Argument(
            parser=place_argument,
            metavar="PATH",
            help="The file or folder to write, or the database: postgresql://host/name.",
        ),
    ],
    to: Annotated[
        str,
        typer.Option(
            help=f"One of {', '.join(names('export'))}.", autocompletion=one_of(names("export"))
        ),
    ] = "word2vec",
    table: Annotated[
        str,
        typer.Option(metavar="NAME", help="With --to pgvector: the table; widemax_items if empty."),
    ] = "",
    checkpoint: CheckpointName = "best",
) -> None:
    """Write the vectors of a run, a Faiss index, an ONNX encoder, or a table of a database."""
    # A misspelt format before torch is loaded, and the wrong place for it.
    found = find("export", to, argument="--to")
    check_destination(found, path, table)
    if table:
        check_table_name(table)
    said = ""
    loaded: Run | StoredVectors
    stored = None if "run" in found.traits else stored_vectors(run, checkpoint)
    if stored is not None:
        loaded, vectors = stored
        with waiting(f"writing {path}"):
            load(found)(path, vectors)
    else:
        loaded = load_run(run, checkpoint)
        with waiting(f"writing {path}"):
            said = loaded.export(path, to=found.name, table=table)
    say_step(loaded)
    typer.echo(f"{found.name}: {printable(path)}", err=True)
    if said:
        typer.echo(printable(said), err=True)


def stored_vectors(folder: Path, checkpoint: str) -> tuple[StoredVectors, KeyedVectors] | None:
    """Return the vectors of a run with their keys, read without torch; None if it makes them."""
    from widemax.config.toml import read_toml
    from widemax.runs.folder.description import (
        CONFIG,
        check_run,
        check_unchanged,
        stored_vocabulary,
    )
    from widemax.runs.vectors.stored_vectors import StoredVectors
    from widemax.vectors import KeyedVectors

    check_run(folder)
    # Those that are compared by their angle have length 1, whatever they are stored with.
    if read_toml(check_unchanged(folder, CONFIG)).get("similarity") == "cosine":
        return None
    stored = StoredVectors.open(folder, checkpoint)
    if stored is None:
        return None
    return stored, KeyedVectors(stored_vocabulary(folder).keys, stored.vectors)
