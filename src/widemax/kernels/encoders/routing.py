"""Dynamic routing of the items of each user to their interests, and sums of rows by its weights.

Interests are taken in fours, and tables are filled with zeros to whole fours and registers: an item
is loaded once for four sums that do not wait for each other.
"""

from __future__ import annotations

import math

import numpy as np

from widemax.kernels.compiling import njit
from widemax.kernels.curves import exp
from widemax.kernels.encoders.register_rows import (
    copy,
    dots,
    four_sums,
    room_for,
    rows_apart,
    square_norms,
    whole,
)
from widemax.kernels.encoders.rows import Ids, Matrix
from widemax.kernels.registers import (
    LANES,
    add,
    clamp,
    divide,
    load,
    multiply,
    multiply_add,
    peek,
    spread,
    store,
    subtract,
)

_f = np.float32
_ONE, _INFINITE = _f(1), _f(np.inf)


@njit(inline="always")
def _in_fours(count: int) -> int:
    return -(-count // 4) * 4


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
    (rows, width), dimension = places.shape, mapped.shape[1]
    interests = routing.shape[1]
    weights = np.zeros((rows, width, interests), np.float32)
    items = room_for(whole(width), whole(dimension))
    totals = room_for(_in_fours(interests), whole(dimension))
    squares = room_for(1, _in_fours(interests))
    # By interest, so that what neighbouring items weigh stands side by side.
    logits = room_for(interests, whole(width))
    fits = room_for(interests, whole(width))
    shares = room_for(_in_fours(interests), whole(width))
    for row in range(rows):
        length, count = lengths[row], counts[row]
        if not length:
            continue
        for place in range(length):
            copy(items, place, 0, mapped, places[row, place], 0, dimension)
            start = (length - 1 - place) % len(routing)
            for k in range(count):
                logits[k, place] = routing[start, k]
        for _ in range(iterations - 1):
            for at in range(0, length, LANES):
                _softmax_columns(logits, shares, at, count)
            for k in range(0, count, 4):
                for j in range(0, items.shape[1], LANES):
                    four_sums(totals, k, j, items, shares, length)
                square_norms(squares, k, totals)
            for k in range(count):
                norm = math.sqrt(squares[0, k])
                factor = spread(_f(norm / (1 + norm * norm)))
                dots(fits, k, items, length, totals, k)
                for at in range(0, length, LANES):
                    more = multiply_add(load(fits, k, at), factor, load(logits, k, at))
                    store(logits, k, at, more)
        for at in range(0, length, LANES):
            _softmax_columns(logits, shares, at, count)
        for place in range(length):
            for k in range(count):
                weights[row, place, k] = shares[k, place]
    return weights


@njit(cache=True, nogil=True)
def weighted_sums(vectors: Matrix, places: Ids, lengths: Ids, weights: Matrix) -> Matrix:
    """Return Σ_l w_lk · vector(place l) for each user and interest, [B, K, D].

    >>> places, two = np.array([[0, 1]]), np.array([2])
    >>> weights = np.array([[[1, 0], [2, 3]]], np.float32)
    >>> weighted_sums(np.eye(2, dtype=np.float32), places, two, weights).tolist()
    [[[1.0, 2.0], [0.0, 3.0]]]
    """
    (rows, width, interests), dimension = weights.shape, vectors.shape[1]
    sums = np.zeros((rows, interests, dimension), np.float32)
    items = room_for(width, whole(dimension))
    shares = room_for(_in_fours(interests), whole(width))
    totals = room_for(_in_fours(interests), whole(dimension))
    for row in range(rows):
        length = lengths[row]
        for place in range(length):
            copy(items, place, 0, vectors, places[row, place], 0, dimension)
            for k in range(interests):
                shares[k, place] = weights[row, place, k]
        for k in range(0, interests, 4):
            for j in range(0, items.shape[1], LANES):
                four_sums(totals, k, j, items, shares, length)
        for k in range(interests):
            copy(sums[row], k, 0, totals, k, 0, dimension)
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
    rows, interests, dimension = grad.shape
    by_vectors = rows_apart(num_vectors, dimension)
    own = room_for(interests, whole(dimension))
    for row in range(rows):
        for k in range(interests):
            copy(own, k, 0, grad[row], k, 0, dimension)
        shares = weights[row]
        for place in range(lengths[row]):
            vector = places[row, place]
            for j in range(0, own.shape[1], LANES):
                total = load(by_vectors, vector, j)
                for k in range(interests):
                    total = multiply_add(spread(peek(shares, place, k)), load(own, k, j), total)
                store(by_vectors, vector, j, total)
    return by_vectors[:, :dimension]


@njit(inline="always")
def _softmax_columns(logits: Matrix, shares: Matrix, column: int, count: int) -> None:
    """Write the softmax over the first rows of a register of logits."""
    infinite = spread(_INFINITE)
    top = load(logits, 0, column)
    for k in range(1, count):
        top = clamp(top, load(logits, k, column), infinite)
    total = spread(_f(0))
    for k in range(count):
        power = exp(subtract(load(logits, k, column), top))
        store(shares, k, column, power)
        total = add(total, power)
    share = divide(spread(_ONE), total)
    for k in range(count):
        store(shares, k, column, multiply(load(shares, k, column), share))
