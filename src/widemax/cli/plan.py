"""``widemax plan``: memory, bytes moved and time of a step on many machines, beforehand."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from widemax.cli.answers import AsJson, strict_json
from widemax.cli.progress import starting, waiting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.table import Table
    from rich.text import Text

    from widemax.planning import Arrangement, ScalePlan

_WIDTH = 100
_ROWS_A_PROCESS = 512
_BARS = 24
_COPIED, _DIVIDED = "a copy in each process", "rows divided"
_MEANINGS = {
    "step": "what every step has, however small",
    "scores": "products of hidden states and classes",
    "rows read": "rows gathered, gradients added up",
    "rows written": "rows that the optimiser writes",
    "collectives": "calls of all processes together",
    "rounds": "handling rounds of messages",
    "bytes": "copying bytes to send",
    "latency": "the network, round by round",
    "bandwidth": "the network, byte by byte",
    "memory": "a machine has too little of it",
}


def plan(
    classes: Annotated[float, typer.Option(help="How many classes, such as 1e9.")],
    dimension: Annotated[int, typer.Option(help="Length of the vector of a class.")] = 64,
    nodes: Annotated[int, typer.Option(help="Machines.")] = 1,
    processes: Annotated[int, typer.Option(help="Processes on each machine.")] = 1,
    cores: Annotated[
        int, typer.Option(help="Cores of each machine; 0 is one for every process.")
    ] = 0,
    memory: Annotated[
        str, typer.Option(metavar="SIZE", help="Memory of each machine, such as 256GB.")
    ] = "",
    bandwidth: Annotated[
        str, typer.Option(metavar="RATE", help="What a machine sends to others, such as 25Gbit.")
    ] = "10Gbit",
    latency: Annotated[
        str, typer.Option(metavar="TIME", help="How long a message takes, such as 20us.")
    ] = "50us",
    batch_size: Annotated[
        int,
        typer.Option(
            help=f"Targets of a step, of all processes; 0 is {_ROWS_A_PROCESS} for each process."
        ),
    ] = 0,
    max_history: Annotated[int, typer.Option(help="Items that are read for a target.")] = 10,
    head: Annotated[
        str, typer.Option(metavar="sampled|full", help="The output layer.")
    ] = "sampled",
    sampler: Annotated[
        str,
        typer.Option(
            metavar="unigram|log-uniform|uniform|in-batch", help="What candidates are drawn by."
        ),
    ] = "unigram",
    num_samples: Annotated[int, typer.Option(help="Candidates that are drawn for a batch.")] = 800,
    optimizer: Annotated[
        str, typer.Option(metavar="adam|adagrad|rowwise-adagrad|sgd", help="The optimiser.")
    ] = "adam",
    bias: Annotated[bool, typer.Option(help="Whether each class has a bias.")] = True,
    examples: Annotated[
        float, typer.Option(help="Interactions to train on, for memory and the time of an epoch.")
    ] = 0.0,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure", help="Measure what a core of this machine takes, for about a minute."
        ),
    ] = False,
    json: AsJson = False,
) -> None:
    """Say what a training on many machines takes, and what limits it.

    Memory, bytes moved and time of a step of a next-item model, with a copy of its tables in each
    process, and with their rows divided (--vocabulary-parallel).
    """
    from widemax.advising.popularity import MAX_CLASSES
    from widemax.advising.units import bandwidth_of, bytes_of, latency_of, whole
    from widemax.planning import Cluster, Costs, Workload
    from widemax.planning import plan as planned

    cluster = Cluster(
        nodes=nodes,
        processes=processes,
        cores=cores,
        memory=bytes_of(memory),
        bandwidth=bandwidth_of(bandwidth),
        latency=latency_of(latency),
    )
    load = Workload(
        classes=whole("classes", classes, 2, MAX_CLASSES),
        dimension=dimension,
        batch_size=batch_size or _ROWS_A_PROCESS * cluster.total,
        max_history=max_history,
        head=head,
        sampler=sampler,
        num_samples=num_samples,
        optimizer=optimizer,
        bias=bias,
        examples=whole("examples", examples, 0, 2**60),
    )
    costs = Costs.typical()
    if measure:
        with starting():
            from widemax.planning.measuring import measured_costs
        with waiting("measuring steps of one and of two processes"):
            costs = measured_costs()
    made = planned(load, cluster, costs)
    if json:
        typer.echo(strict_json(made.as_json(), indent=1))
        return
    _print(made)


def _print(made: ScalePlan) -> None:
    from rich.console import Console, Group
    from rich.padding import Padding
    from rich.text import Text

    console = Console(file=sys.stdout)
    if not console.is_terminal:
        console = Console(file=sys.stdout, width=_WIDTH)
    parts = (_headline(made), _table(made), _breakdown(made.best), _advice(made))
    console.print(Group(*(Padding(part, (0, 0, 1, 0)) for part in parts)), highlight=False)
    console.print(Text("start it:"))
    console.print(Text(f"\n  {_command(made)}"), soft_wrap=True)


def _headline(made: ScalePlan) -> Text:
    from rich.text import Text

    load, cluster = made.load, made.cluster
    machines = "1 machine" if cluster.nodes == 1 else f"{cluster.nodes:,} machines"
    noun = "process" if cluster.processes == 1 else "processes"
    first = f"{load.classes:,} classes of {load.dimension} numbers on {machines}, "
    first += f"{cluster.processes:,} {noun}" + (" each" if cluster.nodes > 1 else "")
    what = "the exact softmax" if load.head == "full" else f"{load.candidates:,.0f} candidates"
    if load.head == "sampled":
        what += f" ({load.sampler})"
    own = -(-load.batch_size // cluster.total)
    second = (
        f"a step has {load.batch_size:,} targets, {own:,} in a process; {what}; {load.optimizer}"
    )
    third = f"costs of {made.costs.name}"
    if cluster.nodes > 1:
        third += f"; network {_rate(cluster.bandwidth)}, {cluster.latency * 1e6:g} µs"
    if cluster.sharing > 1:
        third += f"; {cluster.sharing:g} processes share a core"
    text = Text("\n".join((first, second, third)))
    text.stylize("bold", 0, len(first))
    return text


def _table(made: ScalePlan) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("", no_wrap=True)
    shown = {_COPIED: made.copied} | ({} if made.divided is None else {_DIVIDED: made.divided})
    for name, each in shown.items():
        style = "bold green" if each is made.best else ""
        table.add_column(Text(name, style=style), justify="right", no_wrap=True)

    def add(title: str, *values: str, style: str = "", section: bool = False) -> None:
        table.add_row(title, *values, style=style, end_section=section)

    columns = list(shown.values())
    add(
        "memory of a process", *(_size(sum(each.memory.values())) for each in columns), style="bold"
    )
    for part in made.copied.memory:
        if any(each.memory[part] for each in columns):
            add(f"  {part}", *(_size(each.memory[part]) for each in columns))
    if made.cluster.memory:
        add("  fits a machine", *(("yes" if each.fits else "NO") for each in columns))
    add("")
    sent = [each.traffic for each in columns]
    add("sent in a step, by a process", *(_size(each.total) for each in sent), style="bold")
    for part in dict.fromkeys(name for each in sent for name in each.bytes):
        add(f"  {part}", *(_size(each.bytes[part]) if part in each.bytes else "–" for each in sent))
    add("  rounds of messages", *(f"{each.rounds:,}" for each in sent))
    add("")
    add("time of a step", *(_time(each.step_seconds) for each in columns), style="bold")
    rates = [made.load.batch_size / each.step_seconds for each in columns]
    add("  targets a second", *(_count(rate) for rate in rates))
    if made.load.examples:
        add("  an epoch", *(_time(made.load.examples / rate) for rate in rates))
    add("bottleneck", *(each.bottleneck for each in columns), style="bold")
    return table


def _breakdown(best: Arrangement) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    for justify in ("left", "right", "left", "left"):
        table.add_column(justify=justify, no_wrap=True)
    seconds: Mapping[str, float] = best.seconds
    longest = max(seconds.values())
    for name, value in sorted(seconds.items(), key=lambda part: -part[1]):
        if value > longest / 200:
            bar = "█" * max(1, round(_BARS * value / longest))
            style = "green" if value < longest else "bold yellow"
            table.add_row(name, _time(value), Text(bar, style=style), _MEANINGS[name])
    return table


def _advice(made: ScalePlan) -> Text:
    from rich.text import Text

    best = made.best
    which = _DIVIDED if best.divided else _COPIED
    if not best.fits:
        needed = _size(sum(best.memory.values()) * made.cluster.processes)
        return Text(
            f"does not fit: {which} takes {needed} of each machine, which has "
            f"{_size(made.cluster.memory)}; more machines, a smaller dimension or rowwise-adagrad "
            "take less",
            style="bold red",
        )
    text = Text(f"{which}: {'the faster one' if _both_fit(made) else 'what fits'}", style="bold")
    if best.divided:
        text.append("; figures are of the process with most to do, mostly rank 0", "not bold")
    return text


def _both_fit(made: ScalePlan) -> bool:
    return made.divided is None or (made.copied.fits and made.divided.fits)


def _command(made: ScalePlan) -> str:
    cluster, load = made.cluster, made.load
    words = []
    if cluster.nodes > 1:
        words += [f"--nnodes {cluster.nodes}", "--node-rank RANK", "--master-addr HOST"]
    if cluster.nodes * cluster.processes > 1:
        words = ["torchrun", *words, f"--nproc-per-node {cluster.processes}", "-m"]
    words.append("widemax train SOURCE --folder runs/wide --model next-item")
    settings = ["dimension", "batch_size", "max_history", "head", "optimizer"]
    if load.head == "sampled":
        settings.append("sampler")
        settings += [] if load.sampler == "in-batch" else ["num_samples"]
    words += [f"--{name.replace('_', '-')} {getattr(load, name)}" for name in settings]
    words += [] if load.bias else ["--no-bias"]
    words += ["--vocabulary-parallel"] if made.best.divided else []
    return " ".join(words)


def _time(seconds: float) -> str:
    if seconds < 1:
        return f"{1000 * seconds:.2g} ms" if seconds < 0.1 else f"{1000 * seconds:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"


def _size(size: float) -> str:
    """Return a number of bytes as people say it.

    >>> _size(12), _size(2.06e12)
    ('12 B', '2.06 TB')
    """
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return (
                f"{size / unit:.3g} {name}" if size < 1000 * unit else f"{size / unit:,.0f} {name}"
            )
    return f"{size:.0f} B"


def _rate(rate: float) -> str:
    return f"{8 * rate / 1e9:g} Gbit/s"


def _count(number: float) -> str:
    return f"{number:,.0f}"
