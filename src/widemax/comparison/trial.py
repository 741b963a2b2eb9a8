"""One training of a comparison, in a process of its own; what it came to is a file."""

from __future__ import annotations

import os
import resource
import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing import parent_process
from pathlib import Path
from statistics import median
from typing import Any

from widemax.storage.files import make_folder
from widemax.storage.json_text import finite
from widemax.storage.manifest import read_manifest, write_manifest

FORMAT_VERSION = 1
_WARM_UP = 2
_FEWEST = 7
MEASURING = 2.0
"""For how many seconds steps are taken to measure them, at least seven."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a process is told to do; all of it can be sent to another process."""

    source: str
    """The data."""
    kind: str
    """What they are: a text, or the format of a log."""
    settings: Mapping[str, Any]
    """Of the run."""
    folder: str
    """Of the run."""
    result: str
    """The file that says what it came to."""
    until: int = 0
    """The step after which to pause; 0 measures how long a step takes."""
    test: bool = False
    """Whether to ask the test part, and nothing else."""
    plugins: Sequence[str] = ()
    """Modules with methods of the user's own."""


def work(job: Job) -> None:
    """Do what a job says, and write what it came to; to be called in a process of its own."""
    _end_with_parent()
    make_folder(Path(job.result).parent)
    _write_to(Path(job.result).with_suffix(".log"))
    from widemax.declarations.table import load_installed_plugins, load_plugin

    load_installed_plugins()
    for plugin in job.plugins:
        load_plugin(plugin)
    _use_threads(int(job.settings["threads"]))
    try:
        found = _test(job) if job.test else _train(job) if job.until else _measure(job)
    except (ValueError, ArithmeticError, MemoryError) as error:
        found = {"failed": " ".join(str(error).split()) or type(error).__name__}
    write_manifest(job.result, FORMAT_VERSION, {"until": job.until, **finite(found)})


def _use_threads(number: int) -> None:
    """Let all that this process does take so many threads, also what is measured outside a run.

    Two processes that each took all cores would wait for each other at every product.
    """
    import torch

    torch.set_num_threads(number)


def _end_with_parent() -> None:
    """End this process when the one that started it has ended, killed or not."""
    parent = parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _write_to(log: Path) -> None:
    """Let what this process says go to a file: the terminal shows the race."""
    with log.open("ab") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)


def result_of(path: Path) -> dict[str, Any] | None:
    """Return what a job came to; None if it is not done."""
    return read_manifest(path, FORMAT_VERSION) if path.exists() else None


def _prepare(job: Job, *, resume: bool) -> Any:
    from widemax.config import Config
    from widemax.runs.training.preparing import prepare

    config = Config(source=job.kind, **job.settings)
    return prepare(job.source, config, job.folder, resume=resume)


def _measure(job: Job) -> dict[str, Any]:
    """Measure what a step and a validation take; the run that it takes them in is removed."""
    shutil.rmtree(job.folder, ignore_errors=True)
    started = time.perf_counter()
    training = _prepare(job, resume=False)
    loop, prepared = training.loop, time.perf_counter() - started
    for step in range(_WARM_UP):
        loop.steps.take(step, 0.0)
    seconds = median_seconds(lambda taken: loop.steps.take(_WARM_UP + taken, 0.0))
    if loop.validate is None:
        raise ValueError("nothing is held out to compare by: the data are too few")
    loop.steps.publish()
    training.model.eval()
    # The first one compiles what the others use.
    loop.validate()
    started = time.perf_counter()
    loop.validate()
    validation = time.perf_counter() - started
    shutil.rmtree(job.folder)
    asked, tested = (len(part or ()) for part in (training.split.validation, training.split.test))
    usual = loop.steps.per_epoch * int(training.config.epochs)
    return {
        "prepared": prepared,
        "step": seconds,
        "validation": validation,
        "questions": asked,
        "test": validation * tested / asked,
        "test_questions": tested,
        "usual_steps": usual,
        "classes": len(training.source.vocabulary),
    }


def median_seconds(take: Callable[[int], object]) -> float:
    """Return what a step usually takes; the few that compile something or are held up do not count.

    The mean of some steps would: one that waits for a compiler or for another program made
    contenders train a tenth of what they could.
    """
    taken: list[float] = []
    started = time.perf_counter()
    while len(taken) < _FEWEST or time.perf_counter() - started < MEASURING:
        before = time.perf_counter()
        take(len(taken))
        taken.append(time.perf_counter() - before)
    return median(taken)


def _train(job: Job) -> dict[str, Any]:
    """Train up to a step, on the learning-rate schedule of the whole race."""
    from widemax.training.tracking import read_metrics

    at_start = _resident()
    training = _prepare(job, resume=True)
    training.loop.plan = replace(training.loop.plan, total_steps=job.until)
    # A run that has come further is done.
    progress = training.loop.progress
    if progress.step < job.until:
        progress.finished = ""
        training.run()
    metric = str(training.config.metric)
    sign = 1 if metric == "loss" else -1
    rows = read_metrics(Path(job.folder) / "metrics.jsonl")
    curve = [
        [row["step"], row["seconds"], row[metric], row.get("standard_error") or 0.0]
        for row in rows
        if row.get(metric) is not None
    ]
    if not curve:
        return {"failed": f"{metric} was never finite"}
    best = min(curve, key=lambda row: sign * row[2])
    return {
        "metric": metric,
        "learning_rate": float(training.config.learning_rate),
        "best": best[2],
        "best_error": best[3],
        "best_step": best[0],
        "steps": curve[-1][0],
        "seconds": curve[-1][1],
        "memory": max(0, _peak() - at_start),
        "curve": curve,
    }


def _test(job: Job) -> dict[str, Any]:
    """Ask the best checkpoint of a run about what was held out, once."""
    from widemax.runs.judging.validation import k_of
    from widemax.runs.run import Run

    run = Run(job.folder)
    metric = str(run.config.metric)
    if run.data.source == "text":
        return {"figures": run.evaluate().metrics(), "errors": {}}
    report = run.evaluate_recommendations(ks=sorted({10, 20, k_of(metric)}))
    # The likelihood and the mean reciprocal rank are of one target at a time.
    figures = report.metrics() | ({} if "@" in metric else run.evaluate().metrics())
    return {"figures": figures, "errors": report.standard_errors()}


def _peak() -> int:
    """Return the largest resident memory of this process so far, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _resident() -> int:
    """Return the resident memory of this process in bytes; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
