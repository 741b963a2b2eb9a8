"""The direction in which each cloud of vectors is longest, and where its members lie along it."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

# From the farthest member the direction is close to begin with; it only has to cut well.
_POWER_STEPS = 4
_SMALLEST = 1e-30


@njit(cache=True)
def principal_projection(
    vectors: NDArray[np.float32],
    members: NDArray[np.int64],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    weights: NDArray[np.float32],
) -> NDArray[np.float32]:
    """Return the place of each member along the principal direction of its cloud.

    Formula: (x − mean)·d with d ∝ Cov⁴ (x_far − mean), four power steps from the member farthest
    from the mean; 0 for a cloud of equal vectors. Mean, covariance and (squared) distance count
    each vector by its weight.

    Shapes: vectors [V, D]; members [M] of ids, cloud by cloud; starts and sizes [C] of the clouds
    in it; weights [V] above 0; [M] out.

    Cost: O(M·D), eleven passes.

    Reference: the power method; the cut across the longest direction is Boley's, 1998 (PDDP).

    Use when: cutting many clouds at once on the CPU. Avoid when: the exact eigenvector is wanted.

    >>> line = np.array([[0, 0], [3, 3], [1, 1]], dtype=np.float32)
    >>> place = principal_projection(
    ...     line, np.arange(3), np.array([0]), np.array([3]), np.ones(3, np.float32)
    ... )
    >>> np.argsort(place * np.sign(place[1])).tolist()
    [0, 2, 1]
    """
    place = np.empty(len(members), np.float32)
    for cloud in range(len(starts)):
        own = members[starts[cloud] : starts[cloud] + sizes[cloud]]
        mean = _mean(vectors, own, weights)
        direction = vectors[own[_farthest(vectors, own, mean, weights)]] - mean
        for _ in range(_POWER_STEPS):
            direction = _power_step(vectors, own, mean, direction, weights)
        for i in range(len(own)):
            place[starts[cloud] + i] = _along(vectors[own[i]], mean, direction)
    return place


@njit(cache=True)
def _mean(
    vectors: NDArray[np.float32], own: NDArray[np.int64], weights: NDArray[np.float32]
) -> NDArray[np.float32]:
    total = np.zeros(vectors.shape[1], np.float64)
    weight = 0.0
    for i in range(len(own)):
        total += weights[own[i]] * vectors[own[i]]
        weight += weights[own[i]]
    return (total / weight).astype(np.float32)


@njit(cache=True)
def _farthest(
    vectors: NDArray[np.float32],
    own: NDArray[np.int64],
    mean: NDArray[np.float32],
    weights: NDArray[np.float32],
) -> int:
    farthest = 0
    largest = np.float32(-1)
    for i in range(len(own)):
        distance = weights[own[i]] * _squared_distance(vectors[own[i]], mean)
        if distance > largest:
            largest = distance
            farthest = i
    return farthest


@njit(cache=True)
def _power_step(
    vectors: NDArray[np.float32],
    own: NDArray[np.int64],
    mean: NDArray[np.float32],
    direction: NDArray[np.float32],
    weights: NDArray[np.float32],
) -> NDArray[np.float32]:
    following = np.zeros(len(mean), np.float32)
    for i in range(len(own)):
        vector = vectors[own[i]]
        place = weights[own[i]] * _along(vector, mean, direction)
        for j in range(len(mean)):
            following[j] += place * (vector[j] - mean[j])
    following /= max(np.sqrt(np.square(following).sum()), np.float32(_SMALLEST))
    return following


# Loops, not array expressions: those would allocate an array for each vector.
@njit(cache=True, fastmath={"reassoc", "contract"})
def _along(
    vector: NDArray[np.float32], mean: NDArray[np.float32], direction: NDArray[np.float32]
) -> np.float32:
    total = np.float32(0)
    for j in range(len(vector)):
        total += (vector[j] - mean[j]) * direction[j]
    return total


@njit(cache=True, fastmath={"reassoc", "contract"})
def _squared_distance(vector: NDArray[np.float32], mean: NDArray[np.float32]) -> np.float32:
    total = np.float32(0)
    for j in range(len(vector)):
        total += (vector[j] - mean[j]) ** 2
    return total


def principal_projection_reference(
    vectors: NDArray[np.float32],
    members: NDArray[np.int64],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    weights: NDArray[np.float32],
) -> NDArray[np.float32]:
    """Return the same places by matrix products in float64."""
    place = np.zeros(len(members))
    for start, size in zip(starts, sizes, strict=True):
        own = members[start : start + size]
        cloud, weight = vectors[own].astype(np.float64), weights[own].astype(np.float64)
        cloud -= weight @ cloud / weight.sum()
        direction = cloud[(weight * np.square(cloud).sum(1)).argmax()]
        for _ in range(_POWER_STEPS):
            direction = (weight * (cloud @ direction)) @ cloud
            direction /= max(float(np.linalg.norm(direction)), _SMALLEST)
        place[start : start + size] = cloud @ direction
    return place.astype(np.float32)
