"""How long a step takes: a small model, fitted to measurements of one and of two processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from widemax.advising.fitting import fitted_costs
from widemax.limits import check_positive
from widemax.planning.cluster import Cluster

OPERATIONS: dict[str, str] = {
    "step": "what every step has, however small it is",
    "scores": "multiplications for scores and their gradients",
    "rows read": "numbers of rows that are read, with their gradients",
    "rows written": "numbers of rows that the optimiser writes",
    "collectives": "the processor's part of a call of all processes, however many they are",
    "rounds": "the processor's part of a round of messages",
    "bytes": "the processor's part of a byte that is sent",
}
"""What a step is made of, each with what is counted."""

_TYPICAL = {
    "step": 2.2e-3,
    "scores": 2.8e-11,
    "rows read": 8.0e-10,
    "rows written": 3.0e-9,
    "collectives": 3.0e-4,
    "rounds": 1.5e-4,
    "bytes": 1.5e-9,
}
"""Seconds of one core of a small server: what noise leaves open is decided by these."""


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Seconds that a core takes for one of each operation.

    >>> Costs.typical().seconds({"step": 1, "scores": 1e9}, Cluster())["scores"]
    0.028
    """

    name: str
    """The machine that the seconds belong to."""
    each: Mapping[str, float] = field(default_factory=lambda: dict(_TYPICAL))
    """Seconds by operation, see ``OPERATIONS``."""

    def __post_init__(self) -> None:
        for operation in OPERATIONS:
            check_positive(operation, self.each.get(operation, 0.0))

    @classmethod
    def typical(cls) -> Costs:
        """Return one core of a small server, with processes of one machine."""
        return cls(name="one core of a small server")

    @classmethod
    def fitted(
        cls,
        name: str,
        work: Sequence[Mapping[str, float]],
        clusters: Sequence[Cluster],
        seconds: Sequence[float],
    ) -> Costs:
        """Return the costs that explain measured steps, each of a cluster of one machine.

        >>> steps = [{"step": 1.0}, {"step": 1.0, "scores": 1e9}]
        >>> costs = Costs.fitted("here", steps, [Cluster()] * 2, [0.002, 0.102])
        >>> round(costs.each["scores"] * 1e9, 1)
        0.1
        """
        if any(each.nodes > 1 for each in clusters):
            raise ValueError("costs are fitted to steps on one machine: nodes must be 1")
        matrix = np.array(
            [
                [each.get(name, 0.0) * cluster.sharing for name in OPERATIONS]
                for each, cluster in zip(work, clusters, strict=True)
            ]
        )
        typical = np.array([_TYPICAL[name] for name in OPERATIONS])
        found = fitted_costs(matrix, np.array(seconds), typical)
        return cls(name=name, each=dict(zip(OPERATIONS, found.tolist(), strict=True)))

    def seconds(self, work: Mapping[str, float], cluster: Cluster) -> dict[str, float]:
        """Return how long each part of a step takes in a process of a cluster.

        Where more processes than cores are on a machine they take turns: all that the processor
        does is as many times slower. Latency and bandwidth of the network come on top.
        """
        parts = {
            name: cluster.sharing * cost * work.get(name, 0.0) for name, cost in self.each.items()
        }
        waiting = cluster.network_seconds(work.get("bytes", 0.0), work.get("rounds", 0.0))
        parts |= dict(zip(("latency", "bandwidth"), waiting, strict=True))
        return {name: parts[name] for name in (*OPERATIONS, "latency", "bandwidth")}
