"""Cutting a stream of targets into consecutive parts with a bounded number of distinct ids."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from widemax.kernels.compiling import njit


@njit(cache=True)
def partition_starts(
    targets: NDArray[np.int64], num_classes: int, max_classes: int
) -> NDArray[np.int64]:
    """Return where each part starts: a part ends before its ``max_classes`` + 1st distinct id.

    Parts are cut greedily from the front, as for target sampling (Jean et al. 2015), in O(N + V).

    >>> partition_starts(np.array([3, 3, 1, 0, 1]), 4, 2).tolist()
    [0, 3]
    """
    seen_in_part = np.full(num_classes, -1, np.int32)
    starts = np.empty(len(targets), np.int64)
    part = -1
    distinct = max_classes
    for position in range(len(targets)):
        target = targets[position]
        if part >= 0 and seen_in_part[target] == part:
            continue
        if distinct == max_classes:
            part += 1
            starts[part] = position
            distinct = 0
        seen_in_part[target] = part
        distinct += 1
    return starts[: part + 1].copy()


def partition_starts_reference(
    targets: NDArray[np.int64], num_classes: int, max_classes: int
) -> NDArray[np.int64]:
    """Return the same starts in plain Python."""
    starts: list[int] = []
    seen: set[int] = set()
    for position, target in enumerate(targets.tolist()):
        if not starts or (target not in seen and len(seen) == max_classes):
            starts.append(position)
            seen = set()
        seen.add(target)
    return np.array(starts, dtype=np.int64)
