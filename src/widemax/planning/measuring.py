"""Steps of one and of several processes on this machine, timed: what the costs are fitted to."""

from __future__ import annotations

import multiprocessing
import socket
import statistics
import sys
import time
import traceback
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from widemax.advising.machine import machine_name, zipf_counts
from widemax.advising.popularity import Popularity
from widemax.config import Config
from widemax.data import Sequences
from widemax.data.summary import DataSummary
from widemax.distributed import Ranks
from widemax.limits import usable_cores
from widemax.models.building import build_model, build_steps
from widemax.planning.cluster import Cluster
from widemax.planning.costs import Costs
from widemax.planning.plan import arrangement
from widemax.planning.workload import Workload
from widemax.sampling import UnigramSampler
from widemax.training.together import ALONE, Together

_TIMEOUT = 300.0
_TARGETS = 60_000
_USER = 60
_TURNS, _WARM, _LEAST, _SECONDS = 3, 2, 5, 0.12


class Case(NamedTuple):
    """A training whose steps are timed."""

    load: Workload
    """What is trained."""
    divided: bool
    """Whether tables are divided, where there are several processes."""


class Timed(NamedTuple):
    """What was found of a case."""

    seconds: float
    """The processor's time of a step, in the process that takes most: the median of a turn."""
    by_clock: float
    """How long the fastest step took by the clock, which other programs prolong."""
    sent: float
    """The bytes that the process sends in a step which sends most."""
    rounds: float
    """In how many rounds of messages."""


def default_cases() -> list[Case]:
    """Return steps in each of which another operation counts most.

    >>> len(default_cases())
    10
    """
    shapes: list[dict[str, Any]] = [
        {"classes": 20_000, "dimension": 16, "batch_size": 64, "num_samples": 64},
        {"classes": 50_000, "dimension": 64, "batch_size": 1024, "num_samples": 256},
        {"classes": 50_000, "dimension": 64, "batch_size": 512, "num_samples": 4096},
        {"classes": 50_000, "dimension": 128, "batch_size": 512, "sampler": "in-batch"},
        {"classes": 50_000, "dimension": 128, "batch_size": 2048, "num_samples": 800},
    ]
    return [
        Case(Workload(**shape, popularity=zipf_popularity(shape["classes"])), divided)
        for shape in shapes
        for divided in (False, True)
    ]


def zipf_popularity(classes: int) -> Popularity:
    """Return the popularity that the data of a case have."""
    return Popularity.from_counts(zipf_counts(classes))


def measured_costs(cases: Sequence[Case] | None = None) -> Costs:
    """Return what operations cost here, from steps of one process and of two."""
    cases = default_cases() if cases is None else cases
    return fit(cases, {count: time_steps(cases, count) for count in (1, 2)})


def fit(cases: Sequence[Case], found: dict[int, list[Timed]]) -> Costs:
    """Return the costs that explain what was timed, by number of processes."""
    work, clusters, seconds = [], [], []
    for count, timed in found.items():
        for case, each in zip(cases, timed, strict=True):
            divided = case.divided and count > 1
            # The processor's time is that of a core of one's own.
            own = Cluster(processes=count)
            work.append(arrangement(case.load, own, Costs.typical(), divided=divided).work)
            clusters.append(own)
            seconds.append(each.seconds)
    return Costs.fitted(machine_name(), work, clusters, seconds)


def this_machine(processes: int) -> Cluster:
    """Return this machine with so many processes."""
    return Cluster(processes=processes, cores=usable_cores())


def time_steps(cases: Sequence[Case], processes: int) -> list[Timed]:
    """Return how long steps take, and what is sent, in so many processes of one thread each."""
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = [
        context.Process(
            target=_work, args=(rank, processes, port, list(cases), answers), daemon=True
        )
        for rank in range(processes)
    ]
    for each in started:
        each.start()
    try:
        found = [answers.get(timeout=_TIMEOUT) for _ in started]
    finally:
        for each in started:
            each.join(10)
            if each.is_alive():
                each.kill()
    for answer in found:
        if isinstance(answer, str):
            raise RuntimeError(f"a process that was timed has failed: {answer}")
    # Steps end together: what counts is the slowest, and who sends most.
    return [
        Timed(*(max(each) for each in zip(*of_ranks, strict=True)))
        for of_ranks in zip(*found, strict=True)
    ]


