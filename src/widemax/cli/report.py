"""``widemax report``: a run or a comparison as one HTML file."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from widemax.cli.answers import CheckpointName, load_run, path_of
from widemax.cli.printable import printable
from widemax.cli.progress import starting, waiting


def report(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The folder of a run or of a comparison.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            parser=path_of,
            metavar="FILE",
            help="Where to write it; .md is written as Markdown. By default report.html in FOLDER.",
            show_default=False,
        ),
    ] = None,
    checkpoint: CheckpointName = "best",
) -> None:
    """Write one self-contained HTML file: curves, figures, settings, the command behind them."""
    with starting():
        from widemax.comparison.race import PLAN
        from widemax.reporting.comparison_report import comparison_page
        from widemax.reporting.page import to_html, to_markdown
        from widemax.reporting.run_report import run_page
        from widemax.storage.files import atomic_write

    out = out or folder / "report.html"
    command = shlex.join(["widemax", *sys.argv[1:]])
    if (folder / PLAN).exists():
        page = comparison_page(folder, command)
    else:
        run = load_run(folder, checkpoint)
        with waiting(f"evaluating {folder}"):
            page = run_page(run, command)
    text = to_markdown(page) if out.suffix == ".md" else to_html(page)
    with atomic_write(out) as file:
        file.write(text.encode())
    typer.echo(f"wrote {printable(out)}")
