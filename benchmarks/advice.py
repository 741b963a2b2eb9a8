"""What `widemax advise` predicts against what is measured: the time of a step, and the memory.

The cost model is fitted to a few small steps of this machine; here it predicts every head, at other
sizes, and the models that are advised. A ratio is predicted / measured or its inverse, whichever is
above 1. Steps are those of a run: batch, forward, backward, optimiser.
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import psutil
import torch
from rich.console import Console
from rich.table import Table

from _harness import Report, command_line
from widemax.advising.machine import Machine, fastest, measure, steps_of, zipf_counts
from widemax.advising.memory import memory_of
from widemax.advising.popularity import Popularity
from widemax.advising.work import work_of
from widemax.config import Config
from widemax.declarations import names

WITHIN = 2.0
NUM_TARGETS, NUM_WORDS = 60_000, 1_000_000
SECONDS = 0.6
NEGATIVES = {"objective": "negative-sampling", "num_samples": 10, "per_example": True}
NEXT = {"model": "next-item"}


def cases() -> dict[str, tuple[int, dict[str, Any]]]:
    """Return what is predicted: number of classes and settings by name."""
    found: dict[str, tuple[int, dict[str, Any]]] = {}
    for head in names("head"):
        found[f"{head}, V = 2e3"] = 2_000, {**NEXT, "head": head}
        found[f"{head}, V = 2e4"] = 20_000, {**NEXT, "head": head}
    for head in ("sampled", "importance", "hierarchical"):
        found[f"{head}, V = 1e6"] = 1_000_000, {**NEXT, "head": head}
    found["adaptive, V = 1e5"] = 100_000, {**NEXT, "head": "adaptive"}
    wide = {"num_samples": 4096, "batch_size": 1024, "dimension": 128}
    found["sampled, B = 1,024, S = 4,096, D = 128"] = 100_000, {**NEXT, **wide}
    for objective in ("corrected-log-q", "nce", "info-nce"):
        found[objective] = 20_000, {**NEXT, "objective": objective}
    found["negative-sampling, 10 each"] = 20_000, {**NEXT, **NEGATIVES, "unique": False}
    found["in-batch"] = 20_000, {**NEXT, "sampler": "in-batch"}
    found["rowwise-adagrad"] = 100_000, {**NEXT, "optimizer": "rowwise-adagrad"}
    found["differentiated"] = 20_000, {"model": "youtube-dnn", "scorer": "differentiated"}
    for model, heads in {
        "youtube-dnn": ("full", "sampled"),
        "nnlm": ("full", "sampled", "hierarchical", "adaptive"),
        "lstm": ("full", "sampled"),
        "sasrec": ("full", "sampled"),
        "skip-gram": ("sampled", "hierarchical"),
        "cbow": ("sampled",),
        "item2vec": ("sampled",),
    }.items():
        for head in heads:
            found[f"{model}, {head}, V = 1e4"] = 10_000, {"model": model, "head": head}
    found["two-tower, in-batch, V = 1e5"] = 100_000, {"model": "two-tower"}
    found["item2vec, V = 1e6"] = 1_000_000, {"model": "item2vec"}
    return found


def time_figures(report: Report, only: str) -> None:
    """Predict and time each case; the machine is measured before, as `advise` does."""
    machine = Machine(name="this", costs=measure())
    table = Table(title="seconds of a step, in ms")
    for column in ("step", "predicted", "measured", "predicted / measured"):
        table.add_column(column, justify="left" if column == "step" else "right")
    for name, (classes, settings) in cases().items():
        if only not in name:
            continue
        config = Config(source="log", **settings)
        # The more words there are, the more a step of the word2vec kernel has of them.
        targets = NUM_WORDS if config.trainer == "kernel" else NUM_TARGETS
        work = work_of(config, Popularity.from_counts(zipf_counts(classes)), targets)
        assert work is not None, name
        predicted = machine.seconds(work)
        measured = fastest(steps_of(config, classes, targets), SECONDS)
        ratio = predicted / measured
        table.add_row(name, f"{1e3 * predicted:,.1f}", f"{1e3 * measured:,.1f}", f"{ratio:.2f}")
        report.add(f"step of {name}", max(ratio, 1 / ratio), WITHIN, "at most")
    Console(width=100).print(table)


MEMORY: dict[str, tuple[int, dict[str, Any]]] = {
    "youtube-dnn, sampled, V = 1e6": (1_000_000, {"model": "youtube-dnn"}),
    "next-item, full, V = 3e5": (300_000, {**NEXT, "head": "full", "batch_size": 16}),
    "next-item, hierarchical, V = 1e6": (1_000_000, {**NEXT, "head": "hierarchical"}),
}


def memory_figures(report: Report) -> None:
    """Each in a process of its own: a peak never falls."""
    for name, (classes, settings) in MEMORY.items():
        command = [sys.executable, __file__, "--memory-of", name]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        measured = json.loads(output.splitlines()[-1])
        config = Config(source="log", **settings)
        parts = memory_of(config, Popularity.zipf(classes), NUM_TARGETS)
        predicted = sum(parts.values())
        ratio = predicted / measured
        report.add(f"memory of {name} (MB)", measured / 1e6)
        report.add(f"memory of {name}: ratio", max(ratio, 1 / ratio), WITHIN, "at most")


def peak_memory(name: str) -> None:
    """Print the memory of a training after three steps: what it holds, and the peak of the last."""
    classes, settings = MEMORY[name]
    steps = steps_of(Config(source="log", **settings), classes, NUM_TARGETS)
    for step in range(3):
        steps.take(step, 0.001)
    resident = psutil.Process().memory_info().rss
    high = Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()
    print(json.dumps(max(resident, int(high[0]) * 1024) if high else resident))


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose names hold it")
    parser.add_argument("--memory-of", metavar="NAME", help="only print the memory of a case")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    if options.memory_of:
        peak_memory(options.memory_of)
        return
    report = Report(options)
    time_figures(report, options.only)
    if not options.only:
        memory_figures(report)
    report.finish()


if __name__ == "__main__":
    main()
