"""Machines and what lies between them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from widemax.limits import check_not_negative, check_positive, check_whole

MOST_PROCESSES = 2**16
"""Most processes that a plan is made for."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Alike machines on a network, each with some of the processes.

    >>> Cluster(nodes=64, processes=2).total
    128
    """

    nodes: int = 1
    """Machines."""
    processes: int = 1
    """Processes of each."""
    cores: int = 0
    """Cores of each; 0: one for every process."""
    memory: float = 0.0
    """Bytes of each; 0: not known."""
    bandwidth: float = 1.25e9
    """Bytes a second that a machine sends to others: 10 Gbit."""
    latency: float = 50e-6
    """Seconds until a message of one machine is at another."""

    def __post_init__(self) -> None:
        check_whole("nodes", self.nodes, 1, MOST_PROCESSES)
        check_whole("processes", self.processes, 1, MOST_PROCESSES)
        check_whole("processes in all", self.total, 1, MOST_PROCESSES)
        check_whole("cores", self.cores, 0, MOST_PROCESSES)
        check_not_negative("memory", self.memory)
        check_positive("bandwidth", self.bandwidth)
        check_not_negative("latency", self.latency)

    @property
    def total(self) -> int:
        """All processes."""
        return self.nodes * self.processes

    @property
    def sharing(self) -> float:
        """How many processes share a core; 1 where each has its own."""
        return max(1.0, self.processes / self.cores) if self.cores else 1.0

    def network_seconds(self, sent: float, rounds: float) -> tuple[float, float]:
        """Return how long the network takes for what each process sends: latency, and bytes.

        What stays on a machine is not on the network; its processes share the bandwidth. Each round
        waits for the slowest message.
        """
        if self.nodes == 1:
            return 0.0, 0.0
        leaving = (self.total - self.processes) / (self.total - 1)
        bytes_out = self.processes * sent * leaving
        return self.latency * rounds, bytes_out / self.bandwidth

    @property
    def memory_each(self) -> float:
        """The part of a machine's memory that a process has; infinite where it is not known."""
        return self.memory / self.processes if self.memory else math.inf
