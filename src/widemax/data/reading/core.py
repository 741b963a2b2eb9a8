"""The part of a log in which every user and every item has enough interactions."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widemax.data.sequences import Sequences
from widemax.kernels.data.k_core import Peeled, peeled
from widemax.validation import check_whole

MAX_CORE = 2**40
"""Largest core that can be asked for."""


def core_of(sequences: Sequences, core: int) -> Tensor:
    """Return which values belong to the core of a log, bool [T]; ``sequences.kept`` keeps them.

    Formula: sequences (users) and classes (items) with fewer than ``core`` values are removed, and
    again those that have too few since then, until each has at least ``core`` or none at all. What
    is left does not depend on the order of removal. A repeated interaction counts every time.

    Shapes: ``sequences`` with T values → bool [T]. Sequences that are removed are empty afterwards:
    rows keep their numbers.

    Cost: O(T), however long the chain of removals.

    Reference: Seidman, "Network Structure and Minimum Degree", 1983; see ``k_core``, the kernel.

    Use when: results are to be compared with others, who mostly report on the 5-core or 10-core.
    Avoid when: the recommender must serve the users and items that would go: the core is easier
    than the log it comes from.

    >>> sequences = Sequences.from_lists([[0, 1], [1, 0], [0, 2]])
    >>> core_of(sequences, 2).tolist()
    [True, True, True, True, False, False]
    """
    core = check_whole("core", core, 0, MAX_CORE)
    if not len(sequences.values):
        return torch.zeros(0, dtype=torch.bool)
    num_items = int(sequences.values.max()) + 1
    arrays = sequences.values.numpy(), sequences.offsets.numpy()
    return torch.from_numpy(left_in_core(*arrays, num_items, core).kept)


def left_in_core(
    items: NDArray[Any], offsets: NDArray[np.int64], num_items: int, core: int
) -> Peeled:
    """Return what ``peeled`` does; that nothing is left is an error."""
    left = peeled(items, offsets, num_items, core)
    if not left.kept.any():
        raise ValueError(f"core = {core:,} leaves no interaction of {len(items):,}")
    return left
