"""``widemax serve``: runs behind HTTP, with a page to look at them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from widemax.cli.answers import CheckpointName, FromDatabase, Table, database_of
from widemax.cli.printable import printable
from widemax.cli.progress import starting, waiting
from widemax.extras import import_extra
from widemax.stores.addresses import Place

HOST, PORT = "127.0.0.1", 8000


def serve(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="The folders of one run or more.")
    ],
    host: Annotated[
        str,
        typer.Option(
            help="The address to listen at; any but this machine's own opens it to others."
        ),
    ] = HOST,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: one that is free.")] = PORT,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="A further name that browsers may call the server by; repeat for more."),
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds that an answer may take.")] = 10.0,
    concurrent: Annotated[
        int, typer.Option(help="Answers that may be under way or wait for a thread.")
    ] = 64,
    database: FromDatabase = None,
    table: Table = "",
    query_timeout: Annotated[
        float | None,
        typer.Option(
            help="Seconds that the database of --from may take for a query; 5 if not set."
        ),
    ] = None,
    map_by: Annotated[
        Literal["pca", "umap"],  # MapMethod, whose module loads NumPy
        typer.Option(
            "--map", help="How the map is drawn: pca, or umap where umap-learn is installed."
        ),
    ] = "pca",
    checkpoint: CheckpointName = "best",
) -> None:
    """Answer over HTTP for one run or several, and show them on a page, until Ctrl-C."""
    serve_runs(
        runs,
        host=host,
        port=port,
        allowed_hosts=allow_host or [],
        timeout=timeout,
        concurrent=concurrent,
        database=database,
        table=table,
        query_timeout=query_timeout,
        map_by=map_by,
        checkpoint=checkpoint,
    )


def serve_runs(
    runs: list[Path],
    *,
    host: str = HOST,
    port: int = PORT,
    allowed_hosts: Sequence[str] = (),
    timeout: float = 10.0,
    concurrent: int = 64,
    database: Place | None = None,
    table: str = "",
    query_timeout: float | None = None,
    map_by: Literal["pca", "umap"] = "pca",
    checkpoint: str = "best",
) -> None:
    """Load runs, say where they are served, and serve them."""
    from widemax.runs.folder.description import check_run
    from widemax.runs.vectors.map import check_map_method
    from widemax.serving.limits import Limits

    address = database_of(database, table)
    if address is not None and len(runs) > 1:
        raise ValueError(f"--from is the table of one run, and {len(runs)} are to be served")
    if query_timeout is not None and address is None:
        raise ValueError("--query-timeout is for --from: without it no database is asked")
    check_map_method(map_by)
    limits = Limits(seconds=timeout, concurrent=concurrent)
    for folder in runs:
        check_run(folder)
    # Before anything large is loaded: a slow machine must not look dead.
    typer.echo(f"loading {', '.join(printable(folder) for folder in runs)}", err=True)
    for module in ("fastapi", "uvicorn", "prometheus_client"):
        import_extra("serve", module)
    with starting():
        from widemax.serving.runs.fleet import Fleet
        from widemax.serving.runs.store_pool import QUERY_SECONDS, TablePlace
        from widemax.serving.server import address_of, listen, make_server
        from widemax.stores.searching import DEFAULT_TABLE

    place = None
    if address is not None:
        seconds = QUERY_SECONDS if query_timeout is None else query_timeout
        place = TablePlace(address, table or DEFAULT_TABLE, seconds)

    # Before the runs are loaded: a port that is taken should not be found out after a minute.
    bound = listen(host, port)
    with waiting(f"loading {', '.join(map(str, runs))}"):
        fleet = Fleet(runs, checkpoint=checkpoint, place=place, map_by=map_by)

    def say() -> None:
        for each in fleet:
            typer.echo(f"{printable(each.name)}: step {each.step:,}, {each.run.chosen}", err=True)
        typer.echo(f"open {address_of(bound, host)} (Ctrl-C stops it)")

    make_server(fleet, host=host, allowed_hosts=allowed_hosts, limits=limits, ready=say).serve_on(
        bound
    )
