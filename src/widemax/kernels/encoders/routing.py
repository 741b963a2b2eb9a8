"""Dynamic routing of the items of each user to their interests, and sums of rows by its weights."""

from __future__ import annotations

import math

import numpy as np

from widemax.kernels.compiling import njit
from widemax.kernels.encoders.rows import Ids, Matrix, add_dots, add_rows, dot, softmax_columns

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
    interests, dimension = routing.shape[1], mapped.shape[1]
    weights = np.zeros((rows, width, interests), np.float32)
    room = np.empty((2, interests * width), np.float32)
    tops = np.empty(width, np.float32)
    items = np.empty((width, dimension), np.float32)
    total = np.empty(dimension, np.float32)
    for row in range(rows):
        length, count = lengths[row], counts[row]
        if not length:
            continue
        # By interest, so that what neighbouring items weigh stands side by side.
        logits = room[0, : count * length].reshape(count, length)
        shares = room[1, : count * length].reshape(count, length)
        for place in range(length):
            items[place] = mapped[places[row, place]]
            logits[:, place] = routing[(length - 1 - place) % len(routing), :count]
        for _ in range(iterations - 1):
            softmax_columns(logits, shares, tops)
            for k in range(count):
                total[:] = 0
                add_rows(total, shares[k], items[:length])
                norm = math.sqrt(dot(total, total))
                add_dots(logits[k], _f(norm / (1 + norm * norm)), items[:length], total)
        softmax_columns(logits, shares, tops)
        weights[row, :length, :count] = shares.T
    return weights


@njit(cache=True, nogil=True)
def weighted_sums(vectors: Matrix, places: Ids, lengths: Ids, weights: Matrix) -> Matrix:
    """Return Σ_l w_lk · vector(place l) for each user and interest, [B, K, D].

    >>> places, two = np.array([[0, 1]]), np.array([2])
    >>> weights = np.array([[[1, 0], [2, 3]]], np.float32)
    >>> weighted_sums(np.eye(2, dtype=np.float32), places, two, weights).tolist()
    [[[1.0, 2.0], [0.0, 3.0]]]
    """
    rows, width, interests = weights.shape
    sums = np.zeros((rows, interests, vectors.shape[1]), np.float32)
    items = np.empty((width, vectors.shape[1]), np.float32)
    shares = np.empty((interests, width), np.float32)
    for row in range(rows):
        length = lengths[row]
        for place in range(length):
            items[place] = vectors[places[row, place]]
        shares[:, :length] = weights[row, :length].T
        for k in range(interests):
            add_rows(sums[row, k], shares[k, :length], items[:length])
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
            add_rows(by_vectors[places[row, place]], weights[row, place], grad[row])
    return by_vectors
