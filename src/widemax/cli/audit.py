"""``widemax audit``: how far a run is from the exact softmax, and what would help."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from widemax.cli.answers import CheckpointName, RunFolder, load_run, say_step, strict_json
from widemax.cli.printable import printable
from widemax.cli.progress import waiting

if TYPE_CHECKING:
    from widemax.auditing import AuditFigures, GradientFigures
    from widemax.auditing.examining.findings import RunAudit
    from widemax.auditing.examining.series import Slope
    from widemax.runs.run import Run

_WIDTH = 100
_MEBI = 2**20
_COLOURS = {"faithful": "green", "exact": "green", "other aim": "cyan", "too few samples": "yellow"}
_NAMES = {"scores": "by scores", "hidden": "by hidden state", "class vectors": "by class vectors"}


def audit(
    run: RunFolder,
    samples: Annotated[
        str,
        typer.Option(
            metavar="N,N,...",
            help="Also show bias and variance against numbers of samples, such as 16,64,256.",
        ),
    ] = "",
    draws: Annotated[
        int, typer.Option(min=20, max=10**6, help="How often each example is trained on.")
    ] = 200,
    examples: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=2**14,
            help="Held-out examples that are looked at; by default 256, of very many classes less.",
            show_default=False,
        ),
    ] = None,
    tolerance: Annotated[
        float, typer.Option(help="The relative bias above which a gradient is called biased.")
    ] = 0.03,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the examples and the draws.")] = 0,
    checkpoint: CheckpointName = "best",
    json: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write all figures to this file.")
    ] = None,
) -> None:
    """Measure how far a run's gradients are from the exact softmax's, and try what would help."""
    numbers = _numbers(samples)
    loaded = load_run(run, checkpoint)
    with _Bar(f"auditing {run}") as bar:
        found = loaded.audit(
            draws=draws,
            examples=examples,
            num_samples=numbers,
            tolerance=tolerance,
            seed=seed,
            progress=bar.show,
        )
    say_step(loaded)
    if json is not None:
        from widemax.storage.files import atomic_write

        with atomic_write(json) as file:
            file.write(strict_json(loaded.stored_audit(), indent=1).encode() + b"\n")
    _print(loaded, found)


def _numbers(text: str) -> list[int]:
    """Return the whole numbers of a list such as 16,64,256."""
    try:
        return [int(each) for each in text.split(",") if each.strip()]
    except ValueError:
        raise ValueError(
            f"--samples must be whole numbers such as 16,64,256, got {text!r}"
        ) from None


class _Bar:
    """A bar on a terminal; elsewhere a line if it takes long."""

    def __init__(self, doing: str) -> None:
        self.console = Console(stderr=True)
        self.waiting = waiting(doing)
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        self.bar = Progress(*columns, console=self.console, transient=True)
        self.task = self.bar.add_task(printable(doing), total=None)

    def __enter__(self) -> _Bar:
        if self.console.is_terminal:
            self.bar.start()
        else:
            self.waiting.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self.console.is_terminal:
            self.bar.stop()
        else:
            self.waiting.__exit__(None, None, None)

    def show(self, what: str, done: int, total: int) -> None:
        self.bar.update(self.task, description=what, completed=done, total=total)


def _print(run: Run, found: RunAudit) -> None:
    console = Console(file=sys.stdout)
    if not console.is_terminal:
        console = Console(file=sys.stdout, width=_WIDTH)
    colour = _COLOURS.get(found.verdict, "red")
    console.print(_headline(run, found), highlight=False)
    for part in ("", _gradients(found), "", _cost(found)):
        console.print(part, highlight=False)
    if found.by_samples is not None:
        console.print()
        console.print(_by_samples(found))
        for name, slope in (
            ("bias", found.by_samples.bias_slope),
            ("variance", found.by_samples.variance_slope),
        ):
            console.print(f"{name}: {_slope(slope)}", highlight=False)
    if found.remedies:
        console.print()
        console.print(_remedies(found))
    console.print()
    console.print(Text.assemble((found.verdict.upper(), f"bold {colour}"), "  ", found.sentence))
    if found.verdict not in ("exact", "other aim"):
        for note in found.report.notes:
            console.print(Text(f"note: {note}"))
    for command in run.training_commands(found):
        # Not wrapped by us: a terminal wraps it so that it can still be copied.
        console.print(Text(f"\n  {printable(command)}"), soft_wrap=True)


def _headline(run: Run, found: RunAudit) -> Text:
    report, parts = found.report, run.config.parts
    slots = ("head", "objective", "sampler")
    names = ", ".join(f"{slot} {parts[slot].name}" for slot in slots if slot in parts)
    drawn = f", {report.num_candidates:,.0f} candidates" if report.num_candidates else ""
    return Text(
        f"{parts['model'].name}, {report.num_classes:,} {found.objects}: {names}{drawn}\n"
        f"against the exact softmax on {report.num_examples:,} held-out examples, "
        f"{report.draws:,} draws each"
    )


def _gradients(found: RunAudit) -> Table:
    report = found.report
    columns = {"all": report.overall, **report.groups}
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("", no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)

    def row(name: str, cells: list[str]) -> None:
        if any(cells):
            table.add_row(name, *cells)

    for space in report.overall.gradients:
        cells = [_bias(each.gradients.get(space), report.tolerance) for each in columns.values()]
        table.add_row(f"bias {_NAMES[space]}", *cells)
    own = [each.gradients.get(report.space) for each in columns.values()]
    row("length of the mean", [f"{each.length:.3f}" if each else "" for each in own])
    row("cosine of the mean", [f"{each.cosine:.4f}" if each else "" for each in own])
    row("spread of one step", [f"{each.spread:.3f}" if each else "" for each in own])
    row("effective samples", [_number(e.effective_sample_size, ".1f") for e in columns.values()])
    row("KL(P‖Q), nats", [_number(each.divergence, ".3f") for each in columns.values()])
    row("log Z, mean ± spread", [_normalizer(each) for each in columns.values()])
    row("examples", [f"{each.num_examples:,}" for each in columns.values()])
    return table


def _bias(figures: GradientFigures | None, tolerance: float) -> Text:
    if figures is None:
        return Text("")
    colour = "red" if figures.bias_low > tolerance else ""
    error = max(figures.bias - figures.bias_low, figures.bias_high - figures.bias)
    return Text.assemble((f"{figures.bias:.3f}", f"bold {colour}"), f" ± {error:.3f}")


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _normalizer(figures: AuditFigures) -> str:
    if figures.log_normalizer is None:
        return ""
    return f"{figures.log_normalizer:.2f} ± {figures.log_normalizer_spread:.2f}"


def _cost(found: RunAudit) -> Text:
    cost = found.cost
    share = cost.outputs / found.report.num_classes
    text = (
        f"a step of {cost.batch_size:,} examples evaluates {cost.outputs:,.0f} of "
        f"{found.report.num_classes:,} outputs each ({100 * share:.2g} %)"
    )
    if cost.seconds is not None and cost.memory is not None:
        text += f", takes {1000 * cost.seconds:.1f} ms and {cost.memory / _MEBI:.1f} MB"
    return Text(text)


def _by_samples(found: RunAudit) -> Table:
    assert found.by_samples is not None
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in ("samples", "bias by scores", "spread of one step", "variance"):
        table.add_column(name, justify="right", no_wrap=True)
    tolerance = found.report.tolerance
    for number, report in zip(found.by_samples.num_samples, found.by_samples.reports, strict=True):
        table.add_row(
            f"{number:,}",
            _bias(report.gradient, tolerance),
            f"{report.spread:.4f}",
            f"{report.spread**2:.5f}",
        )
    return table


def _slope(slope: Slope | None) -> str:
    if slope is None:
        return "too few points above the noise to fit a slope"
    return (
        f"falls like S^{slope.value:.2f} (95 %: {slope.low:.2f} to {slope.high:.2f}, "
        f"{slope.points} points)"
    )


def _remedies(found: RunAudit) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("tried on the vectors as they are")
    groups = list(found.report.groups)
    for name in ("bias", *groups, "spread", "outputs", "ms a step"):
        table.add_column(name, justify="right", no_wrap=True)
    space = found.report.space
    rows = [("as it is", found.report, found.cost)]
    rows += [(str(each), each.report, each.cost) for each in found.remedies]
    for name, report, cost in rows:
        parts = [report.groups.get(group) for group in groups]
        table.add_row(
            name,
            f"{report.bias:.3f}",
            *(
                f"{p.gradients[space].bias:.3f}" if p and space in p.gradients else ""
                for p in parts
            ),
            f"{report.spread:.3f}",
            f"{cost.outputs:,.0f}",
            "" if cost.seconds is None else f"{1000 * cost.seconds:.1f}",
        )
    return table
