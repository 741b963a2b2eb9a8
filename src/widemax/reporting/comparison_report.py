"""The report of a comparison: who came where, and how they got there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from widemax.comparison.budgeting import Terms
from widemax.comparison.race import RESULT, Race, stored_race
from widemax.reporting.charts import Chart, Series, line_chart
from widemax.reporting.page import Page, Table
from widemax.reporting.versions import versions
from widemax.storage.manifest import read_manifest

Row = Mapping[str, Any]


def comparison_page(folder: Path, command: str = "") -> Page:
    """Return the report of a comparison that has ended."""
    race = stored_race(folder)
    if race is None or not (folder / RESULT).exists():
        raise ValueError(f"{folder} holds no comparison that has ended: run it with --resume first")
    rows: list[Row] = read_manifest(folder / RESULT, 1)["standings"]
    there = [row for row in rows if not row["failed"]]
    if not there:
        raise ValueError(f"no output layer of {folder} could be trained: there is nothing to show")
    metric = str(there[0]["metric"])
    return Page(
        title=f"Output layers compared on {Path(race.source).name}",
        summary=_summary(race, there),
        parts=[
            _places(rows, metric),
            *_curves(there, metric),
            _memory(there, metric),
            _settings(race, there[0]),
        ],
        command=command,
        versions=versions(),
    )


def _summary(race: Race, there: Sequence[Row]) -> list[str]:
    best, terms = there[0], race.terms
    tied = [str(row["name"]) for row in there[1:] if row["tied"]]
    found = f"Best: {best['name']}, {best['metric']} {best['value']:.4f} ± {best['error']:.4f}"
    found += (
        f"; within twice the standard error of it: {' · '.join(tied)}."
        if tied
        else "; all others are behind by more than twice the standard error."
    )
    how = (
        f"{len(race.contenders)} output layers behind the same model, on the same data in the same "
        f"order, from the same start, with equal {terms.equal}: {_trainings(terms)}. "
        "Checkpoints were chosen by validation; the test was asked once, at the end."
    )
    return [found, how]


def _trainings(terms: Terms) -> str:
    """Return how often each was trained.

    >>> _trainings(Terms(budget=60, rates=1, seeds=1))
    'one learning rate each, then one whole training'
    """
    rates = f"{terms.rates} learning rates each, chosen by successive halving"
    seeds = f"{terms.seeds} whole trainings from different seeds"
    return (
        f"{rates if terms.rates > 1 else 'one learning rate each'}, then "
        f"{seeds if terms.seeds > 1 else 'one whole training'}"
    )


def _places(rows: Sequence[Row], metric: str) -> Table:
    header = ["output layer", metric, "±", "test", "learning rate", "steps", "s", "MB", "ahead"]
    cells, marked = [], []
    for number, row in enumerate(rows):
        if row["failed"]:
            cells.append([str(row["name"]), str(row["failed"]), *[""] * (len(header) - 2)])
            continue
        if number == 0 or row["tied"]:
            marked.append(number)
        tested, leads = row["test"].get(metric), row["leads"]
        cells.append(
            [
                str(row["name"]),
                f"{row['value']:.4f}",
                f"{row['error']:.4f}",
                "" if tested is None else f"{tested:.4f}",
                f"{row['learning_rate']:.2g}",
                f"{row['steps']:,}",
                f"{row['seconds']:.0f}",
                f"{row['memory'] / 1e6:.0f}",
                "" if leads is None else f"{leads[0]:.0f}–{leads[1]:.0f} s",
            ]
        )
    return Table(
        title="Who came where",
        header=header,
        rows=cells,
        marked=marked,
        about=(
            "Marked: the best, and what cannot be told from it. ± is the standard error of the "
            "choice of questions and of seeds. MB is memory beside the program itself. Ahead: "
            "during which seconds of training nothing else was better."
        ),
    )


def _curves(there: Sequence[Row], metric: str) -> list[Chart]:
    charts = []
    for place, what, log in ((1, "seconds of training", True), (0, "steps", True)):
        series = [
            Series(
                name=str(row["name"]),
                points=[(point[place], point[2]) for point in row["curve"]],
                errors=[point[3] for point in row["curve"]],
            )
            for row in there
        ]
        charts.append(
            line_chart(
                f"{metric} over {what.split()[0]}",
                f"Validation of the first seed of each; {_better(metric)} is better. "
                "Bars are standard errors.",
                series,
                x=what,
                y=metric,
                log_x=log,
            )
        )
    return charts


def _memory(there: Sequence[Row], metric: str) -> Chart:
    series = [
        Series(
            name=str(row["name"]),
            points=[(row["memory"] / 1e6, row["value"])],
            errors=[row["error"]],
            line=False,
        )
        for row in there
    ]
    front = ", ".join(str(row["name"]) for row in there if row["front"])
    return line_chart(
        f"{metric} against memory",
        f"Nothing is both better and smaller than {front}.",
        series,
        x="MB",
        y=metric,
    )


def _better(metric: str) -> str:
    return "less" if metric == "loss" else "more"


def _settings(race: Race, best: Row) -> Table:
    contender = next(each for each in race.contenders if each.name == best["name"])
    settings = {**contender.settings, "learning_rate": best["learning_rate"]}
    return Table(
        title="What the best was made of",
        header=["setting", "value"],
        rows=[[name, str(value)] for name, value in sorted(settings.items())],
        about="All else is as usual with the model; winner.toml has every value.",
    )
