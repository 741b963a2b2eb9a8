"""``widemax compare``: output layers in a fair race on the user's own data."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from widemax.cli.answers import AsJson, path_of, strict_json
from widemax.cli.config_options import ConfigCommand, Settings, with_config_options
from widemax.cli.durations import seconds_of
from widemax.cli.printable import printable
from widemax.cli.progress import starting, waiting
from widemax.limits import usable_cores

if TYPE_CHECKING:
    from widemax.comparison.budgeting import Terms
    from widemax.comparison.race import Race
    from widemax.comparison.standings import Standing
    from widemax.comparison.trial import Job

COMMAND = ConfigCommand
"""What the verb is made of, instead of typer's own."""

_LANGUAGE_MODEL = "nnlm"
_ALIKE = "all output layers have the same, which compare chooses"
"""What a text is compared with unless a model is named: its output layer is all that differs."""


@with_config_options
def compare(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="A text or a log, as for train.")
    ],
    folder: Annotated[
        Path,
        typer.Option(parser=path_of, metavar="FOLDER", help="Where the comparison is kept."),
    ],
    heads: Annotated[str, typer.Option(metavar="NAME,NAME", help="Output layers to compare.")] = "",
    samplers: Annotated[
        str, typer.Option(metavar="NAME,NAME", help="Samplers for those that draw.")
    ] = "",
    objectives: Annotated[
        str, typer.Option(metavar="NAME,NAME", help="Objectives for those that draw.")
    ] = "",
    budget: Annotated[
        str, typer.Option(metavar="TIME", help="Time for all of it: 90s, 10m, 2h.")
    ] = "10m",
    equal: Annotated[
        str,
        typer.Option(
            metavar="time|steps", help="What contenders have the same of; other settings are alike."
        ),
    ] = "time",
    rates: Annotated[
        int, typer.Option(min=1, max=27, help="Learning rates tried for each, by halving.")
    ] = 3,
    seeds: Annotated[
        int, typer.Option(min=1, max=20, help="Whole trainings of each, from different seeds.")
    ] = 2,
    workers: Annotated[
        int, typer.Option(min=0, max=256, help="Trainings side by side; 0: one for each core.")
    ] = 0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the comparison in --folder, or start it.")
    ] = False,
    json: AsJson = False,
    *,
    settings: Settings,
) -> None:
    """Race output layers on your data: same model, data order, start and budget.

    The learning rate of each is chosen by successive halving, the best checkpoint by validation;
    the test is asked once, at the end. Settings of train, such as --dimension, are for all.
    """
    with starting():
        from widemax.comparison.budgeting import Terms
        from widemax.comparison.race import stored_race

    race = stored_race(folder) if resume else None
    if race is None:
        terms = Terms(
            budget=seconds_of(budget),
            equal=_one_of("--equal", equal, ("time", "steps")),
            rates=rates,
            seeds=seeds,
            workers=workers or usable_cores(),
        )
        named = {
            "heads": _names(heads),
            "samplers": _names(samplers),
            "objectives": _names(objectives),
        }
        race = _new_race(source, folder, settings, terms, named, resume=resume)
    _run(race, as_json=json)


def _one_of(name: str, value: str, choices: Sequence[str]) -> str:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
    return value


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _new_race(
    source: Path,
    folder: Path,
    settings: Settings,
    terms: Terms,
    named: dict[str, list[str]],
    *,
    resume: bool,
) -> Race:
    from widemax.cli import plugins_of
    from widemax.comparison.contenders import contenders_of
    from widemax.comparison.race import DECIDED, Race
    from widemax.config import Config
    from widemax.runs.source.configured import configured_for, kind_of

    given = settings.given()
    for name in given:
        if name in DECIDED:
            plural = f"--{name}s names them" if f"{name}s" in named else _ALIKE
            raise ValueError(f"--{name.replace('_', '-')} is not for compare: {plural}")
    if not resume and folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty: choose another folder, or --resume")
    kind = kind_of(source, given)
    if kind == "text" and "model" not in given:
        given["model"] = _LANGUAGE_MODEL
    read = configured_for(source, Config(source=None, **given)).given
    # All are judged by one metric, whatever is usual with a head.
    metric = Config(source=kind, **read).metric
    found, refused = contenders_of({**read, "metric": metric}, kind, **named)
    for each in refused:
        typer.echo(f"left out: {each.name}: {each.reason}", err=True)
    if len(found) < 2:
        raise ValueError("a comparison needs two output layers: name more --heads or --objectives")
    return Race(
        folder=folder,
        source=str(source.absolute()),
        kind=kind,
        contenders=found,
        terms=terms,
        plugins=list(plugins_of(sys.argv[1:])),
    )


