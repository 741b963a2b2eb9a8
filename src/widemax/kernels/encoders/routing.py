"""Dynamic routing of the items of each user to their interests, and sums of rows by its weights."""

from __future__ import annotations

import math

import numpy as np

from widemax.kernels.compiling import njit
from widemax.kernels.encoders.rows import Ids, Matrix, add_to, dot, softmax

_f = np.float32


@njit(cache=True, nogil=True)
def routed_weights(
    mapped: Matrix, places: Ids, lengths: Ids, counts: Ids, routing: Matrix, iterations: int
) -> Matrix:
    """Return the weights of each item in each interest after the last round, [B, L, K].

    ``mapped`` [U, D] are vectors, ``places`` [B, L] say which of them each item has, ``lengths``
    and ``counts`` [B] how many items and interests a user has; all other weights are 0. Row r of
    ``routing`` [R, K] starts the logits of the item at place r from the end, modulo R.
    ``MINDEncoder`` has the formula, and the reference in torch.

    >>> one, start = np.ones((1, 2), np.float32), np.zeros((3, 2), np.float32)
    >>> two = np.array([2])
    >>> routed_weights(one, np.zeros((1, 2), np.int64), two, two, start, 3).tolist()
    [[[0.5, 0.5], [0.5, 0.5]]]
    """
    rows, width = places.shape
    interests = routing.shape[1]
    weights = np.zeros((rows, width, interests), np.float32)
    logits = np.empty((width, interests), np.float32)
    sums = np.empty((interests, mapped.shape[1]), np.float32)
    for row in range(rows):
        length, count = lengths[row], counts[row]
        for place in range(length):
            logits[place] = routing[(length - 1 - place) % len(routing)]
        for iteration in range(iterations):
            for place in range(length):
                softmax(logits[place, :count], weights[row, place, :count])
            if iteration == iterations - 1:
                break
            sums[:count] = 0
            for place in range(length):
                for k in range(count):
                    add_to(sums[k], weights[row, place, k], mapped[places[row, place]])
            for k in range(count):
                norm = math.sqrt(dot(sums[k], sums[k]))
                squashed = _f(norm / (1 + norm * norm))
                for place in range(length):
                    logits[place, k] += squashed * dot(sums[k], mapped[places[row, place]])
    return weights


@njit(cache=True, nogil=True)
def weighted_sums(vectors: Matrix, places: Ids, lengths: Ids, weights: Matrix) -> Matrix:
    """Return Σ_l w_lk · vector(place l) for each user and interest, [B, K, D].

    >>> places, two = np.array([[0, 1]]), np.array([2])
    >>> weights = np.array([[[1, 0], [2, 3]]], np.float32)
    >>> weighted_sums(np.eye(2, dtype=np.float32), places, two, weights).tolist()
    [[[1.0, 2.0], [0.0, 3.0]]]
    """
    rows, _, interests = weights.shape
    sums = np.zeros((rows, interests, vectors.shape[1]), np.float32)
    for row in range(rows):
        for place in range(lengths[row]):
            for k in range(interests):
                add_to(sums[row, k], weights[row, place, k], vectors[places[row, place]])
    return sums


@njit(cache=True, nogil=True)
def spread_sums(
    grad: Matrix, places: Ids, lengths: Ids, weights: Matrix, num_vectors: int
) -> Matrix:
    """Return the gradient of the vectors of ``weighted_sums``, [U, D], from that of the sums.

    >>> places, two = np.array([[0, 0]]), np.array([2])
    >>> weights = np.array([[[1], [2]]], np.float32)
    >>> spread_sums(np.ones((1, 1, 2), np.float32), places, two, weights, 2).tolist()
    [[3.0, 3.0], [0.0, 0.0]]
    """
    by_vectors = np.zeros((num_vectors, grad.shape[2]), np.float32)
    for row in range(len(grad)):
        for place in range(lengths[row]):
            for k in range(grad.shape[1]):
                add_to(by_vectors[places[row, place]], weights[row, place, k], grad[row, k])
    return by_vectors
