"""The verbs about runs: train, evaluate, similar, recommend, score, export, runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from widemax.runs.resolved import ResolvedConfig
from widemax.runs.run import Neighbour, Run
from widemax.runs.training import check_run, prepare
from widemax.training.loop import Interrupted
from widemax.training.loop import Progress as TrainingProgress
from widemax.training.tracking import read_metrics


def train_verb(
    source: Path,
    folder: Path,
    resolved: ResolvedConfig,
    *,
    resume: bool,
    vectors: Path | None = None,
) -> None:
    """Train on a source into a folder, showing where it stands."""
    display = _Display()
    training = prepare(
        source,
        resolved.config,
        folder,
        resume=resume,
        vectors=vectors,
        on_step=display.step,
        on_validation=display.validation,
    )
    vocabulary = training.source.vocabulary
    display.say(
        f"{training.source.kind}: {len(vocabulary):,} classes, "
        f"{len(training.split.training):,} examples; {training.model.head.__class__.__name__}"
    )
    if training.warm is not None:
        found, classes = training.warm.found, training.warm.classes
        display.say(f"{found:,} of {classes:,} classes start from {vectors}")
    if resume:
        display.say(f"resumed at step {training.loop.progress.step:,}")
    with display.showing(training.loop.plan.total_steps, training.loop.progress.step):
        try:
            progress = training.run()
        except Interrupted:
            display.say(f"saved; go on with: widemax train {source} --folder {folder} --resume")
            raise KeyboardInterrupt from None
    display.say(f"finished by {progress.finished} after {progress.step:,} steps: {folder}")


class _Display:
    """A bar and live figures on a terminal, plain lines elsewhere."""

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        self.live = self.console.is_terminal
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        self.bar = Progress(
            *columns, TimeRemainingColumn(), console=self.console, disable=not self.live
        )
        self.task = self.bar.add_task("training", total=None)

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def showing(self, total: int, done: int) -> Progress:
        self.bar.update(self.task, total=total, completed=done)
        return self.bar

    def step(self, progress: TrainingProgress) -> None:
        if self.live:
            self.bar.update(self.task, completed=progress.step)

    def validation(self, progress: TrainingProgress, metrics: Mapping[str, float]) -> None:
        figures = "  ".join(f"{name} {value:.4f}" for name, value in metrics.items())
        rate = progress.step / progress.seconds if progress.seconds else 0.0
        self.say(f"step {progress.step:,}  {figures}  {rate:,.0f} steps/s")


def show_neighbours(found: Iterable[Neighbour], *, as_json: bool) -> None:
    """Print keys and scores, best first."""
    rows = [{"key": each.key, "score": each.score} for each in found]
    if as_json:
        typer.echo(json.dumps(rows))
        return
    for row in rows:
        typer.echo(f"{row['score']:9.4f}  {_printable(row['key'])}")


def _printable(key: object) -> str:
    """Return a key with control characters shown as escapes: a title must not drive a terminal."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in str(key))


def recommend_verb(
    folder: Path, user: str | None, history: list[str], k: int, *, as_json: bool
) -> None:
    """Recommend for a history, or for a user of the log."""
    run = Run(folder)
    keys: list[Any] = list(history)
    if user is not None:
        keys = _history_of(run, user)
    show_neighbours(run.recommend(keys, k=k), as_json=as_json)


def _history_of(run: Run, user: str) -> list[Any]:
    source = run.read_source()
    names = source.sequences.names
    if names is None:
        raise ValueError(f"{run.folder} was trained on text: it has no users")
    places = (names.cast(str) == user).arg_true()
    if not len(places):
        raise ValueError(f"user {user!r} is not in {run.description['source']}")
    ids = source.sequences.sequence(int(places[0]))
    return source.vocabulary.decode(ids)


def evaluate_verb(folder: Path, *, as_json: bool) -> None:
    """Print exact metrics on what was held out."""
    report = Run(folder).evaluate()
    figures = {"examples": report.examples, **report.metrics()}
    if as_json:
        typer.echo(json.dumps(figures))
        return
    for name, value in figures.items():
        typer.echo(
            f"{name:<12} {value:,.4f}" if isinstance(value, float) else f"{name:<12} {value:,}"
        )


def score_verb(folder: Path, sentence: str, *, as_json: bool) -> None:
    """Print each word with its log probability, and the perplexity."""
    words = Run(folder).score(sentence)
    mean = sum(value for _, value in words) / len(words)
    if as_json:
        rows = [{"word": word, "log_prob": value} for word, value in words]
        typer.echo(json.dumps({"words": rows, "mean_log_prob": mean}))
        return
    for word, value in words:
        typer.echo(f"{value:9.4f}  {_printable(word)}")
    typer.echo(f"{mean:9.4f}  mean")


def list_runs(folder: Path, *, as_json: bool) -> None:
    """Print the runs in a folder with their last metrics."""
    rows = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if (path / "run.json").is_file():
            rows.append({"run": path.name, **check_run(path), **_last_metrics(path)})
    if as_json:
        typer.echo(json.dumps(rows))
        return
    table = Table()
    names = ["run", "kind", "classes", "step", "loss", "recall@20", "ndcg@20", "mrr"]
    for name in names:
        table.add_column(name, justify="left" if name in ("run", "kind") else "right")
    for row in rows:
        table.add_row(*(_cell(row.get(name, "")) for name in names))
    Console(file=sys.stdout).print(table)


def _last_metrics(folder: Path) -> dict[str, Any]:
    path = folder / "metrics.jsonl"
    lines = read_metrics(path) if path.exists() else []
    return lines[-1] if lines else {}


def _cell(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
