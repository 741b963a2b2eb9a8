"""Bytes that one process of a training takes, by part."""

from __future__ import annotations

from widemax.planning.traffic import FLOAT_BYTES
from widemax.planning.workload import ROW_BYTES, STATES, Workload

_PROGRAM = 450 * 2**20
"""Python, torch and the kernels."""
_BYTES_A_CLASS = 40
"""The key of a class, its count, and where it is found by its key: of all classes, everywhere."""
_BYTES_AN_EXAMPLE = 40
"""Class, time, user and place of an interaction, and the copy that is split off."""
_SAMPLER_BYTES = {"unigram": 12, "in-batch": 12}
"""Bytes a class of a table to draw from, or of log Q; other samplers have none."""
_TILES = 32 * 2**20
"""Scores of an exact softmax that are in memory at once."""


def table_bytes(load: Workload, rows: int) -> int:
    """Return what so many rows of all tables take.

    >>> table_bytes(Workload(classes=10**9, dimension=128), 10**9)
    1028000000000
    """
    return FLOAT_BYTES * load.row_numbers * rows


def state_bytes(load: Workload, rows: int) -> int:
    """Return what the optimiser keeps of so many rows of all tables.

    >>> state_bytes(Workload(classes=10, dimension=4, bias=False), 10)
    800
    """
    tables = 1 + len(load.class_widths)
    numbers = STATES[load.optimizer] * load.row_numbers * FLOAT_BYTES
    return rows * (numbers + ROW_BYTES[load.optimizer] * tables)


def process_memory(load: Workload, processes: int, *, divided: bool) -> dict[str, float]:
    """Return the bytes of each part of the largest process.

    >>> whole, part = (
    ...     process_memory(Workload(classes=10**9), 64, divided=each) for each in (False, True)
    ... )
    >>> round(whole["tables"] / part["tables"]), whole["vocabulary"] == part["vocabulary"]
    (64, True)
    """
    rows = -(-load.classes // processes) if divided else load.classes
    own = -(-load.batch_size // processes)
    scores = _TILES
    if load.head == "sampled":
        # Scores, their exponentials and their gradients.
        scores = round(3 * FLOAT_BYTES * own * load.candidates)
    touched = load.touched(own)
    read = own * load.max_history + touched.inputs + own + load.candidates * (load.head != "full")
    # Rows and their gradients, of this process; gradients of all where they are added up.
    gathered = 2 * read * load.dimension * FLOAT_BYTES
    if not divided:
        gathered += 2 * processes * sum(touched) * load.dimension * FLOAT_BYTES
    if load.head == "full":
        # The gradient of the class table is a table of its own.
        gathered += FLOAT_BYTES * sum(load.class_widths) * rows
    sampled = load.head == "sampled"
    return {
        "tables": table_bytes(load, rows),
        "optimiser": state_bytes(load, rows),
        "one step": scores + gathered,
        "sampler": load.classes * _SAMPLER_BYTES.get(load.sampler, 0) * sampled,
        "vocabulary": load.classes * _BYTES_A_CLASS,
        "data": load.examples * _BYTES_AN_EXAMPLE,
        "program": _PROGRAM,
    }
