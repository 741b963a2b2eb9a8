"""Attention of one query over rows of a table, added up where they are."""

from __future__ import annotations

import numpy as np

from widemax.kernels.compiling import njit
from widemax.kernels.encoders.rows import Ids, Matrix, add_to, dot, softmax


@njit(cache=True, nogil=True)
def attended_rows(vectors: Matrix, places: Ids, queries: Matrix) -> tuple[Matrix, Matrix]:
    """Return Σ_l a_l·x_l of each row, [B, D], and its weights a = softmax of x_l·q, [B, L].

    x_l is the vector that ``places`` [B, L] name; -1 is nothing, and weighs 0. ``attention_pool``
    of the encoders is the reference.

    >>> places, queries = np.array([[0, -1, 1]]), np.array([[9, 9]], np.float32)
    >>> pooled, weights = attended_rows(np.eye(2, dtype=np.float32), places, queries)
    >>> pooled.tolist(), weights.tolist()
    ([[0.5, 0.5]], [[0.5, 0.0, 0.5]])
    """
    rows, width = places.shape
    pooled = np.zeros_like(queries)
    weights = np.zeros((rows, width), np.float32)
    scores = np.empty(width, np.float32)
    for row in range(rows):
        count = 0
        for place in places[row]:
            if place >= 0:
                scores[count] = dot(vectors[place], queries[row])
                count += 1
        if not count:
            continue
        softmax(scores[:count], scores[:count])
        count = 0
        for item in range(width):
            if places[row, item] >= 0:
                weights[row, item] = scores[count]
                add_to(pooled[row], scores[count], vectors[places[row, item]])
                count += 1
    return pooled, weights


@njit(cache=True, nogil=True)
def spread_attention(
    grad: Matrix, vectors: Matrix, places: Ids, queries: Matrix, pooled: Matrix, weights: Matrix
) -> tuple[Matrix, Matrix]:
    """Return the gradients of the vectors, [U, D], and of the queries, [B, D], from the pooled's.

    >>> places, queries = np.array([[0, 1]]), np.array([[0]], np.float32)
    >>> vectors, half = np.array([[1], [3]], np.float32), np.array([[0.5, 0.5]], np.float32)
    >>> one, mean = np.ones((1, 1), np.float32), np.array([[2]], np.float32)
    >>> by_vectors, by_queries = spread_attention(one, vectors, places, queries, mean, half)
    >>> by_vectors.tolist(), by_queries.tolist()  # the variance of the vectors
    ([[0.5], [0.5]], [[1.0]])
    """
    by_vectors, by_queries = np.zeros_like(vectors), np.zeros_like(queries)
    for row in range(len(places)):
        level = dot(grad[row], pooled[row])
        for item in range(places.shape[1]):
            place, weight = places[row, item], weights[row, item]
            if place >= 0:
                by_score = weight * (dot(grad[row], vectors[place]) - level)
                add_to(by_vectors[place], weight, grad[row])
                add_to(by_vectors[place], by_score, queries[row])
                add_to(by_queries[row], by_score, vectors[place])
    return by_vectors, by_queries
