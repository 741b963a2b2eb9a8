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

from widemax.kernels.huffman import huffman_children
from widemax.kernels.principal import principal_projection
from widemax.sampling.counts import Counts, check_counts

Slots = NDArray[np.int64]

_LEAST_WEIGHT = 1e-9
"""What a class without any mass counts, against the heaviest."""

INNER = -1
"""Marks a slot that holds an inner node."""


def balanced_slots(num_classes: int) -> Slots:
    """Return the complete tree: the last level is filled up from the highest classes."""
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


def clustered_slots(vectors: NDArray[np.float32], masses: NDArray[np.float64]) -> Slots:
    """Return a tree whose nodes cut a cloud of class vectors at half its mass.

    Each cloud is cut across the direction in which it is longest, by mass: vectors of rare classes
    are many, hardly learnt, and say little of what is to be told apart.
    """
    weights = np.maximum(masses / max(masses.max(), 1e-300), _LEAST_WEIGHT).astype(np.float32)
    members = np.arange(len(vectors) if len(vectors) > 1 else 0)
    sizes = np.array([len(vectors)])
    levels = []
    while len(members):
        starts = np.cumsum(sizes) - sizes
        cloud = np.repeat(np.arange(len(sizes)), sizes)
        projection = principal_projection(vectors, members, starts, sizes, weights)
        members = members[np.lexsort((projection, cloud))]
        left = _half_mass(masses[members], starts, sizes)
        child_starts = np.stack([starts, starts + left], axis=1).ravel()
        child_sizes = np.stack([left, sizes - left], axis=1).ravel()
        inner = child_sizes > 1
        levels.append(np.where(inner, INNER, members[child_starts]))
        members = members[np.repeat(inner, child_sizes)]
        sizes = child_sizes[inner]
    return join_levels(levels)


def _half_mass(
    masses: NDArray[np.float64], starts: NDArray[np.int64], sizes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return how many members of each cloud go left: nearest to half its mass, one at least."""
    total = np.add.reduceat(masses, starts)
    # Shares, not masses, are summed up: a light cloud keeps its digits beside a heavy one.
    # Clouds without any mass are cut in the middle.
    empty = np.repeat(total <= 0, sizes)
    share = np.where(empty, 1.0, masses) / np.repeat(np.where(total > 0, total, sizes), sizes)
    up_to = np.cumsum(share)
    up_to -= np.repeat(up_to[starts] - share[starts], sizes)
    below = np.add.reduceat(up_to < 0.5, starts, dtype=np.int64)
    before = np.where(below > 0, up_to[starts + np.maximum(below - 1, 0)], 0.0)
    after = up_to[starts + np.minimum(below, sizes - 1)]
    nearest = np.where(after - 0.5 < 0.5 - before, below + 1, below)
    return np.clip(nearest, 1, sizes - 1)


def join_levels(levels: list[Slots]) -> Slots:
    """Return the slots of all levels, root first; a tree of one class has none."""
    return np.concatenate(levels) if levels else np.empty(0, dtype=np.int64)


def read_counts(counts: Counts) -> NDArray[np.float64]:
    """Return counts that say themselves how many classes there are, as float64."""
    size = len(counts) if hasattr(counts, "__len__") and np.ndim(counts) == 1 else 0
    if not size:
        raise ValueError("counts must be 1-D with one count for each class, got none")
    return check_counts(counts, size).astype(np.float64)


def read_vectors(vectors: Tensor | NDArray[Any]) -> NDArray[np.float32]:
    """Return class vectors [V, D] scaled to entries of at most 1."""
    read = vectors.detach().cpu().double().numpy() if isinstance(vectors, Tensor) else vectors
    array = np.asarray(read, dtype=np.float64)
    if array.ndim != 2 or not array.size:
        raise ValueError(f"vectors must have shape [V, D], got {list(array.shape)}")
    if not np.isfinite(array).all():
        wrong = int(np.flatnonzero(~np.isfinite(array).all(1))[0])
        raise ValueError(f"vectors must be finite, class {wrong:,} has NaN or infinity")
    # Only directions matter: entries up to 1 keep the squares far from overflow.
    scaled: NDArray[np.float32] = (array / max(np.abs(array).max(), 1e-300)).astype(np.float32)
    return np.ascontiguousarray(scaled)
