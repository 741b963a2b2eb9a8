"""Cut each of many clouds of vectors in two where there is the widest gap."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from widemax.kernels.compiling import njit

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]

# From the farthest member the direction is close to begin with; it only has to cut well.
_POWER_STEPS = 4
_MEAN_STEPS = 10
_SMALLEST = 1e-30


@njit(cache=True)
def two_means(vectors: Floats, members: Ids, starts: Ids, sizes: Ids, weights: Floats) -> Floats:
    """Return how far each member [M] lies to the right of the plane that cuts its cloud in two.

    ``members`` are rows of ``vectors`` [V, D], cloud by cloud; ``starts`` and ``sizes`` [C] say
    where each cloud is. The place is (x − (a + b)/2)·(b − a), a and b the means of the two sides,
    by at most ten steps of 2-means; they start from the cut through the mean across the principal
    direction, d ∝ Cov⁴ (x_far − mean), four power steps from the member farthest from the mean
    (Boley 1998). It is 0 for a cloud of equal vectors. All means, the covariance and (squared)
    distances count each vector by its weight [V] above 0.

    >>> line = np.array([[0, 0], [3, 3], [1, 1]], dtype=np.float32)
    >>> place = two_means(
    ...     line, np.arange(3), np.array([0]), np.array([3]), np.ones(3, np.float32)
    ... )
    >>> np.argsort(place * np.sign(place[1])).tolist()
    [0, 2, 1]
    """
    place = np.zeros(len(members), np.float32)
    for cloud in range(len(starts)):
        own = members[starts[cloud] : starts[cloud] + sizes[cloud]]
        found = place[starts[cloud] : starts[cloud] + sizes[cloud]]
        mean = _mean(vectors, own, weights)
        direction = vectors[own[_farthest(vectors, own, mean, weights)]] - mean
        for _ in range(_POWER_STEPS):
            direction = _power_step(vectors, own, mean, direction, weights)
        for i in range(len(own)):
            found[i] = _along(vectors[own[i]], mean, direction)
        for _ in range(_MEAN_STEPS):
            if not _mean_step(vectors, own, weights, found):
                break
    return place


@njit(cache=True)
def _mean_step(vectors: Floats, own: Ids, weights: Floats, place: Floats) -> bool:
    """Update the places by the means of both sides; False where no member changed its side."""
    sums = np.zeros((2, vectors.shape[1]), np.float64)
    mass = np.zeros(2, np.float64)
    for i in range(len(own)):
        side = np.int64(place[i] > 0)
        weight = weights[own[i]]
        mass[side] += weight
        for j in range(vectors.shape[1]):
            sums[side, j] += weight * vectors[own[i], j]
    if mass.min() <= 0:
        return False
    left, right = sums[0] / mass[0], sums[1] / mass[1]
    middle = ((left + right) / 2).astype(np.float32)
    across = (right - left).astype(np.float32)
    changed = False
    for i in range(len(own)):
        following = _along(vectors[own[i]], middle, across)
        changed |= (following > 0) != (place[i] > 0)
        place[i] = following
    return changed


@njit(cache=True)
def _mean(vectors: Floats, own: Ids, weights: Floats) -> Floats:
    total = np.zeros(vectors.shape[1], np.float64)
    weight = 0.0
    for i in range(len(own)):
        total += weights[own[i]] * vectors[own[i]]
        weight += weights[own[i]]
    return (total / weight).astype(np.float32)


@njit(cache=True)
def _farthest(vectors: Floats, own: Ids, mean: Floats, weights: Floats) -> int:
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
    vectors: Floats, own: Ids, mean: Floats, direction: Floats, weights: Floats
) -> Floats:
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
def _along(vector: Floats, mean: Floats, direction: Floats) -> np.float32:
    total = np.float32(0)
    for j in range(len(vector)):
        total += (vector[j] - mean[j]) * direction[j]
    return total


@njit(cache=True, fastmath={"reassoc", "contract"})
def _squared_distance(vector: Floats, mean: Floats) -> np.float32:
    total = np.float32(0)
    for j in range(len(vector)):
        total += (vector[j] - mean[j]) ** 2
    return total


def two_means_reference(
    vectors: Floats, members: Ids, starts: Ids, sizes: Ids, weights: Floats
) -> Floats:
    """Return the same places by matrix products in float64."""
    place = np.zeros(len(members))
    for start, size in zip(starts, sizes, strict=True):
        own = members[start : start + size]
        cloud, weight = vectors[own].astype(np.float64), weights[own].astype(np.float64)
        centred = cloud - weight @ cloud / weight.sum()
        direction = centred[(weight * np.square(centred).sum(1)).argmax()]
        for _ in range(_POWER_STEPS):
            direction = (weight * (centred @ direction)) @ centred
            direction /= max(float(np.linalg.norm(direction)), _SMALLEST)
        found = centred @ direction
        for _ in range(_MEAN_STEPS):
            right = found > 0
            if right.all() or not right.any():
                break
            low, high = (weight[s] @ cloud[s] / weight[s].sum() for s in (~right, right))
            found = (cloud - (low + high) / 2) @ (high - low)
            if np.array_equal(found > 0, right):
                break
        place[start : start + size] = found
    return place.astype(np.float32)
