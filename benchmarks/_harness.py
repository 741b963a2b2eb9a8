"""What every benchmark and experiment shares: timing, the machine, the bars and the command line.

A script measures, collects its figures in a ``Report`` and ends with ``report.finish()``. Scripts
of another folder reach this file by putting ``benchmarks`` on ``sys.path``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

import numba
import numpy
import torch

DATA = Path(os.environ.get("WIDEMAX_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
"""Where data sets are that are no part of this repository."""


def interleaved(
    functions: dict[str, Callable[[], object]],
    repeats: int,
    *,
    calls: int = 1,
    warmup: int = 3,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Return the median seconds a call of each function, in turn so that all share the noise.

    Each timing covers ``calls`` calls in a row: with several, a short function is not charged for
    the caches that the long one before it has emptied. ``time.process_time`` as the clock counts
    the processor's time, of all threads, whatever else the machine does.
    """
    for function in functions.values():
        for _ in range(warmup):
            function()
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            start = clock()
            for _ in range(calls):
                function()
            seconds[name].append((clock() - start) / calls)
    return {name: statistics.median(values) for name, values in seconds.items()}


def describe_machine() -> dict[str, str | int]:
    """Return processor, cores and the versions that the figures depend on."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "torch_threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "numba": numba.__version__,
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


@dataclass(frozen=True)
class Bar:
    """A figure and the limit it must keep; without a limit it is only reported."""

    name: str
    value: float
    limit: float | None = None
    direction: Literal["at least", "at most"] = "at least"

    @property
    def holds(self) -> bool:
        """Whether the figure keeps its limit; NaN never does."""
        if self.limit is None:
            return True
        return (
            self.value >= self.limit if self.direction == "at least" else self.value <= self.limit
        )

    def __str__(self) -> str:
        text = f"{self.name:<58} {self.value:>12.4g}"
        if self.limit is None:
            return text
        return f"{text}   {self.direction} {self.limit:g}: {'ok' if self.holds else 'MISSED'}"


@dataclass
class Report:
    """The figures of one script, printed last and written as JSON where asked."""

    arguments: argparse.Namespace
    bars: list[Bar] = field(default_factory=list)

    def add(
        self,
        name: str,
        value: float,
        limit: float | None = None,
        direction: Literal["at least", "at most"] = "at least",
    ) -> None:
        """Add one figure."""
        self.bars.append(Bar(name, float(value), limit, direction))

    def finish(self) -> None:
        """Print all figures; write them with --json; with --check exit 1 if a bar is missed."""
        machine = describe_machine()
        print("\n" + ", ".join(f"{name} {value}" for name, value in machine.items()))
        for bar in self.bars:
            print(bar)
        if self.arguments.json is not None:
            figures = [{**asdict(bar), "holds": bar.holds} for bar in self.bars]
            result = {"machine": machine, "figures": figures}
            self.arguments.json.write_text(json.dumps(result, indent=1) + "\n")
            table = as_markdown(self.arguments.json.stem, machine, self.bars)
            self.arguments.json.with_suffix(".md").write_text(table)
        missed = [bar.name for bar in self.bars if not bar.holds]
        if self.arguments.check and missed:
            sys.exit(f"missed: {', '.join(missed)}")


def as_markdown(title: str, machine: dict[str, str | int], bars: list[Bar]) -> str:
    """Return the figures as a table to read or to quote."""
    lines = [f"# {title}", "", ", ".join(f"{name} {value}" for name, value in machine.items()), ""]
    lines += ["| figure | value | bar | |", "|---|---:|---|---|"]
    for bar in bars:
        limit = "" if bar.limit is None else f"{bar.direction} {bar.limit:g}"
        mark = "" if bar.limit is None else "ok" if bar.holds else "missed"
        lines.append(f"| {bar.name.replace('|', '/')} | {bar.value:,.5g} | {limit} | {mark} |")
    return "\n".join(lines) + "\n"


def command_line(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with --json FILE and --check, to which a script may add its own."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="write the figures to FILE, and as Markdown beside it",
    )
    parser.add_argument("--check", action="store_true", help="exit 1 if a figure misses its bar")
    return parser
