"""``widemax export``: vectors, an index or an encoder for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from widemax.cli.answers import CheckpointName, RunFolder, load_run, path_of, say_step
from widemax.cli.completion import one_of
from widemax.cli.printable import printable
from widemax.cli.progress import waiting
from widemax.declarations import find, names


def export(
    run: RunFolder,
    path: Annotated[
        Path, typer.Argument(parser=path_of, metavar="PATH", help="The file or folder to write.")
    ],
    to: Annotated[
        str,
        typer.Option(
            help=f"One of {', '.join(names('export'))}.", autocompletion=one_of(names("export"))
        ),
    ] = "word2vec",
    checkpoint: CheckpointName = "best",
) -> None:
    """Write the vectors of a run, a Faiss index, or an ONNX encoder, for other tools."""
    # A misspelt format before torch is loaded.
    found = find("export", to, argument="to")
    loaded = load_run(run, checkpoint)
    with waiting(f"writing {path}"):
        loaded.export(path, to=found.name)
    say_step(loaded)
    typer.echo(f"{found.name}: {printable(path)}", err=True)
