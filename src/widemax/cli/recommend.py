"""``widemax recommend``: what best follows a history, or the history of a user."""

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
    load_run,
    load_tables,
    open_store,
    path_of,
    print_neighbours,
    say_found,
    say_step,
)
from widemax.cli.printable import printable
from widemax.cli.progress import waiting
from widemax.filters import parse_filters, parse_pairs
from widemax.runs.answering.questions import RecommendQuestion

if TYPE_CHECKING:
    from widemax.runs.answering.table_answers import TableAnswers
    from widemax.runs.run import Run


def recommend(
    run: RunFolder,
    user: Annotated[
        str | None, typer.Option(help="A user of the log that the run was trained on.")
    ] = None,
    history: Annotated[
        list[str] | None,
        typer.Option(
            help="An item of the history, its key or title; repeat for more, oldest first."
        ),
    ] = None,
    search: Annotated[
        str,
        typer.Option(help="What the user typed just now, for a run trained with --search-column."),
    ] = "",
    feature: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A feature of somebody new, for a run trained with --user-features; repeat for "
            "more.",
        ),
    ] = None,
    leave_out: Annotated[
        list[str] | None,
        typer.Option(help="An item that must not be among the answers; repeat for more."),
    ] = None,
    include_seen: Annotated[
        bool,
        typer.Option("--include-seen", help="What is in the history may be among the answers."),
    ] = False,
    all_users: Annotated[
        bool, typer.Option("--all-users", help="For every user of the log, into --out.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            parser=path_of,
            metavar="FILE",
            help="With --all-users: a .parquet or .csv file of user, rank, item, score and title.",
        ),
    ] = None,
    k: Count = 10,
    exact: Exact = False,
    database: FromDatabase = None,
    table: Table = "",
    filters: Filters = None,
    checkpoint: CheckpointName = "best",
    json: AsJson = False,
) -> None:
    """Print what best follows a history: one that is given, or that of a user."""
    if all_users != (out is not None):
        raise ValueError("--all-users and --out FILE are given together")
    named = (user is not None) + bool(history) + all_users
    if named > 1 or (not named and not search and not feature):
        raise ValueError("give either --user or --history, or --all-users")
    if all_users and search:
        raise ValueError("--search is what one user typed, and --all-users asks for every user")
    if all_users and json:
        raise ValueError("--json has no effect with --all-users: the answers go to --out FILE")
    one_answer = {
        "feature": feature, "filter": filters, "leave-out": leave_out, "from": database,
        "table": table,
    }  # fmt: skip
    for flag, given in one_answer.items():
        if all_users and given:
            raise ValueError(f"--{flag} is for one answer, and --all-users asks for every user")
    if out is not None:
        _recommend_to_all(load_run(run, checkpoint), out, k, include_seen=include_seen)
        return
    asked = RecommendQuestion(
        history=history or None,
        user=user,
        search=search,
        features=_features(feature) if feature else None,
        filters=parse_filters(filters or []),
        leave_out=leave_out or [],
        k=k,
        include_seen=include_seen,
        exact=exact,
    )
    store = open_store(database, table, exact=exact)
    if store is not None:
        from widemax.runs.from_store import answer_from

        with store:
            answering = load_run(run, checkpoint)
            found = answer_from(store, answering, asked)
        say_step(answering)
        say_found(answering.catalogue, history or [])
        print_neighbours(found, as_json=json)
        return
    loaded: Run | TableAnswers
    tables = None if search or feature else load_tables(run, checkpoint, exact=exact)
    if tables is not None:
        loaded = tables
        found = tables.recommend(
            asked.history,
            user=user,
            filters=asked.filters,
            leave_out=asked.leave_out,
            k=k,
            include_seen=include_seen,
        )
    else:
        loaded = load_run(run, checkpoint)
        found = loaded.recommender.neighbours(asked)
    say_step(loaded)
    say_found(loaded.catalogue, history or [])
    print_neighbours(found, as_json=json)


def _features(given: list[str]) -> dict[str, str]:
    """Return the features of somebody new as they are typed, each once."""
    pairs = parse_pairs("feature", given)
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("--feature must name each feature once")
    return found


def _recommend_to_all(run: Run, out: Path, k: int, *, include_seen: bool) -> None:
    """Write what best follows the history of every user."""
    import polars as pl

    from widemax.storage.files import atomic_write

    if out.suffix not in (".parquet", ".csv"):
        raise ValueError(f"--out must end in .parquet or .csv, got {printable(out)}")
    with waiting(f"writing {out}"):
        table = pl.concat(run.recommend_all(k=k, include_seen=include_seen))
        with atomic_write(out) as file:
            if out.suffix == ".parquet":
                table.write_parquet(file)
            else:
                table.write_csv(file)
    say_step(run)
    users = table["user"].n_unique()
    typer.echo(f"{users:,} users, {len(table):,} rows: {printable(out)}", err=True)
