"""``widemax runs``: the runs in a folder with the metrics of their best checkpoints."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from widemax.cli.answers import AsJson, strict_json
from widemax.cli.errors import one_line
from widemax.cli.printable import printable
from widemax.cli.progress import starting

_COLUMNS = ("run", "model", "classes", "step", "best by", "recall@20", "mrr")
_WIDEST = 10_000


def runs(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder of runs.")] = Path(
        "runs"
    ),
    json: AsJson = False,
) -> None:
    """List the runs in a folder with their best checkpoints' metrics; damaged ones are named."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; name the one that holds your runs")
    rows = _rows(folder)
    if json:
        typer.echo(strict_json(rows))
        return
    if not rows and (folder / "run.json").is_file():
        raise ValueError(f"{printable(folder)} is a run itself: name the folder that holds it")
    if not rows:
        typer.echo(f"no runs in {printable(folder)}", err=True)
        return
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in _COLUMNS:
        if name in ("run", "model"):
            # Folded and not cut short: a name is what the other verbs are to be given.
            table.add_column(name, overflow="fold")
        else:
            table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        model = f"{row['model']}, refit" if row["refit"] else row["model"]
        shown = {**row, "model": model, "best by": _best_by(row)}
        table.add_row(*(_cell(shown.get(name, "")) for name in _COLUMNS))
    # Where nobody looks at it, no name is folded: a line is a run.
    wide = None if sys.stdout.isatty() else _WIDEST
    Console(file=sys.stdout, width=wide).print(table)


def _rows(folder: Path) -> list[dict[str, Any]]:
    with starting():
        from widemax.config.toml import read_toml
        from widemax.runs.folder.chosen_checkpoint import chosen_step, is_refitted
        from widemax.runs.folder.description import CONFIG, check_run
        from widemax.training.tracking import read_metrics

    rows = []
    for path in sorted(folder.iterdir()):
        if not (path / "run.json").is_file():
            continue
        metrics = path / "metrics.jsonl"
        try:
            lines = read_metrics(metrics) if metrics.exists() else []
            config = read_toml(path / CONFIG)
            metric = str(config.get("metric", ""))
            own = {"model": config.get("model", ""), "metric": metric, "refit": is_refitted(path)}
            chosen = _at(lines, chosen_step(path))
            rows.append({"run": path.name, **check_run(path), **chosen, **own})
        except (ValueError, OSError) as error:
            typer.echo(f"left out: {one_line(error)}", err=True)
    return rows


def _at(lines: list[dict[str, Any]], step: int) -> dict[str, Any]:
    """Return the validation of what answers; the last one where that was not validated."""
    return next((line for line in lines if line.get("step") == step), (lines or [{}])[-1])


def _best_by(row: dict[str, Any]) -> str:
    value = row.get(row["metric"])
    return "" if value is None else f"{row['metric']} {value:.4f}"


def _cell(value: object) -> Text:
    # As Text: a name in square brackets is no markup.
    if isinstance(value, int):
        return Text(f"{value:,}")
    return Text(f"{value:.4f}" if isinstance(value, float) else printable(value))
