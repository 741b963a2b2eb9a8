"""A plan: the same training with a copy of the tables in each process, and with them divided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from widemax.planning.cluster import Cluster
from widemax.planning.costs import Costs
from widemax.planning.memory import process_memory
from widemax.planning.traffic import (
    FLOAT_BYTES,
    AskedRows,
    TouchedRows,
    Traffic,
    copied_traffic,
    divided_full_traffic,
    divided_traffic,
)
from widemax.planning.workload import STATES, Workload

_EXACT_PASSES, _SAMPLED_PASSES = 4, 3
"""Products of a step: scores, both gradients; where scores are not kept, scores again."""


@dataclass(frozen=True, kw_only=True)
class Arrangement:
    """One way to place the tables, and what it costs the process that has most to do."""

    divided: bool
    """Whether each process holds a part of the rows of each table."""
    memory: Mapping[str, float]
    """Bytes of a process, by part."""
    traffic: Traffic
    """What a process sends in a step."""
    work: Mapping[str, float]
    """How often a step does each operation, see ``widemax.planning.costs``."""
    seconds: Mapping[str, float]
    """How long a step takes, by part."""
    fits: bool
    """Whether the memory of a machine is enough."""

    @property
    def step_seconds(self) -> float:
        """How long a step takes."""
        return sum(self.seconds.values())

    @property
    def bottleneck(self) -> str:
        """What limits it: memory where that is too little, else the longest part of a step."""
        return max(self.seconds, key=lambda name: self.seconds[name]) if self.fits else "memory"


@dataclass(frozen=True, kw_only=True)
class ScalePlan:
    """What a training on some machines takes."""

    load: Workload
    """What is trained."""
    cluster: Cluster
    """On what."""
    costs: Costs
    """What operations cost there."""
    copied: Arrangement
    """Each process has all rows."""
    divided: Arrangement | None
    """Each process has its part; None where there are too few rows, or one process."""

    @property
    def best(self) -> Arrangement:
        """The faster of those that fit; where none does, the one that takes less memory."""
        both = [self.copied] if self.divided is None else [self.copied, self.divided]
        fitting = [each for each in both if each.fits]
        if fitting:
            return min(fitting, key=lambda each: each.step_seconds)
        return min(both, key=lambda each: sum(each.memory.values()))

    def as_json(self) -> dict[str, Any]:
        """Return all of it as JSON holds it."""
        named = {"copied": self.copied, "divided": self.divided}
        load = {name: value for name, value in vars(self.load).items() if name[0] != "_"}
        load.pop("popularity")
        return {
            "workload": load,
            "cluster": {**asdict(self.cluster), "total_processes": self.cluster.total},
            "costs": {"name": self.costs.name, **self.costs.each},
            "best": "divided" if self.best.divided else "copied",
            "arrangements": {
                name: {
                    "memory": dict(each.memory),
                    "bytes_sent": each.traffic.bytes,
                    "rounds": each.traffic.rounds,
                    "step_seconds": each.step_seconds,
                    "seconds": dict(each.seconds),
                    "fits": each.fits,
                    "bottleneck": each.bottleneck,
                }
                for name, each in named.items()
                if each is not None
            },
        }


def plan(load: Workload, cluster: Cluster, costs: Costs | None = None) -> ScalePlan:
    """Return memory, bytes and time of a step, for tables in each process and divided ones.

    >>> made = plan(Workload(classes=10**9, dimension=128, batch_size=64 * 512), Cluster(nodes=64))
    >>> made.divided.bottleneck, round(made.copied.memory["tables"] / made.divided.memory["tables"])
    ('bytes', 64)
    """
    costs = costs or Costs.typical()
    return ScalePlan(
        load=load,
        cluster=cluster,
        costs=costs,
        copied=arrangement(load, cluster, costs, divided=False),
        divided=arrangement(load, cluster, costs, divided=True)
        if _divisible(load, cluster)
        else None,
    )


def arrangement(load: Workload, cluster: Cluster, costs: Costs, *, divided: bool) -> Arrangement:
    """Return what one placement of the tables costs."""
    memory = process_memory(load, cluster.total, divided=divided)
    traffic = expected_traffic(load, cluster.total, divided=divided)
    work = {
        **expected_work(load, cluster.total, divided=divided),
        "collectives": float(traffic.collectives),
        "rounds": float(traffic.rounds),
        "bytes": traffic.total,
    }
    return Arrangement(
        divided=divided,
        memory=memory,
        traffic=traffic,
        work=work,
        seconds=costs.seconds(work, cluster),
        fits=sum(memory.values()) <= cluster.memory_each,
    )


def expected_traffic(load: Workload, processes: int, *, divided: bool) -> Traffic:
    """Return what the process that sends most is expected to send in a step.

    Of divided tables that is mostly rank 0, which holds the rows that all ask for.
    """
    if processes == 1:
        return Traffic(1)
    most = -(-load.batch_size // processes)
    gathered = most if load.head == "sampled" and load.sampler == "in-batch" else None
    if not divided:
        touched = load.touched(most)
        inputs = TouchedRows(touched.inputs, load.dimension)
        if load.head == "full":
            dense = FLOAT_BYTES * sum(load.class_widths) * load.classes
            return copied_traffic(processes, [inputs], parameters=_tables(load), dense=dense)
        classes = [TouchedRows(touched.classes, width) for width in load.class_widths]
        return copied_traffic(
            processes, [inputs, *classes], parameters=_tables(load), gathered_targets=gathered
        )
    share = -(-load.classes // processes) / load.classes
    # Rank 0 is asked most, the last one asks most of others.
    parts = ((0.0, share), ((processes - 1) * share, 1.0))
    both = [_divided_traffic_of(load, processes, part, gathered) for part in parts]
    return max(both, key=lambda each: each.total)


def _divided_traffic_of(
    load: Workload, processes: int, part: tuple[float, float], gathered: float | None
) -> Traffic:
    """Return what the process that holds a part of the ranks sends."""
    most = -(-load.batch_size // processes)
    everything, held = load.touched(most), load.touched(most, part)
    asked = [
        AskedRows(whole - mine, (processes - 1) * mine, width)
        for whole, mine, width in (
            (everything.inputs, held.inputs, load.dimension),
            *((everything.classes, held.classes, width) for width in load.class_widths),
        )
    ]
    if load.head == "full":
        return divided_full_traffic(
            processes,
            asked[0],
            width=load.dimension,
            rows=most,
            most_rows=most,
            batch=load.batch_size,
        )
    return divided_traffic(processes, asked, gathered_targets=gathered)


def expected_work(load: Workload, processes: int, *, divided: bool) -> dict[str, float]:
    """Return how often the busiest process does each operation in a step, but for what is sent."""
    own, width = -(-load.batch_size // processes), load.dimension
    all_rows = load.touched(load.batch_size)
    read = float(own * load.max_history * width)
    if divided:
        first = -(-load.classes // processes)
        held = load.touched(own, (0.0, first / load.classes))
        # Gradients of the same row come from several processes, and are added up.
        read += processes * (held.inputs + held.classes * (load.head == "sampled")) * width
        written = load.touched(load.batch_size, (0.0, first / load.classes))
    else:
        first, written = load.classes, all_rows
        if processes > 1:
            # Rows of all processes come, and are added up.
            each = load.touched(own)
            read += processes * (each.inputs + each.classes * (load.head == "sampled")) * width
    if load.head == "full":
        # Divided, each process scores the whole batch against its classes.
        scored = load.batch_size * first if divided else own * first
        products = float(_EXACT_PASSES * scored * width)
        updated = (written.inputs + first) * width
    else:
        products = _SAMPLED_PASSES * own * load.candidates * width
        read += (own + load.candidates) * width
        updated = sum(written) * width
    return {
        "step": 1.0,
        "scores": products,
        "rows read": read,
        "rows written": updated * (1 + STATES[load.optimizer]),
    }


def _tables(load: Workload) -> int:
    return 1 + len(load.class_widths)


def _divisible(load: Workload, cluster: Cluster) -> bool:
    """Return whether every process would have a row."""
    each = -(-load.classes // cluster.total)
    return cluster.total > 1 and each * (cluster.total - 1) < load.classes
