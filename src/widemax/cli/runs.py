"""The verbs that ask a trained run: evaluate, similar, recommend, score, export; and runs."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from widemax.cli.errors import describe
from widemax.cli.printable import printable
from widemax.cli.waiting import waiting
from widemax.index.building import Kind
from widemax.runs.export.formats import ExportFormat
from widemax.runs.run import Neighbour, Run
from widemax.runs.run_folder import check_run
from widemax.training.tracking import read_metrics

_LARGEST_EXPONENT = 700


def load(folder: Path) -> Run:
    """Return a run, saying so where it takes long."""
    with waiting(f"loading {folder}"):
        return Run(folder)


def similar_verb(folder: Path, keys: Sequence[str], k: int, *, exact: bool, as_json: bool) -> None:
    """Print the neighbours of each key, below the key where there are several."""
    run = load(folder)
    # All of them before the first is printed: a misspelt last key leaves no half answer.
    answers = [run.similar(key, k=k, exact=exact) for key in keys]
    for key, found in zip(keys, answers, strict=True):
        if len(keys) > 1 and not as_json:
            typer.echo(f"{printable(key)}:")
        show_neighbours(found, as_json=as_json)


def show_neighbours(found: Iterable[Neighbour], *, as_json: bool) -> None:
    """Print keys and scores, best first."""
    rows = [{"key": each.key, "score": each.score} for each in found]
    if as_json:
        typer.echo(json.dumps(rows))
        return
    for row in rows:
        typer.echo(f"{row['score']:9.4f}  {printable(row['key'])}")


def recommend_verb(
    folder: Path, user: str | None, history: list[str], k: int, *, exact: bool, as_json: bool
) -> None:
    """Recommend for a history, or for a user of the log."""
    run = load(folder)
    keys: list[Any] = list(history)
    if user is not None:
        keys = _history_of(run, user)
    found = run.recommend(keys, k=k, user=user, exact=exact)
    show_neighbours(found, as_json=as_json)


def index_verb(folder: Path, kind: str, recall: float, *, as_json: bool) -> None:
    """Build the indexes of a run, and print how much of the exact answer each finds."""
    run = load(folder)
    with waiting(f"indexing {folder}"):
        built = run.build_index(cast("Kind", kind), recall=recall)
    if as_json:
        rows = [{"for": each.purpose, "kind": each.kind, **asdict(each.report)} for each in built]
        typer.echo(json.dumps(rows))
        return
    for each in built:
        typer.echo(f"{each.purpose}: {each.kind}, {each.report}")


def _history_of(run: Run, user: str) -> list[Any]:
    path = run.description["source"]
    with waiting(f"reading {path}"):
        source = run.read_source()
    names = source.sequences.names
    if names is None:
        raise ValueError(f"{run.folder} was trained on text: it has no users, use --history")
    places = (names.cast(str) == user).arg_true()
    if not len(places):
        raise ValueError(f"user {user!r} is not among the {len(names):,} users of {path}")
    ids = source.sequences.sequence(int(places[0]))
    return source.vocabulary.decode(ids)


def evaluate_verb(folder: Path, *, by_popularity: bool = False, as_json: bool) -> None:
    """Print exact metrics on what was held out."""
    run = load(folder)
    if run.description["kind"] != "text":
        _evaluate_log(run, by_popularity=by_popularity, as_json=as_json)
        return
    if by_popularity:
        raise ValueError(f"{folder} was trained on text: --by popularity is for logs")
    with waiting(f"evaluating {folder}"):
        report = run.evaluate()
    figures = {"examples": report.examples, **report.metrics()}
    if run.model.causal:
        figures["perplexity"] = _perplexity(-report.loss)
    if as_json:
        typer.echo(json.dumps({name: finite(value) for name, value in figures.items()}))
        return
    for name, value in figures.items():
        typer.echo(
            f"{name:<12} {value:,.4f}" if isinstance(value, float) else f"{name:<12} {value:,}"
        )


def _evaluate_log(run: Run, *, by_popularity: bool, as_json: bool) -> None:
    with waiting(f"evaluating {run.folder}"):
        report = run.evaluate_recommendations()
    if not by_popularity:
        report = replace(report, buckets=())
    if as_json:
        figures = {"users": report.users, "targets": report.targets, **report.metrics()}
        typer.echo(json.dumps(figures))
        return
    typer.echo(str(report))


def score_verb(folder: Path, sentence: str, *, as_json: bool) -> None:
    """Print each word with its log probability, and the perplexity."""
    words = load(folder).score(sentence)
    mean = sum(value for _, value in words) / len(words)
    if as_json:
        rows = [{"word": word, "log_prob": finite(value)} for word, value in words]
        figures = {"mean_log_prob": finite(mean), "perplexity": finite(_perplexity(mean))}
        typer.echo(json.dumps({"words": rows, **figures}))
        return
    for word, value in words:
        typer.echo(f"{value:9.4f}  {printable(word)}")
    typer.echo(f"{mean:9.4f}  mean; perplexity {_perplexity(mean):,.2f}")


def _perplexity(mean_log_prob: float) -> float:
    return math.exp(-mean_log_prob) if mean_log_prob > -_LARGEST_EXPONENT else math.inf


def finite(value: float) -> float | None:
    """Return a number as JSON can hold it: null stands for one that is not finite."""
    return value if math.isfinite(value) else None


def export_verb(folder: Path, path: Path, to: ExportFormat) -> None:
    """Write what of a run a format holds."""
    run = load(folder)
    with waiting(f"writing {path}"):
        run.export(path, to=to)


def list_runs(folder: Path, *, as_json: bool) -> None:
    """Print the runs in a folder with their last metrics; one that is damaged is named."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; name the one that holds your runs")
    rows = _rows(folder)
    if as_json:
        typer.echo(json.dumps(rows))
        return
    if not rows:
        typer.echo(f"no runs in {printable(folder)}", err=True)
        return
    table = Table()
    names = ["run", "kind", "classes", "step", "loss", "recall@20", "ndcg@20", "mrr"]
    for name in names:
        table.add_column(name, justify="left" if name in ("run", "kind") else "right")
    for row in rows:
        table.add_row(*(_cell(row.get(name, "")) for name in names))
    Console(file=sys.stdout).print(table)


def _rows(folder: Path) -> list[dict[str, Any]]:
    rows = []
    for path in sorted(folder.iterdir()):
        if not (path / "run.json").is_file():
            continue
        try:
            rows.append({"run": path.name, **check_run(path), **_last_metrics(path)})
        except (ValueError, OSError) as error:
            typer.echo(f"left out: {describe(error)}", err=True)
    return rows


def _last_metrics(folder: Path) -> dict[str, Any]:
    path = folder / "metrics.jsonl"
    lines = read_metrics(path) if path.exists() else []
    return lines[-1] if lines else {}


def _cell(value: object) -> Text:
    # As Text: a name in square brackets is no markup.
    return Text(f"{value:.4f}" if isinstance(value, float) else printable(value))
