"""Divide the classes below each node of a tree in two, those that are alike together."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from widemax.kernels.huffman import fill_left, fill_left_reference

_STEPS = 10
# What sums in another order differ by is no gain.
_LEAST_GAIN = 1 + 1e-9


@njit(cache=True)
def alike_sides(
    vectors: NDArray[np.float32],
    members: NDArray[np.int64],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    weights: NDArray[np.float32],
    place: NDArray[np.float32],
    depths: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Return which members of each cloud go left, where all are to keep their depths.

    Formula: leaves fill the left half in the order of their ``place`` (``fill_left``). Then, ten
    times or as long as the means a and b of both sides come to lie farther apart, in the order of
    x·(b − a). "Farther" is by Σ over both sides of mass·|mean − mean of all|², what 2-means makes
    as large as it can. The same from the other end, since big leaves that come late find no room on
    the left; the better of both is taken.

    Shapes: vectors [V, D]; members [M] of ids, cloud by cloud; starts and sizes [C] of the clouds
    in it; weights [V] above 0; place [M]; depths [M] below the cloud's node; [M] out.

    Cost: O(M·(D + log M)), at most twenty-two passes.

    Reference: Lloyd 1982, under Kraft's equality.

    Use when: a code's lengths are given, and similar classes are to share most of theirs. Avoid
    when: lengths are free (``two_means`` alone).

    >>> line = np.array([[0.0], [5.0], [0.1], [5.1]], dtype=np.float32)
    >>> ones, whole = np.ones(4, np.float32), (np.array([0]), np.array([4]))
    >>> alike_sides(line, np.arange(4), *whole, ones, line[:, 0], np.full(4, 2)).tolist()
    [True, False, True, False]
    """
    left = np.zeros(len(members), np.bool_)
    for cloud in range(len(starts)):
        part = slice(starts[cloud], starts[cloud] + sizes[cloud])
        own, rest, best = members[part], depths[part], left[part]
        most = -1.0
        for sign in (np.float32(1), np.float32(-1)):
            order = np.argsort(sign * place[part], kind="mergesort")
            for step in range(1 + _STEPS):
                sides = _filled(rest, order)
                gain, along = _apart(vectors, own, weights, sides)
                if gain > most * _LEAST_GAIN:
                    most = gain
                    best[:] = sides
                elif step:
                    break
                order = np.argsort(along, kind="mergesort")
    return left


@njit(cache=True)
def _filled(depths: NDArray[np.int64], order: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which leaves of one node go left, if they come in this order."""
    sides = np.empty(len(order), np.bool_)
    sides[order] = fill_left(depths[order], np.array([0]), np.array([len(order)]))
    return sides


@njit(cache=True)
def _apart(
    vectors: NDArray[np.float32],
    own: NDArray[np.int64],
    weights: NDArray[np.float32],
    left: NDArray[np.bool_],
) -> tuple[float, NDArray[np.float64]]:
    """Return how far apart both sides are, and where members lie from the left to the right."""
    dimension = vectors.shape[1]
    means = np.zeros((2, dimension), np.float64)
    mass = np.zeros(2, np.float64)
    for i in range(len(own)):
        side = 0 if left[i] else 1
        weight = np.float64(weights[own[i]])
        mass[side] += weight
        for j in range(dimension):
            means[side, j] += weight * vectors[own[i], j]
    means[0] /= mass[0]
    means[1] /= mass[1]
    across = means[1] - means[0]
    along = np.zeros(len(own), np.float64)
    for i in range(len(own)):
        for j in range(dimension):
            along[i] += vectors[own[i], j] * across[j]
    gain = mass[0] * mass[1] / (mass[0] + mass[1]) * np.square(across).sum()
    return gain, along


def alike_sides_reference(
    vectors: NDArray[np.float32],
    members: NDArray[np.int64],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    weights: NDArray[np.float32],
    place: NDArray[np.float32],
    depths: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Return the same by matrix products, with what is farther told by the scatter itself."""
    left = np.zeros(len(members), np.bool_)
    for start, size in zip(starts, sizes, strict=True):
        part = slice(start, start + size)
        cloud = vectors[members[part]].astype(np.float64)
        weight = weights[members[part]].astype(np.float64)
        whole, most = weight @ cloud / weight.sum(), -1.0
        for sign in (1, -1):
            along = sign * place[part]
            for step in range(1 + _STEPS):
                order = np.argsort(along, kind="stable")
                sides = np.empty(size, np.bool_)
                sides[order] = fill_left_reference(
                    depths[part][order], np.array([0]), np.array([size])
                )
                masses = [weight[s].sum() for s in (sides, ~sides)]
                low, high = (weight[s] @ cloud[s] / weight[s].sum() for s in (sides, ~sides))
                gain = sum(
                    mass * np.square(mean - whole).sum()
                    for mass, mean in zip(masses, (low, high), strict=True)
                )
                if gain > most * _LEAST_GAIN:
                    most, left[part] = gain, sides
                elif step:
                    break
                along = cloud @ (high - low)
    return left
