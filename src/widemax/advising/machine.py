"""How long each operation of a training step takes on this machine: measured once, then kept."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from widemax.advising.fitting import fitted_costs
from widemax.advising.popularity import Popularity
from widemax.advising.work import OPERATIONS, Work, work_of
from widemax.config import Config
from widemax.data import Sequences
from widemax.data.summary import DataSummary
from widemax.limits import usable_cores
from widemax.models.building import build_model, build_steps
from widemax.sampling import UnigramSampler
from widemax.storage.files import atomic_write, make_folder, read_text
from widemax.storage.json_text import parse_json
from widemax.training.steps import Steps

FORMAT = 1
"""Of the file in which a measurement is kept; another one is measured again."""

SECONDS = 9.0
"""How long steps are built and timed; kernels that are compiled for the first time come on top."""

Progress = Callable[[str, int, int], object]
"""Told what is measured, how many are done, and of how many."""

_TYPICAL = {
    "steps": 2.3e-3,
    "products": 2.0e-11,
    "exponentials": 2.3e-9,
    "ranked": 6.2e-9,
    "gathered": 1.3e-9,
    "updated": 4.8e-9,
    "dense": 2.6e-9,
    "paths": 2.4e-9,
    "kernel": 1.6e-10,
}
"""Seconds of one core of a small server: what noise leaves open is decided by these."""
_MOST_BYTES = 2**14
_SECONDS_EACH = 0.25
_LOG = {"source": "log", "model": "next-item"}
_STEPS: tuple[tuple[int, dict[str, Any]], ...] = (
    (50_000, _LOG),
    (10_000, {**_LOG, "batch_size": 64, "num_samples": 64, "dimension": 16}),
    (4_000, {**_LOG, "head": "full"}),
    (50_000, {**_LOG, "head": "hierarchical"}),
    (20_000, {"source": "log", "model": "item2vec"}),
    (20_000, {**_LOG, "head": "full", "batch_size": 64, "dimension": 16}),
    (2_000, {**_LOG, "head": "top-k-softmax"}),
    (20_000, {**_LOG, "head": "adaptive"}),
    (20_000, {**_LOG, "num_samples": 2048, "dimension": 128}),
    (20_000, {**_LOG, "batch_size": 128, "num_samples": 8192, "dimension": 32}),
    (20_000, {**_LOG, "objective": "nce", "num_samples": 8, "per_example": True, "unique": False}),
)
"""Numbers of classes and settings of the steps that are timed, the most telling ones first.

In each another operation counts most.
"""
_NUM_TARGETS, _NUM_WORDS = 30_000, 400_000


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Seconds that this machine takes for one of each operation.

    >>> Machine.typical().seconds(Work(steps=1, products=1e9))
    0.0223
    """

    name: str
    """Processor, threads and version of torch that the seconds belong to."""
    costs: Mapping[str, float]
    """Seconds by operation, see ``widemax.advising.work.OPERATIONS``."""
    kept: bool = False
    """Whether it was measured before and read from the user's cache."""
    busy: bool = False
    """Whether other programs ran beside the measurement, which is then not kept."""

    @classmethod
    def typical(cls) -> Machine:
        """Return one core of a small server, for plans that need no figures of this machine."""
        return cls(name="one core of a small server", costs=_TYPICAL)

    @classmethod
    def this(cls, *, again: bool = False, progress: Progress | None = None) -> Machine:
        """Return this machine: as it was kept, or measured in about ten seconds.

        Where no cache can be written it is measured each time, and so is a machine that is busy
        with other programs: threads that wait for each other can take ten times as long there.
        """
        path = _place()
        if path is not None and not again:
            costs = _kept(path)
            if costs is not None:
                return cls(name=machine_name(), costs=costs, kept=True)
        busy = is_busy()
        costs = measure(progress=progress)
        if path is not None and not busy:
            _keep(path, costs)
        return cls(name=machine_name(), costs=costs, busy=busy)

    def seconds(self, work: Work) -> float:
        """Return how long all operations of a step take, one after the other."""
        return float(sum(self.costs[name] * number for name, number in work.items()))


def is_busy() -> bool:
    """Return whether other programs had half of the cores or more in the last minute."""
    return hasattr(os, "getloadavg") and os.getloadavg()[0] > usable_cores() / 2


def machine_name() -> str:
    """Return what the seconds depend on: processor, threads, torch."""
    processor = platform.processor() or platform.machine()
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                processor = line.partition(":")[2].strip()
                break
    threads = torch.get_num_threads()
    noun = "thread" if threads == 1 else "threads"
    return f"{processor}, {threads} {noun}, torch {torch.__version__}"


