"""Building trees from sizes, counts and vectors, level by level.

Every builder returns ``slots``: the children of all inner nodes in breadth-first order, left
before right, where a class stands for itself and -1 for an inner node. Since the inner nodes are
numbered in the order they appear, that is the whole tree.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from widemax.kernels.heads.huffman import fill_left, huffman_children
from widemax.kernels.heads.two_means import two_means

Slots = NDArray[np.int64]

_MIN_WEIGHT = 1e-9
"""The weight of a class without any mass, relative to the heaviest."""

_MIN_SIDE = 1 / 16
_HALF = 0.5 + 1e-9
"""A half, and a margin for the rounding of sums of shares."""

INNER = -1
"""Marks a slot that holds an inner node."""


def balanced_slots(num_classes: int) -> Slots:
    """Return the complete tree, in which the highest classes stand on the last level."""
    inner = np.full(max(num_classes - 2, 0), INNER)
    classes = np.arange(num_classes if num_classes > 1 else 0)
    return np.concatenate([inner, classes])


def huffman_slots(counts: NDArray[np.float64]) -> Slots:
    """Return the Huffman tree of the counts."""
    num_classes = len(counts)
    with np.errstate(over="ignore"):
        overflows = not np.isfinite(counts.sum())
    # A power of two shrinks floats without rounding them, so that ties stay ties.
    children = huffman_children(counts * 2.0**-64 if overflows else counts)
    levels = []
    frontier = np.array([num_classes - 2] if num_classes > 1 else [], dtype=np.int64)
    while len(frontier):
        level = children[frontier].ravel()
        inner = level >= num_classes
        levels.append(np.where(inner, INNER, level))
        frontier = level[inner] - num_classes
    return join_levels(levels)


def clustered_slots(
    vectors: NDArray[np.float32],
    masses: NDArray[np.float64],
    depths: NDArray[np.int64] | None = None,
) -> Slots:
    """Return the tree that results from cutting the cloud of class vectors, and each part, in two.

    Cuts are those of 2-means, or as near to them as the given ``depths`` of the classes allow.
    Vectors count by their mass: those of rare classes are many and hardly learned, and say little
    about what is to be distinguished.
    """
    weights = np.maximum(masses / max(masses.max(), 1e-300), _MIN_WEIGHT).astype(np.float32)
    members = np.arange(len(vectors) if len(vectors) > 1 else 0)
    sizes = np.array([len(vectors)])
    levels: list[Slots] = []
    while len(members):
        starts = np.cumsum(sizes) - sizes
        cloud = np.repeat(np.arange(len(sizes)), sizes)
        place = two_means(vectors, members, starts, sizes, weights)
        order = np.lexsort((place, cloud))
        members = members[order]
        if depths is None:
            cuts = _cuts(place[order], masses[members], starts, sizes)
            left = np.arange(len(members)) < np.repeat(starts + cuts, sizes)
        else:
            left = fill_left(depths[members] - len(levels), starts, sizes)
        members = members[np.lexsort((~left, cloud))]
        left_sizes = np.add.reduceat(left, starts, dtype=np.int64)
        child_starts = np.stack([starts, starts + left_sizes], axis=1).ravel()
        child_sizes = np.stack([left_sizes, sizes - left_sizes], axis=1).ravel()
        inner = child_sizes > 1
        levels.append(np.where(inner, INNER, members[child_starts]))
        members = members[np.repeat(inner, child_sizes)]
        sizes = child_sizes[inner]
    return join_levels(levels)


def _cuts(
    place: NDArray[np.float32],
    masses: NDArray[np.float64],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return how many members of each cloud, in the order of their place, go left.

    Those left of the plane, but neither side gets less than a sixteenth, so that no tree is much
    deeper than log V; half of them where all are in one place. A member's share is the mean of its
    share of the mass and of the number of members, so that neither one heavy class nor many without
    any mass make a side alone.
    """
    size = np.repeat(sizes, sizes)
    total = np.repeat(np.add.reduceat(masses, starts), sizes)
    # Shares, not masses, are summed: a light cloud keeps its digits beside a heavy one.
    of_mass = np.divide(masses, total, where=total > 0, out=1.0 / size)
    share = (of_mass + 1.0 / size) / 2
    up_to = np.cumsum(share)
    up_to -= np.repeat(up_to[starts] - share[starts], sizes)

    def lighter_than(limit: float) -> NDArray[np.int64]:
        return np.add.reduceat(up_to < limit, starts, dtype=np.int64)

    left_of_plane = np.add.reduceat(place < 0, starts, dtype=np.int64)
    one_place = np.maximum.reduceat(place, starts) <= np.minimum.reduceat(place, starts)
    least, most = lighter_than(_MIN_SIDE) + 1, lighter_than(1 - _MIN_SIDE)
    cut = np.where(
        one_place, lighter_than(_HALF), np.clip(left_of_plane, least, np.maximum(least, most))
    )
    return np.clip(cut, 1, sizes - 1)


def join_levels(levels: list[Slots]) -> Slots:
    """Return the slots of all levels, root first; a tree of one class has none."""
    return np.concatenate(levels) if levels else np.empty(0, dtype=np.int64)


def read_vectors(
    vectors: Tensor | NDArray[Any], num_classes: int | None = None
) -> NDArray[np.float32]:
    """Return class vectors [V, D], one for each class, scaled to entries of at most 1."""
    read = vectors.detach().cpu().double().numpy() if isinstance(vectors, Tensor) else vectors
    array = np.asarray(read, dtype=np.float64)
    if array.ndim != 2 or not array.size:
        raise ValueError(f"vectors must have shape [V, D], got {list(array.shape)}")
    if num_classes is not None and len(array) != num_classes:
        raise ValueError(f"vectors must have a row for each of {num_classes:,}, got {len(array):,}")
    if not np.isfinite(array).all():
        wrong = int(np.flatnonzero(~np.isfinite(array).all(1))[0])
        raise ValueError(f"vectors must be finite, class {wrong:,} has NaN or infinity")
    # Only directions matter: entries up to 1 keep the squares far from overflow.
    scaled: NDArray[np.float32] = (array / max(np.abs(array).max(), 1e-300)).astype(np.float32)
    return np.ascontiguousarray(scaled)
