"""``widemax advise``: what to train with on some data, why, and at what cost."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from widemax.cli.answers import AsJson, strict_json
from widemax.cli.config_options import ConfigCommand, Settings, with_config_options
from widemax.cli.printable import printable
from widemax.cli.progress import starting, waiting

if TYPE_CHECKING:
    from widemax.advising import Advice

COMMAND = ConfigCommand
"""What the verb is made of, instead of typer's own."""

_WIDTH = 100
_NAMES = {"num_samples": "samples", "batch_size": "batch size", "learning_rate": "learning rate"}
_OPERATIONS = {"steps": "overhead", "gathered": "rows read", "updated": "rows written"}
_SHOWN_PART = 0.1


@with_config_options
def advise(
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="SOURCE",
            help="A text or a log, as for train; none for a plan.",
            show_default=False,
        ),
    ] = None,
    needs: Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME",
            help="What the model is for: probabilities, new-items, serving.",
        ),
    ] = "",
    memory: Annotated[
        str, typer.Option(metavar="SIZE", help="Memory that there is, such as 8GB.")
    ] = "",
    labels: Annotated[
        float | None,
        typer.Option(help="Right answers of one example; 1 by default.", show_default=False),
    ] = None,
    classes: Annotated[
        float | None,
        typer.Option(help="For a plan: how many classes, such as 50e6.", show_default=False),
    ] = None,
    examples: Annotated[
        float | None,
        typer.Option(
            help="For a plan: how many interactions or words to train on.", show_default=False
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="log|text", help="For a plan: what the data are.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the configuration, for train --config FILE."),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Measure this machine again, which takes ten seconds.")
    ] = False,
    json: AsJson = False,
    *,
    settings: Settings,
) -> None:
    """Recommend model, output layer and numbers for your data, with reasons and expected costs.

    Settings of train, such as --dimension, are kept as you give them.
    """
    with starting():
        from widemax.advising import Machine
        from widemax.advising import advise as advised

    given = settings.given()
    with waiting(f"reading {source}" if source else "planning"):
        # What is wrong with the question is said before anything is measured.
        question = {
            "needs": [each.strip() for each in needs.split(",") if each.strip()],
            "memory": memory,
            "labels": labels,
            "classes": classes,
            "examples": examples,
            "data": data,
        }
        advice = advised(source, machine=Machine.typical(), **question, **given)  # type: ignore[arg-type]
    with waiting("measuring this machine, once"):
        machine = Machine.this(again=again)
    advice = advice.on(machine)
    if out is not None:
        advice.save(out)
    if json:
        typer.echo(strict_json(advice.as_json(), indent=1))
        return
    _print(advice, out)


def _print(advice: Advice, out: Path | None) -> None:
    console = Console(file=sys.stdout)
    if not console.is_terminal:
        console = Console(file=sys.stdout, width=_WIDTH)
    parts = (_headline(advice), _decisions(advice), _costs(advice), _alternatives(advice))
    console.print(Group(*(Padding(part, (0, 0, 1, 0)) for part in parts)), highlight=False)
    source = "SOURCE" if advice.situation.path is None else str(advice.situation.path)
    file = "advice.toml" if out is None else str(out)
    command = ["widemax", "train", source, "--config", file, "--folder", "runs/advised"]
    said = "train it" if out is not None else "write it with --out advice.toml, then train it"
    console.print(Text(f"{said}:"))
    # Not wrapped by us: a terminal wraps it so that it can still be copied.
    console.print(Text(f"\n  {printable(shlex.join(command))}"), soft_wrap=True)


def _headline(advice: Advice) -> Text:
    situation = advice.situation
    curve, objects = situation.popularity, situation.objects
    name = "a plan" if situation.path is None else printable(situation.path)
    text = situation.source == "text"
    lines = [f"{name}: {situation.num_classes:,} {'different ' if text else ''}{objects}"]
    if situation.num_targets:
        lines[0] += f", {situation.num_targets:,} {'words' if text else 'interactions'}"
    if situation.labels > 1:
        lines[0] += f", {situation.labels:g} labels an example"
    guessed = " (Zipf's law, as nothing else is known)" if situation.path is None else ""
    share = f"{curve.top_share(0.1):.0%}".replace("%", " %")
    lines.append(
        f"a tenth of the {objects} are {share} of the targets{guessed}, "
        f"whose entropy is {curve.entropy_bits:.1f} bits"
    )
    wanted = [", ".join(sorted(situation.needs))] if situation.needs else []
    wanted += [f"at most {_size(situation.memory)}"] if situation.memory else []
    if wanted:
        lines.append(f"needed: {'; '.join(wanted)}")
    said = Text("\n".join(lines))
    said.stylize("bold", 0, len(lines[0]))
    return said


def _decisions(advice: Advice) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("")
    table.add_column("take", no_wrap=True)
    table.add_column("because")
    for each in advice.reasons:
        decision = Text(printable(each.decision), style="bold green")
        table.add_row(_NAMES.get(each.about, each.about), decision, each.why)
    return table


def _costs(advice: Advice) -> Text:
    lines = []
    if advice.step_seconds is None:
        lines.append(f"the steps of {advice.config.model} are not predicted")
    else:
        largest = sorted(advice.step_parts.items(), key=lambda part: -part[1])
        shown = ", ".join(
            f"{_OPERATIONS.get(name, name)} {100 * share:.0f} %"
            for name, share in largest
            if share > _SHOWN_PART
        )
        lines.append(f"a step is expected to take {_time(advice.step_seconds)} ({shown})")
        if advice.num_steps:
            total = _time(advice.step_seconds * advice.num_steps)
            lines[-1] += f"; {advice.num_steps:,} of them, at most, {total}"
    memory = advice.memory
    parts = sorted(memory.items(), key=lambda part: -part[1])
    shown = ", ".join(f"{name} {_size(size)}" for name, size in parts if size > 1e6)
    lines.append(f"memory about {_size(sum(memory.values()))}: {shown}")
    how = "measured before" if advice.machine.kept else "measured now"
    if advice.machine.busy:
        how += " beside other programs: ask again on a quiet machine"
    lines.append(f"on {printable(advice.machine.name)}, {how}")
    return Text("\n".join(lines))


def _alternatives(advice: Advice) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("output layer", no_wrap=True)
    for name in ("outputs an example", "a step", "memory"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in advice.alternatives:
        chosen = each.head == advice.config.head
        table.add_row(
            Text(
                each.head + (" (advised)" if chosen else ""), style="bold green" if chosen else ""
            ),
            f"{each.outputs:,.0f}",
            "" if each.seconds is None else _time(each.seconds),
            _size(each.memory),
        )
    return table


def _time(seconds: float) -> str:
    """Return a time as people say it.

    >>> _time(0.0123), _time(90), _time(7200)
    ('12 ms', '1.5 min', '2.0 h')
    """
    if seconds < 1:
        return f"{1000 * seconds:.2g} ms" if seconds < 0.1 else f"{1000 * seconds:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def _size(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