def _work(rank: int, processes: int, port: int, cases: list[Case], answers: Any) -> None:
    torch.set_num_threads(1)
    try:
        dist.init_process_group(
            "gloo",
            init_method=f"tcp://127.0.0.1:{port}",
            rank=rank,
            world_size=processes,
            timeout=timedelta(seconds=_TIMEOUT),
        )
        answers.put(_timed(cases, processes))
        dist.barrier()
        dist.destroy_process_group()
    except BaseException:
        answers.put(f"rank {rank}: {traceback.format_exc()}")
        sys.exit(1)


def _timed(cases: Sequence[Case], processes: int) -> list[Timed]:
    """Return what the steps of cases take in this process; all processes take them together.

    Cases come by turns, and the best turn of each counts: what disturbs the machine for a second
    must not pass for the cost of a case.
    """
    made = []
    for case in cases:
        ranks = Ranks(vocabulary_parallel=case.divided and processes > 1)
        made.append((ranks, steps_of(case.load, ranks)))
    turns = [[_turn(*each, first=turn == 0) for each in made] for turn in range(_TURNS)]
    return [
        Timed(
            min(each.seconds for each in found),
            min(each.by_clock for each in found),
            statistics.mean(each.sent for each in found),
            statistics.mean(each.rounds for each in found),
        )
        for found in zip(*turns, strict=True)
    ]


def _turn(ranks: Ranks, steps: Any, *, first: bool) -> Timed:
    """Take some steps."""
    taken: list[float] = []
    by_clock: list[float] = []
    wire = ranks.wire
    if first:  # compiles kernels, and touches memory for the first time
        for step in range(_WARM):
            steps.take(step, 0.001)
    before = wire.bytes_sent, wire.rounds
    for step in range(_WARM, 10**6):
        dist.barrier()
        start, clock = time.process_time(), time.perf_counter()
        steps.take(step, 0.001)
        ranks.agreed(0.0, 0)
        taken.append(time.process_time() - start)
        by_clock.append(time.perf_counter() - clock)
        if len(taken) >= _LEAST and ranks.decided(sum(taken) > _SECONDS):
            break
    return Timed(
        statistics.median(taken),
        min(by_clock),
        (wire.bytes_sent - before[0]) / len(taken),
        (wire.rounds - before[1]) / len(taken),
    )


def steps_of(load: Workload, ranks: Together = ALONE, *, seed: int = 0) -> Any:
    """Return the steps of a workload on random data, drawn by its popularity."""
    counts = torch.from_numpy(zipf_counts(load.classes))
    config = config_of(load)
    drawn = UnigramSampler(load.classes, counts, distortion=1.0)
    values = drawn.draw((_TARGETS,), generator=torch.Generator().manual_seed(seed))
    # Users of which nearly every item has a whole history before it.
    offsets = torch.arange(0, _TARGETS + _USER, _USER).clamp(max=_TARGETS)
    sequences, data = Sequences(values, offsets), DataSummary.from_counts(counts.numpy())
    torch.manual_seed(seed)
    model = build_model(config, data, sequences, over=ranks.over)
    steps: Any = build_steps(config, model, data, sequences)
    if ranks.size > 1:
        ranks.attach(steps)
    else:
        steps.together = ranks
    return steps


def config_of(load: Workload) -> Config:
    """Return the configuration of a workload."""
    settings: dict[str, Any] = {
        name: getattr(load, name)
        for name in ("dimension", "batch_size", "max_history", "head", "optimizer", "bias")
    }
    if load.head == "sampled":
        settings["sampler"] = load.sampler
        if load.sampler != "in-batch":
            settings |= {"num_samples": load.drawn, "unique": True}
    return Config(source="log", model="next-item", **settings)
