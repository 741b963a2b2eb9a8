"""How much memory a training takes, part by part, before anything is allocated."""

from __future__ import annotations

from widemax.advising.popularity import Popularity
from widemax.advising.work import (
    SAMPLED,
    TREE,
    batch_of,
    candidates_of,
    hidden_width,
    settled,
    state_numbers,
    table_widths,
)
from widemax.config import Config

_FLOAT = 4
_PROGRAM = 450 * 2**20
"""Python, torch and the kernels."""
_TILES = 32 * 2**20
"""Scores of an exact softmax that are in memory at once."""
_BYTES_A_CLASS = 40
"""The key of a class, its count, and where it is found by its key."""
_BYTES_A_TARGET = 40
"""Class, time, user and place of each interaction or word, and the copy that is split off."""
_SAMPLER_BYTES = {"unigram": 12, "learned-unigram": 24, "mixture": 12, "market": 16}
"""Bytes a class of a table to draw from; other samplers have none."""
_TREE_BYTES = 100
"""Children, paths and depths, of each class."""


def memory_of(config: Config, popularity: Popularity, num_targets: int) -> dict[str, int]:
    """Return the bytes of each part of a training.

    >>> parts = memory_of(Config(source="log", model="next-item"), Popularity.zipf(10**6), 10**6)
    >>> parts["model"], max(parts, key=parts.get)
    (516000000, 'optimiser')
    """
    classes = popularity.num_classes
    config = settled(config, classes, num_targets)
    widths = table_widths(config)
    model = _FLOAT * classes * sum(widths)
    rows, candidates = batch_of(config), candidates_of(config, popularity)
    step = 3.0 * _FLOAT * rows * candidates
    if config.get("trainer", "") == "kernel":
        step = 0.0
    elif config.head not in SAMPLED:
        step = _TILES if config.head != TREE else 2.0 * _FLOAT * rows * 32 * hidden_width(config)
    if config.get("optimizer", "") == "dense-adam":
        step += model
    elif config.head not in (*SAMPLED, TREE):
        # The gradient of the output table is a table of its own.
        step += _FLOAT * classes * widths[0]
    drawn = 0.0
    if config.head in SAMPLED:
        drawn = float(classes * _SAMPLER_BYTES.get(config.sampler, 0))
    elif config.head == TREE:
        drawn = float(classes * _TREE_BYTES)
    parts = {
        "model": model,
        "optimiser": model * state_numbers(config),
        "one step": step,
        "sampler or tree": drawn,
        "data": classes * _BYTES_A_CLASS + num_targets * _BYTES_A_TARGET,
        "program": _PROGRAM,
    }
    return {name: round(size) for name, size in parts.items()}
