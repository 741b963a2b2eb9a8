"""What one process sends in a step, call by call, as ``widemax.distributed.Wire`` counts it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

ID_BYTES, FLOAT_BYTES = 8, 4
_AGREED = 2
"""Numbers that all agree on after a step: the time that has passed, and whether to stop."""


class TouchedRows(NamedTuple):
    """Rows of a table of which every process has a copy."""

    most: float
    """Distinct rows that the process touches which touches most."""
    width: int
    """Numbers of a row."""


class AskedRows(NamedTuple):
    """Rows of a table that is divided, as one process sees them."""

    asked: float
    """Distinct rows that it asks of the others."""
    answered: float
    """Rows that the others ask of it, the distinct ones of each."""
    width: int
    """Numbers of a row."""


@dataclass
class Traffic:
    """Bytes that a process sends in a step, by what they are, and how often it waits for others.

    A gathered tensor goes round a ring in n − 1 rounds; a sum takes 2·(n − 1)/n of its bytes, in
    twice as many rounds; an exchange is one round, for all send at once.

    >>> traffic = Traffic(4)
    >>> traffic.gather("rows", 100)
    >>> traffic.reduce("sums", 8)
    >>> traffic.bytes, traffic.rounds
    ({'rows': 300, 'sums': 12}, 9)
    """

    processes: int
    """How many processes there are."""
    bytes: dict[str, float] = field(default_factory=dict)
    """Bytes by what they are."""
    rounds: int = 0
    """In how many rounds, each of which waits for the one before."""
    collectives: int = 0
    """In how many calls, each of all processes together."""

    @property
    def total(self) -> float:
        """All bytes."""
        return sum(self.bytes.values())

    def gather(self, part: str, size: float) -> None:
        """Add a tensor that every other process gets."""
        self._add(part, size * (self.processes - 1), self.processes - 1)

    def reduce(self, part: str, size: float) -> None:
        """Add a tensor whose sum, or largest, all processes get."""
        others = 2 * (self.processes - 1)
        self._add(part, others * size // self.processes, others)

    def exchange(self, part: str, size: float) -> None:
        """Add what is sent to the others in parts of so many bytes together."""
        self._add(part, size, 1)

    def _add(self, part: str, size: float, rounds: int) -> None:
        self.bytes[part] = self.bytes.get(part, 0) + size
        self.rounds += rounds
        self.collectives += 1


def copied_traffic(
    processes: int,
    tables: Sequence[TouchedRows],
    *,
    parameters: int,
    dense: float = 0,
    gathered_targets: float | None = None,
) -> Traffic:
    """Return what a process sends where each has all tables, and gradients are added up.

    Rows of tables travel with their ids, ``dense`` bytes of gradients as a sum; with candidates
    from the batch the targets of the process that has most are ``gathered_targets``. The number of
    classes is in it only where a head has a dense gradient.

    >>> copied_traffic(2, [TouchedRows(100, 64)], parameters=1).bytes
    {'gradients of rows': 26400, 'bookkeeping': 32}
    """
    traffic = Traffic(processes)
    if gathered_targets is not None:
        _gather_targets(traffic, gathered_targets)
    for table in tables:
        for size in (ID_BYTES, FLOAT_BYTES * table.width):
            traffic.gather("gradients of rows", size * table.most)
    if dense:
        traffic.reduce("dense gradients", dense)
    _keep_books(traffic, parameters)
    return traffic


def divided_traffic(
    processes: int,
    tables: Sequence[AskedRows],
    *,
    parameters: int = 0,
    dense: float = 0,
    gathered_targets: float | None = None,
) -> Traffic:
    """Return what a process sends where tables are divided: rows are asked for, and come.

    ``parameters`` and ``dense`` are of what is not divided. The number of classes is not in it.

    >>> divided_traffic(2, [AskedRows(100, 40, 64)]).bytes["rows"]
    10240
    """
    traffic = Traffic(processes)
    if gathered_targets is not None:
        _gather_targets(traffic, gathered_targets)
    for table in tables:
        row = FLOAT_BYTES * table.width
        traffic.exchange("bookkeeping", ID_BYTES * (processes - 1))
        traffic.exchange("ids", ID_BYTES * table.asked)
        traffic.exchange("rows", row * table.answered)
        traffic.exchange("gradients of rows", row * table.asked)
    if dense:
        traffic.reduce("dense gradients", dense)
    _keep_books(traffic, parameters)
    return traffic


def divided_full_traffic(
    processes: int, inputs: AskedRows, *, width: int, rows: float, most_rows: float, batch: float
) -> Traffic:
    """Return what a process sends for an exact softmax over divided classes.

    ``rows`` of the ``batch`` are its own, ``most_rows`` those of the process that has most; hidden
    states of ``width`` numbers go to all, and their gradients back.
    """
    traffic = divided_traffic(processes, [inputs])
    for _ in range(2):
        traffic.gather("bookkeeping", ID_BYTES)
    traffic.gather("hidden states", FLOAT_BYTES * width * most_rows)
    traffic.exchange("gradients of hidden states", FLOAT_BYTES * width * (batch - rows))
    traffic.gather("targets", ID_BYTES * most_rows)
    traffic.gather("targets", FLOAT_BYTES * most_rows)
    # The largest, the sum, the score of the target; in backward two more.
    for _ in range(5):
        traffic.reduce("sums over classes", FLOAT_BYTES * batch)
    return traffic


def _gather_targets(traffic: Traffic, most: float) -> None:
    traffic.gather("bookkeeping", ID_BYTES)
    traffic.gather("targets", ID_BYTES * most)


def _keep_books(traffic: Traffic, parameters: int) -> None:
    """Add what every step has: kinds of gradients, the number of losses, what all agree on."""
    traffic.gather("bookkeeping", ID_BYTES * parameters)
    for numbers in (1, _AGREED):
        traffic.reduce("bookkeeping", ID_BYTES * numbers)
