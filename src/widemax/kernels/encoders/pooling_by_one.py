"""Attention of one query over rows of a table where it is the same for all users.

What an item scores then depends on the item alone: it is computed once, however many users have it,
and so is what comes of it in the gradients. Vectors are whole registers, and read where they lie.
The names are those of ``widemax.kernels.encoders.pooling``, whose functions for a query of each
user are the reference.
"""

from __future__ import annotations

import numpy as np

from widemax.kernels.compiling import njit
from widemax.kernels.encoders.register_rows import copy, dots, room_for, softmax_row, whole
from widemax.kernels.encoders.rows import Ids, Matrix, dot
from widemax.kernels.models.prefetch import prefetch_row
from widemax.kernels.registers import (
    LANES,
    add,
    load,
    multiply_add,
    peek,
    spread,
    store,
    store_sums,
    unowned,
)

_f = np.float32


@njit(cache=True, nogil=True)
def attend_by_one(
    vectors: Matrix, places: Ids, query: Matrix, pooled: Matrix, weights: Matrix
) -> None:
    """Write Σ_l a_l·x_l to ``pooled`` [B, D] and a to ``weights`` [B, L], which are zeros before.

    >>> vectors, query = np.zeros((2, LANES), np.float32), np.ones((1, LANES), np.float32)
    >>> vectors[0] = 2
    >>> pooled, weights = np.zeros((1, LANES), np.float32), np.zeros((1, 3), np.float32)
    >>> attend_by_one(vectors, np.array([[0, -1, 0]]), query, pooled, weights)
    >>> pooled[0, :2].tolist(), weights.tolist()
    ([2.0, 2.0], [[0.5, 0.0, 0.5]])
    """
    scores = _scores_of_all(vectors, query)
    width = places.shape[1]
    known, own = room_for(1, whole(width)), room_for(1, whole(width))
    named = np.empty(width, np.int64)
    _attend(vectors, places, scores, pooled, weights, known, own, named)


@njit(cache=True, nogil=True)
def _scores_of_all(vectors: Matrix, query: Matrix) -> Matrix:
    """Return the product of each vector with the query, [1, U] and a little more."""
    count, size = vectors.shape
    scores, rest, last = room_for(1, whole(count)), room_for(4, size), room_for(1, LANES)
    fours = count - count % 4
    dots(scores, 0, vectors, fours, query, 0)
    for row in range(fours, count):
        copy(rest, row - fours, 0, vectors, row, 0, size)
    dots(last, 0, rest, count - fours, query, 0)
    for row in range(fours, count):
        scores[0, row] = last[0, row - fours]
    return scores


@njit(cache=True, nogil=True)
def _attend(
    vectors: Matrix, places: Ids, scores: Matrix, pooled: Matrix, weights: Matrix, known: Matrix,
    own: Matrix, named: Ids,
) -> None:  # fmt: skip
    vectors, places, scores, pooled = unowned(vectors, places, scores, pooled)
    weights, known, own, named = unowned(weights, known, own, named)
    (rows, width), size = places.shape, vectors.shape[1]
    for row in range(rows):
        count = 0
        for item in range(width):
            place = places[row, item]
            if row + 1 < rows:
                prefetch_row(vectors, places[row + 1, item], size)
            if place >= 0:
                named[count], known[0, count] = place, scores[0, place]
                count += 1
        if not count:
            continue
        softmax_row(known, own, 0, count)
        for j in range(0, size, LANES):
            one, two = spread(_f(0)), spread(_f(0))
            for i in range(0, count - 1, 2):
                # Two sums that do not wait for each other.
                one = multiply_add(spread(peek(own, 0, i)), load(vectors, named[i], j), one)
                two = multiply_add(spread(peek(own, 0, i + 1)), load(vectors, named[i + 1], j), two)
            if count % 2:
                last = count - 1
                one = multiply_add(spread(peek(own, 0, last)), load(vectors, named[last], j), one)
            store(pooled, row, j, add(one, two))
        count = 0
        for item in range(width):
            if places[row, item] >= 0:
                weights[row, item] = own[0, count]
                count += 1


