"""``widemax similar``: the neighbours of words or items."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from widemax.cli.answers import (
    AsJson,
    CheckpointName,
    Count,
    Exact,
    Filters,
    FromDatabase,
    RunFolder,
    Table,
    load_vectors,
    neighbour_rows,
    open_store,
    print_neighbours,
    say_found,
    say_step,
    strict_json,
)
from widemax.cli.printable import printable
from widemax.filters import parse_filters

if TYPE_CHECKING:
    from widemax.runs.folder.catalogue import Neighbour
    from widemax.stores.searching import VectorStore


def similar(
    run: RunFolder,
    keys: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY", help="Words or items of the run; items also by their titles."
        ),
    ],
    k: Count = 10,
    exact: Exact = False,
    database: FromDatabase = None,
    table: Table = "",
    filters: Filters = None,
    checkpoint: CheckpointName = "best",
    json: AsJson = False,
) -> None:
    """Print the keys most similar to each given one."""
    wanted = parse_filters(filters or [])
    store = open_store(database, table, exact=exact)
    # All of them before the first is printed: a misspelt last key leaves no half answer.
    if store is not None:
        answers = _from_store(store, wanted, run, checkpoint, keys, k)
    else:
        loaded = load_vectors(run, checkpoint, exact=exact)
        answers = [loaded.similar(key, filters=wanted, k=k, exact=exact) for key in keys]
        say_step(loaded)
        say_found(loaded.catalogue, keys)
    if json and len(keys) > 1:
        rows = {key: neighbour_rows(found) for key, found in zip(keys, answers, strict=True)}
        typer.echo(strict_json(rows))
        return
    for key, found in zip(keys, answers, strict=True):
        if len(keys) > 1:
            typer.echo(f"{printable(key)}:")
        print_neighbours(found, as_json=json)


def _from_store(
    store: VectorStore,
    filters: dict[str, list[str]],
    folder: Path,
    checkpoint: str,
    keys: list[str],
    k: int,
) -> list[list[Neighbour]]:
    """Return what a database finds similar, without torch."""
    from widemax.runs.folder.catalogue import Catalogue
    from widemax.runs.folder.chosen_checkpoint import identity_of, trained_checkpoint
    from widemax.runs.folder.description import check_run
    from widemax.runs.from_store import similar_from

    with store:
        check_run(folder)
        found = trained_checkpoint(folder, checkpoint)
        store.check_run(*identity_of(folder, found), folder)
        catalogue = Catalogue(folder)
        answers = [similar_from(store, catalogue, key, k=k, filters=filters) for key in keys]
    typer.echo(f"{printable(store.address)}: {printable(store.manifest)}", err=True)
    return answers