def _run(race: Race, *, as_json: bool) -> None:
    console = Console(stderr=True)
    try:
        if console.is_terminal:
            with Live(console=console, refresh_per_second=2) as live:
                race.on_look = lambda race, running: live.update(_live_table(race, running))
                found = race.run()
        else:
            with waiting(f"comparing {len(race.contenders)} output layers in {race.folder}"):
                found = race.run()
    except KeyboardInterrupt:
        console.print(f"saved; add --resume to continue in {printable(race.folder)}", markup=False)
        raise
    if as_json:
        from dataclasses import asdict

        typer.echo(strict_json([asdict(each) for each in found]))
        return
    Console(width=None if Console().is_terminal else 120).print(_table(found))
    for line in _sentences(race, found):
        typer.echo(line)


def _live_table(race: Race, running: Sequence[Job]) -> Table:
    doing = {Path(job.folder).parent.name for job in running}
    return _table(race.standings(), doing)


def _table(found: Sequence[Standing], doing: set[str] | None = None) -> Table:
    from widemax.comparison.race import slug

    metric = next((each.metric for each in found if each.metric), "metric")
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("output layer", overflow="fold", min_width=12)
    for name in (metric, "", "test", "rate", "steps", "s", "MB", "ahead"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in found:
        shown = Text(printable(each.name), style="bold" if each is found[0] else "")
        if doing and slug(each.name) in doing:
            shown.append(" …")
        table.add_row(shown, *_cells(each, first=each is found[0]))
    return table


def _cells(each: Standing, *, first: bool) -> list[str | Text]:
    if each.failed:
        return [Text(printable(each.failed), style="red", overflow="ellipsis")]
    if not each.metric:
        return []
    tested = each.test.get(each.metric)
    return [
        f"{each.value:.4f} ± {each.error:.4f}",
        "≈" if each.tied and not first else "",
        "" if tested is None else f"{tested:.4f}",
        f"{each.learning_rate:.2g}",
        f"{each.steps:,}",
        f"{each.seconds:.0f}",
        f"{each.memory / 1e6:.0f}",
        "" if each.leads is None else f"{each.leads[0]:.0f}–{each.leads[1]:.0f} s",
    ]


def _sentences(race: Race, found: Sequence[Standing]) -> list[str]:
    """Return what the table means, and what to type next."""
    best = found[0]
    if best.failed:
        return ["no output layer could be trained"]
    tied = any(each.tied and not each.failed for each in found[1:])
    mean = f", the mean of {best.seeds} seeds" if best.seeds > 1 else ""
    lines = [f"best in validation{mean}: {best.name}"]
    if tied:
        lines[0] += "; those marked ≈ are within twice the standard error of it"
    if any(each.leads for each in found):
        lines.append("ahead: between which seconds of its training it was the best of all so far")
    if race.less:
        sizes = ", ".join(f"--{n.replace('_', '-')} {size}" for n, size in race.less.items())
        lines.append(f"asked fewer questions than usual, so that trainings had their time: {sizes}")
    command = ["widemax", "train", race.source, "--config", str(race.folder / "winner.toml")]
    lines.append(f"train it on: {shlex.join([*command, '--folder', 'runs/winner'])}")
    return [printable(line) for line in lines]
