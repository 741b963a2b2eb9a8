"""The work of ``widemax reproduce``: each row trained, evaluated, kept, and shown."""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from widemax.cli.interruption import STOPPED
from widemax.cli.printable import printable
from widemax.cli.reproduce.sets import Figure, PublishedSet, published_sets
from widemax.declarations.options import nearest
from widemax.storage.files import make_folder
from widemax.storage.manifest import read_manifest, write_manifest

FIGURES_FILE = "figures.json"
FORMAT_VERSION = 1


def list_sets(data: Path | None) -> None:
    """Print each set, what it needs, and whether that is there."""
    for name, each in published_sets().items():
        lacking = each.files if data is None else each.missing(data)
        state = f"{printable(data)} has no {', '.join(lacking)}" if lacking else "data found"
        if data is None:
            state = f"needs --data FOLDER with {', '.join(lacking)}"
        print(f"{name:<10} {each.about}\n{'':<10} rows: {', '.join(each.rows)}; {state}")


def run_set(
    name: str,
    data: Path | None,
    folder: Path,
    *,
    only: Sequence[str],
    flags: Sequence[str],
    resume: bool,
) -> None:
    """Run the rows of a set, or some of them, and print their figures beside the published ones."""
    chosen = _chosen("set", name, published_sets())
    for each in only:
        _chosen("only", each, chosen.rows)
    rows = [each for each in chosen.rows if not only or each in only]
    source = _source(name, chosen, data)
    folder = make_folder(folder / name)
    kept = _Kept(folder / FIGURES_FILE, resume=resume)
    console = Console(width=None if Console().is_terminal else 120)
    for row in rows:
        run = folder / row
        train = ["train", str(source), "--folder", str(run), *chosen.rows[row].flags, *flags]
        evaluate = ["evaluate", str(run), *chosen.evaluate, "--json"]
        commands = [shlex.join(["widemax", *words]) for words in (train, evaluate)]
        if kept.has(row, commands):
            console.print(f"{row}: done before", highlight=False)
            continue
        for command in commands:
            console.print(printable(f"$ {command}"), markup=False, highlight=False, soft_wrap=True)
        _call([*train, "--resume"] if resume else train)
        printed = io.StringIO()
        with redirect_stdout(printed):
            _call(evaluate)
        kept.add(row, commands, json.loads(printed.getvalue()))
    if flags:
        console.print(f"trained with {shlex.join(flags)} besides the usual settings", markup=False)
    console.print(_table(chosen, {row: kept.rows[row]["figures"] for row in rows}))
    console.print(f"kept in {printable(kept.path)}", markup=False, soft_wrap=True)


class _Kept:
    """The figures of the rows that are done, in a file that is written after each."""

    def __init__(self, path: Path, *, resume: bool) -> None:
        self.path = path
        self.rows: dict[str, Any] = {}
        if path.exists():
            self.rows = read_manifest(path, FORMAT_VERSION)["rows"]
        self.resume = resume

    def has(self, row: str, commands: list[str]) -> bool:
        """Whether a row was done by these very commands, and is not to be done again."""
        return self.resume and row in self.rows and self.rows[row]["commands"] == commands

    def add(self, row: str, commands: list[str], figures: Mapping[str, Any]) -> None:
        self.rows[row] = {"commands": commands, "figures": figures}
        write_manifest(self.path, FORMAT_VERSION, {"rows": self.rows})


def _chosen(argument: str, name: str, known: Mapping[str, Any]) -> Any:
    if name not in known:
        hint = nearest(name, tuple(known))
        raise ValueError(f"{argument} must be one of {', '.join(known)}, got {name!r}{hint}")
    return known[name]


def _source(name: str, chosen: PublishedSet, data: Path | None) -> Path:
    """Return what is trained on; if it is not there, say what to put where."""
    lacking = list(chosen.files) if data is None else chosen.missing(data)
    if data is None or lacking:
        where = "a folder that --data or WIDEMAX_DATA names" if data is None else printable(data)
        raise ValueError(f"{name} needs {', '.join(lacking)} in {where}: {chosen.holds}")
    return data / chosen.source


def _call(arguments: list[str]) -> None:
    """Run a verb as if it had been typed."""
    # Not at the top: the program has this verb among its others.
    from widemax.cli.app import app

    # A verb that ends early says so by its exit code: 130 is Ctrl-C, after which it has saved.
    if code := app(arguments, standalone_mode=False):
        raise KeyboardInterrupt if code == STOPPED else typer.Exit(code)


def _table(chosen: PublishedSet, found: Mapping[str, Mapping[str, float]]) -> Table:
    table = Table("row", "figure", "published", "expected", "here")
    for row, figures in found.items():
        for name, figure in chosen.rows[row].figures.items():
            here = figures[name]
            published = f"{_digits(figure.published)} {figure.by}".strip()
            expected = _digits(figure.expected)
            if figure.expected is not None and figure.spread:
                expected += f" ± {_digits(figure.spread, like=figure.expected)}"
            table.add_row(row, name, published, expected, _digits(here) + _beside(figure, here))
    return table


def _digits(value: float | None, *, like: float | None = None) -> str:
    """Return four digits of a share, one of a perplexity, or as many as another figure has."""
    if value is None:
        return ""
    return f"{value:.4f}" if abs(value if like is None else like) < 10 else f"{value:.1f}"


def _beside(figure: Figure, here: float) -> str:
    """Return how a figure lies to what is expected, where it is not within the spread."""
    if figure.expected is None or abs(here - figure.expected) <= figure.spread:
        return ""
    return f" ({'above' if here > figure.expected else 'below'})"