@njit(cache=True, nogil=True)
def spread_by_one(
    grad: Matrix, vectors: Matrix, places: Ids, query: Matrix, pooled: Matrix, weights: Matrix,
    by_vectors: Matrix, by_query: Matrix,
) -> None:  # fmt: skip
    """Add the gradients of the vectors, [U, D], and of the query, [1, D].

    >>> vectors, query = np.zeros((2, LANES), np.float32), np.zeros((1, LANES), np.float32)
    >>> vectors[:, 0] = 1, 3
    >>> grad, pooled = np.zeros_like(query), np.zeros_like(query)
    >>> grad[0, 0], pooled[0, 0] = 1, 2
    >>> half, found = np.array([[0.5, 0.5]], np.float32), (0 * vectors, 0 * query)
    >>> spread_by_one(grad, vectors, np.array([[0, 1]]), query, pooled, half, *found)
    >>> found[0][:, 0].tolist(), float(found[1][0, 0])  # the variance of the vectors
    ([0.5, 0.5], 1.0)
    """
    width = places.shape[1]
    named, own, along = np.empty(whole(width), np.int64), room_for(1, width), room_for(1, width + 4)
    by_scores = np.zeros((1, len(vectors)), np.float32)
    _spread(
        grad, vectors, places, query, pooled, weights, by_vectors, by_query, named, own, along,
        by_scores,
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _spread(
    grad: Matrix, vectors: Matrix, places: Ids, query: Matrix, pooled: Matrix, weights: Matrix,
    by_vectors: Matrix, by_query: Matrix, named: Ids, own: Matrix, along: Matrix, by_scores: Matrix,
) -> None:  # fmt: skip
    grad, vectors, places, query = unowned(grad, vectors, places, query)
    pooled, weights, by_vectors, by_query = unowned(pooled, weights, by_vectors, by_query)
    named, own, along, by_scores = unowned(named, own, along, by_scores)
    (rows, width), size = places.shape, vectors.shape[1]
    for row in range(rows):
        count = 0
        for item in range(width):
            place = places[row, item]
            if row + 1 < rows:
                prefetch_row(vectors, places[row + 1, item], size)
            if place >= 0:
                named[count], own[0, count] = place, weights[row, item]
                count += 1
        if not count:
            continue
        for i in range(count, whole(count)):
            named[i] = named[0]  # vectors are read in fours
        for i in range(0, count, 4):
            a, b, c, d = spread(_f(0)), spread(_f(0)), spread(_f(0)), spread(_f(0))
            for j in range(0, size, LANES):
                factor = load(grad, row, j)
                a = multiply_add(load(vectors, named[i], j), factor, a)
                b = multiply_add(load(vectors, named[i + 1], j), factor, b)
                c = multiply_add(load(vectors, named[i + 2], j), factor, c)
                d = multiply_add(load(vectors, named[i + 3], j), factor, d)
            store_sums(along, 0, i, a, b, c, d)
        level = dot(grad[row], pooled[row])
        for i in range(count):
            place, weight = named[i], peek(own, 0, i)
            by_scores[0, place] += weight * (peek(along, 0, i) - level)
            for j in range(0, size, LANES):
                total = load(by_vectors, place, j)
                total = multiply_add(spread(weight), load(grad, row, j), total)
                store(by_vectors, place, j, total)
    for place in range(len(vectors)):
        by_score = spread(peek(by_scores, 0, place))
        for j in range(0, size, LANES):
            total = multiply_add(by_score, load(query, 0, j), load(by_vectors, place, j))
            store(by_vectors, place, j, total)
            of_query = multiply_add(by_score, load(vectors, place, j), load(by_query, 0, j))
            store(by_query, 0, j, of_query)