def measure(*, progress: Progress | None = None) -> dict[str, float]:
    """Return the seconds of each operation, from steps as a run takes them.

    Least squares find what each operation takes. What a busy machine has no time for is left out,
    and is taken to be as much slower than on a typical machine as the rest.
    """
    rows, timed = [], []
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Once for nothing: what is imported and compiled is no part of a step.
        steps_of(Config(**_LOG), 1000, _NUM_TARGETS).take(0, 0.001)
        begin = time.perf_counter()
        for number, (classes, settings) in enumerate(_STEPS):
            if progress is not None:
                progress("measuring this machine", number, len(_STEPS))
            config = Config(**settings)
            # A step of the kernel has as many words as there are for a hundred of them.
            targets = _NUM_WORDS if config.trainer == "kernel" else _NUM_TARGETS
            rows.append(work_of(config, _counted(classes), targets))
            timed.append(fastest(steps_of(config, classes, targets), _SECONDS_EACH))
            if time.perf_counter() - begin > SECONDS:
                break
    matrix = np.array([[row[name] if row else 0.0 for name in OPERATIONS] for row in rows])
    typical = np.array([_TYPICAL[name] for name in OPERATIONS])
    return dict(
        zip(OPERATIONS, fitted_costs(matrix, np.array(timed), typical).tolist(), strict=True)
    )


def steps_of(config: Config, num_classes: int, num_targets: int) -> Steps:
    """Return the steps of a configuration on random data of so many classes, drawn by Zipf's law.

    >>> steps_of(Config(source="log", model="next-item"), 100, 2000).per_epoch
    4
    """
    counts = zipf_counts(num_classes)
    generator = torch.Generator().manual_seed(0)
    sampler = UnigramSampler(num_classes, counts, distortion=1.0)
    values = sampler.draw((num_targets,), generator=generator)
    # Users of 60 items: long enough for every history that is read by default but SASRec's.
    offsets = torch.arange(0, num_targets + 60, 60).clamp(max=num_targets)
    sequences, data = Sequences(values, offsets), DataSummary.from_counts(counts)
    torch.manual_seed(0)
    model = build_model(config, data, sequences)
    return build_steps(config, model, data, sequences)


def zipf_counts(num_classes: int) -> NDArray[np.int64]:
    """Return how often each class is counted where the first has 10⁷ and all follow Zipf's law."""
    counts: NDArray[np.int64] = (1e7 / np.arange(1, num_classes + 1)).astype(np.int64) + 1
    return counts


def _counted(num_classes: int) -> Popularity:
    return Popularity.from_counts(zipf_counts(num_classes))


def fastest(steps: Steps, seconds: float) -> float:
    """Return the time of the fastest step among those that fit into ``seconds``, three at least.

    Others touch their memory for the first time, or wait for a kernel to be compiled. A machine
    that is busy with other programs is given four times as long.
    """
    # One thread's own time is fair on a busy machine; that of several would be their sum.
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    # The first one compiles kernels and allocates the states of the optimiser.
    steps.take(0, 0.001)
    taken: list[float] = []
    begin = time.perf_counter()
    while len(taken) < 3 or (sum(taken) < seconds and time.perf_counter() - begin < 4 * seconds):
        start = clock()
        steps.take(1 + len(taken), 0.001)
        taken.append(clock() - start)
    return min(taken)


# -- what is kept ----------------------------------------------------------------------------------


def _place() -> Path | None:
    """Return the file that this machine's figures are kept in; None where there is no home."""
    named = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    try:
        folder = Path(named) if named else Path.home() / ".cache"
        if not named and sys.platform == "darwin":
            folder = Path.home() / "Library" / "Caches"
    except RuntimeError:  # no home
        return None
    digest = hashlib.sha256(f"{FORMAT} {machine_name()} {_STEPS}".encode()).hexdigest()[:16]
    return folder / "widemax" / f"machine-{digest}.json"


def _kept(path: Path) -> dict[str, float] | None:
    """Return the costs of a file; None if it is not there, torn or not what was written."""
    try:
        found = parse_json(path.name, read_text(path, most=_MOST_BYTES))
        costs = {name: float(found["costs"][name]) for name in OPERATIONS}
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return costs if all(0 < each < 1 for each in costs.values()) else None


def _keep(path: Path, costs: Mapping[str, float]) -> None:
    """Write the costs, if the disk takes them: a cache is a help and never a condition."""
    text = json.dumps({"machine": machine_name(), "costs": dict(costs)}, indent=1)
    with suppress(OSError, ValueError):
        make_folder(path.parent)
        with atomic_write(path) as file:
            file.write(text.encode())
