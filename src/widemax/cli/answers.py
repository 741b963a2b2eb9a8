"""What the verbs share that ask a trained run: their arguments, loading, and printing answers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from widemax.cli.printable import printable
from widemax.cli.progress import starting, waiting
from widemax.storage.json_text import finite
from widemax.stores.addresses import Place, PostgresAddress, is_address, place_of

if TYPE_CHECKING:
    from widemax.runs.answering.table_answers import TableAnswers
    from widemax.runs.folder.catalogue import Catalogue, Neighbour
    from widemax.runs.run import Run
    from widemax.runs.vectors.stored_vectors import StoredVectors
    from widemax.stores.searching import VectorStore


def path_of(text: str) -> Path:
    """Return the path that an argument names; an unset variable of a shell names none."""
    if not text:
        raise typer.BadParameter("a path must not be empty")
    return Path(text)


def place_argument(text: str) -> Place:
    """Return the path or the database that an argument names; an error does not repeat it."""
    try:
        return place_of(path_of(text) if not is_address(text) else text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")]
CheckpointName = Annotated[
    str,
    typer.Option(
        "--checkpoint", metavar="best|last|STEP", help="Which checkpoint: best by validation."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Exact = Annotated[bool, typer.Option("--exact", help="Search exactly, even if there is an index.")]
FromDatabase = Annotated[
    Path | None,
    typer.Option(
        "--from",
        parser=place_argument,
        metavar="postgresql://...",
        help="Search the table that export --to pgvector wrote there.",
    ),
]
Table = Annotated[
    str, typer.Option("--table", metavar="NAME", help="With --from: the table, if it has a name.")
]
Filters = Annotated[
    list[str] | None,
    typer.Option(
        "--filter",
        metavar="NAME=VALUE",
        help="What an item must have: category=tea, price=2..5, price=..50; repeat for more, of "
        "one name as any of its values.",
    ),
]
Count = Annotated[int, typer.Option("--k", "-k", min=1, help="How many to print.")]

_LARGEST_EXPONENT = 700
_WIDEST_KEY = 20


def load_run(folder: Path, checkpoint: str) -> Run:
    """Return a run, saying so where it takes long."""
    from widemax.runs.folder.description import check_run

    check_run(folder)  # before torch is loaded: a misspelt folder is answered at once
    # Here and not above: torch takes seconds to load, and --help should not.
    with starting():
        from widemax.runs.run import Run

    with waiting(f"loading {folder}"):
        return Run(folder, checkpoint=checkpoint)


def database_of(place: Place | None, table: str) -> PostgresAddress | None:
    """Return the database that --from names; None: it is not given."""
    if place is None:
        if table:
            raise ValueError("--table is for --from: give both")
        return None
    if isinstance(place, Path):
        raise ValueError(f"--from must be a database, postgresql://host/name, got {place}")
    return place


def open_store(place: Place | None, table: str, *, exact: bool) -> VectorStore | None:
    """Return the table that --from names; None: the run itself is asked."""
    address = database_of(place, table)
    if address is None:
        return None
    if exact:
        raise ValueError("--exact is for the index of the run, and --from searches a database")
    from widemax.stores.searching import DEFAULT_TABLE, VectorStore

    return VectorStore(address, table or DEFAULT_TABLE)


def load_vectors(folder: Path, checkpoint: str, *, exact: bool = True) -> StoredVectors | Run:
    """Return what answers by the vectors of a run: without torch, if they are stored as such.

    An index, where one was built and ``exact`` is not asked for, is searched by the run.
    """
    from widemax.runs.folder.description import INDEX
    from widemax.runs.vectors.stored_vectors import StoredVectors

    if exact or not (folder / INDEX).is_dir():
        stored = StoredVectors.open(folder, checkpoint)
        if stored is not None:
            return stored
    return load_run(folder, checkpoint)


def load_tables(folder: Path, checkpoint: str, *, exact: bool) -> TableAnswers | None:
    """Return what recommends without torch; None: only the run can, as it does with an index."""
    from widemax.runs.answering.table_answers import TableAnswers
    from widemax.runs.folder.description import INDEX

    indexed = (folder / INDEX).is_dir() and not exact
    return None if indexed else TableAnswers.open(folder, checkpoint)


def say_step(run: Run | StoredVectors | TableAnswers) -> None:
    """Say which checkpoint answers, beside the answer and not in it."""
    typer.echo(f"{printable(run.folder)}: step {run.step:,}, {run.chosen}", err=True)


def say_found(catalogue: Catalogue, texts: Iterable[str]) -> None:
    """Say beside the answer which item was meant by a part of its title."""
    for text in texts:
        found = catalogue.find(text, k=1)
        if found and text.strip().lower() not in (
            str(found[0].key).lower(),
            found[0].title.lower(),
        ):
            meant = f"{found[0].key}, {found[0].title}"
            typer.echo(f"{printable(text)}: {printable(meant)}", err=True)


def neighbour_rows(found: Iterable[Neighbour]) -> list[dict[str, Any]]:
    """Return keys, scores and titles as JSON holds them."""
    return [
        {"key": each.key, "score": each.score, **({"title": each.title} if each.title else {})}
        for each in found
    ]


def print_neighbours(found: Iterable[Neighbour], *, as_json: bool) -> None:
    """Print keys, scores and titles, best first."""
    if as_json:
        typer.echo(strict_json(neighbour_rows(found)))
        return
    listed = [(each, printable(each.key)) for each in found]
    # A column where titles follow; a key of unusual length does not push all others away.
    width = min(max((len(key) for _, key in listed), default=0), _WIDEST_KEY)
    for each, key in listed:
        title = f"  {printable(each.title)}" if each.title else ""
        typer.echo(f"{each.score:9.4f}  {key:<{width if title else 0}}{title}")


def perplexity_of(mean_log_prob: float) -> float:
    """Return exp(−mean log P), infinite where a float cannot hold it.

    >>> round(perplexity_of(-1.0), 4)
    2.7183
    """
    return math.exp(-mean_log_prob) if mean_log_prob > -_LARGEST_EXPONENT else math.inf


def strict_json(value: Any, *, indent: int | None = None) -> str:
    """Return JSON that every reader takes: null stands for a number that is not finite.

    >>> strict_json([{"loss": float("inf"), "mrr": 0.5}])
    '[{"loss": null, "mrr": 0.5}]'
    """
    return json.dumps(finite(value), indent=indent, allow_nan=False)
