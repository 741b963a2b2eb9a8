"""Attention of one query over rows of a table, a register at a time."""

from __future__ import annotations

import numpy as np

from widemax.kernels.compiling import njit
from widemax.kernels.encoders.pooling_by_one import attend_by_one, spread_by_one
from widemax.kernels.encoders.register_rows import (
    copy,
    dots,
    room_for,
    rows_apart,
    sum_rows,
    whole,
)
from widemax.kernels.encoders.rows import Ids, Matrix, dot, softmax
from widemax.kernels.models.prefetch import prefetch_row
from widemax.kernels.registers import LANES, load, multiply_add, spread, store, unowned


@njit(cache=True, nogil=True)
def attended_rows(vectors: Matrix, places: Ids, queries: Matrix) -> tuple[Matrix, Matrix]:
    """Return Σ_l a_l·x_l of each row, [B, D], and its weights a = softmax of x_l·q, [B, L].

    x_l is the vector that ``places`` [B, L] name; -1 is nothing, and weighs 0. ``queries`` are
    [B, D], or [1, D] for all rows. ``attention_pool`` of the encoders is the reference.

    >>> places, queries = np.array([[0, -1, 1]]), np.array([[9, 9]], np.float32)
    >>> pooled, weights = attended_rows(np.eye(2, dtype=np.float32), places, queries)
    >>> pooled.tolist(), weights.tolist()
    ([[0.5, 0.5]], [[0.5, 0.0, 0.5]])
    """
    (rows, width), dimension = places.shape, queries.shape[1]
    pooled = np.zeros((rows, dimension), np.float32)
    weights = np.zeros((rows, width), np.float32)
    if len(queries) == 1 and not dimension % LANES:
        attend_by_one(vectors, places, queries, pooled, weights)
        return pooled, weights
    items, scores = room_for(whole(width), whole(dimension)), room_for(1, whole(width))
    own = room_for(2, whole(dimension))
    _attend(vectors, places, queries, pooled, weights, items, scores, own)
    return pooled, weights


@njit(cache=True, nogil=True)
def _attend(
    vectors: Matrix, places: Ids, queries: Matrix, pooled: Matrix, weights: Matrix, items: Matrix,
    scores: Matrix, own: Matrix,
) -> None:  # fmt: skip
    """Do so row by row; ``own`` is room for the query and the sum."""
    vectors, places, queries, pooled = unowned(vectors, places, queries, pooled)
    weights, items, scores, own = unowned(weights, items, scores, own)
    (rows, width), dimension = places.shape, queries.shape[1]
    for row in range(rows):
        count = 0
        for item in range(width):
            place = places[row, item]
            if row + 1 < rows:
                prefetch_row(vectors, places[row + 1, item], dimension)
            if place >= 0:
                copy(items, count, 0, vectors, place, 0, dimension)
                count += 1
        if not count:
            continue
        copy(own, 0, 0, queries, row if len(queries) > 1 else 0, 0, dimension)
        dots(scores, 0, items, count, own, 0)
        softmax(scores[0, :count], scores[0, :count])
        sum_rows(own, 1, items, scores, 0, count)
        copy(pooled, row, 0, own, 1, 0, dimension)
        count = 0
        for item in range(width):
            if places[row, item] >= 0:
                weights[row, item] = scores[0, count]
                count += 1


@njit(cache=True, nogil=True)
def spread_attention(
    grad: Matrix, vectors: Matrix, places: Ids, queries: Matrix, pooled: Matrix, weights: Matrix
) -> tuple[Matrix, Matrix]:
    """Return the gradients of the vectors, [U, D], and of the queries, from the pooled's.

    Those of the queries are [B, D], where one is for all perhaps summed, [1, D].

    >>> places, queries = np.array([[0, 1]]), np.array([[0]], np.float32)
    >>> vectors, half = np.array([[1], [3]], np.float32), np.array([[0.5, 0.5]], np.float32)
    >>> one, mean = np.ones((1, 1), np.float32), np.array([[2]], np.float32)
    >>> by_vectors, by_queries = spread_attention(one, vectors, places, queries, mean, half)
    >>> by_vectors.tolist(), by_queries.tolist()  # the variance of the vectors
    ([[0.5], [0.5]], [[1.0]])
    """
    (rows, width), dimension = places.shape, queries.shape[1]
    by_vectors = rows_apart(len(vectors), dimension)
    if len(queries) == 1 and not dimension % LANES:
        by_query = np.zeros_like(queries)
        spread_by_one(grad, vectors, places, queries, pooled, weights, by_vectors, by_query)
        return by_vectors, by_query
    by_queries = np.zeros((rows, dimension), np.float32)
    items, two = room_for(whole(width), whole(dimension)), room_for(2, whole(width))
    own = room_for(3, whole(dimension))
    _spread(
        grad, vectors, places, queries, pooled, weights, by_vectors, by_queries, items, two[:1],
        two[1:], own,
    )  # fmt: skip
    return by_vectors[:, :dimension], by_queries


@njit(cache=True, nogil=True)
def _spread(
    grad: Matrix, vectors: Matrix, places: Ids, queries: Matrix, pooled: Matrix, weights: Matrix,
    by_vectors: Matrix, by_queries: Matrix, items: Matrix, along: Matrix, by_scores: Matrix,
    own: Matrix,
) -> None:  # fmt: skip
    """Do so row by row; ``own`` is room for the gradient, the query, and a sum."""
    grad, vectors, places, queries = unowned(grad, vectors, places, queries)
    pooled, weights, by_vectors, by_queries = unowned(pooled, weights, by_vectors, by_queries)
    items, along, by_scores, own = unowned(items, along, by_scores, own)
    (rows, width), dimension = places.shape, queries.shape[1]
    for row in range(rows):
        count = 0
        for item in range(width):
            place = places[row, item]
            if row + 1 < rows:
                prefetch_row(vectors, places[row + 1, item], dimension)
            if place >= 0:
                copy(items, count, 0, vectors, place, 0, dimension)
                count += 1
        if not count:
            continue
        copy(own, 0, 0, grad, row, 0, dimension)
        copy(own, 1, 0, queries, row if len(queries) > 1 else 0, 0, dimension)
        dots(along, 0, items, count, own, 0)
        level = dot(grad[row], pooled[row])
        count = 0
        for item in range(width):
            place = places[row, item]
            if place < 0:
                continue
            weight = weights[row, item]
            by_score = weight * (along[0, count] - level)
            by_scores[0, count] = by_score
            count += 1
            for j in range(0, own.shape[1], LANES):
                total = multiply_add(spread(weight), load(own, 0, j), load(by_vectors, place, j))
                total = multiply_add(spread(by_score), load(own, 1, j), total)
                store(by_vectors, place, j, total)
        sum_rows(own, 2, items, by_scores, 0, count)
        copy(by_queries, row, 0, own, 2, 0, dimension)
