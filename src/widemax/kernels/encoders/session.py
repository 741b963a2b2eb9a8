"""Self-attention within each row of a batch, of which only a weighted mean is wanted.

Per row: h [L, D] are states, Q_i and K_i the queries and keys of head i, q [D] weighs the places,
u_i [D] is what head i makes of q. A_i = softmax over m of Q_i·K_iᵀ / √d, and a = softmax over l of
h_l·q + Σ_i Σ_m A_i[l, m]·(h_m·u_i). Attention is kept as its transpose, m by l, with columns in
whole registers.
"""

from __future__ import annotations

import math

import numpy as np

from widemax.kernels.compiling import njit
from widemax.kernels.curves import exp
from widemax.kernels.encoders.register_rows import (
    copy,
    dots,
    fill,
    room_for,
    sum_four_by_column,
    sum_four_rows,
    sum_rows,
    weighted,
    whole,
)
from widemax.kernels.encoders.rows import Ids, Matrix, softmax
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


@njit(cache=True, nogil=True)
def pooled_sessions(
    states: Matrix, projected: Matrix, lengths: Ids, queries: Matrix, by_value: Matrix
) -> tuple[Matrix, Matrix, Matrix, Matrix]:
    """Return Σ_l a_l·h_l [B, D], Σ_l a_l·(A_i·h)_l [B, heads, D], all A and a [B, L].

    ``states`` are [B, L, D], ``projected`` [B, L, 2·D] has the queries of all heads, then their
    keys; ``lengths`` [B] say how many places of a row count, ``queries`` [B, D] are q and
    ``by_value`` [B, heads, D] the u_i. ``attention_pool`` of a ``SelfAttention`` is the reference.

    >>> states = np.array([[[1, 0], [0, 1]]], np.float32)
    >>> zeros, two = np.zeros((1, 2, 4), np.float32), np.array([2])
    >>> query, by_value = np.zeros((1, 2), np.float32), np.zeros((1, 1, 2), np.float32)
    >>> pooled, mixed, attention, weights = pooled_sessions(states, zeros, two, query, by_value)
    >>> pooled.tolist(), mixed.tolist(), weights.tolist()
    ([[0.5, 0.5]], [[[0.5, 0.5]]], [[0.5, 0.5]])
    """
    (rows, width, dimension), heads = states.shape, by_value.shape[1]
    size, places = dimension // heads, whole(width)
    scale = spread(_f(1 / math.sqrt(size)))
    pooled, mixed = np.zeros_like(queries), np.zeros_like(by_value)
    attention = np.empty((rows, heads, width, places), np.float32)  # up to each length
    weights = np.zeros((rows, width), np.float32)
    own = room_for(places, whole(dimension))
    # The query, what the heads make of it, and a sum.
    vectors = room_for(heads + 2, whole(dimension))
    asked = room_for(places, whole(size))
    keys = room_for(places, whole(size))
    seen = room_for(places, places)
    scores, values = room_for(1, places), room_for(1, places)
    for row in range(rows):
        length = lengths[row]
        if not length:
            continue
        fill(own, states[row], 0, dimension, length)
        copy(vectors, 0, 0, queries, row, 0, dimension)
        dots(scores, 0, own, length, vectors, 0)
        for head in range(heads):
            copy(vectors, 1 + head, 0, by_value[row], head, 0, dimension)
            fill(asked, projected[row], head * size, size, length)
            fill(keys, projected[row], dimension + head * size, size, length)
            for m in range(length):
                dots(seen, m, asked, length, keys, m)
            for at in range(0, length, LANES):
                _softmax_columns(seen, at, length, scale)
            for m in range(length):
                copy(attention[row, head], m, 0, seen, m, 0, places)
            dots(values, 0, own, length, vectors, 1 + head)
            for at in range(0, length, LANES):
                store(
                    scores, 0, at, add(load(scores, 0, at), weighted(seen, at, values, 0, length))
                )
        softmax(scores[0, :length], scores[0, :length])
        for at in range(length, places):
            scores[0, at] = 0
        copy(weights, row, 0, scores, 0, 0, width)
        sum_rows(vectors, heads + 1, own, scores, 0, length)
        copy(pooled, row, 0, vectors, heads + 1, 0, dimension)
        for head in range(heads):
            fill(seen, attention[row, head], 0, places, length)
            dots(values, 0, seen, length, scores, 0)
            sum_rows(vectors, heads + 1, own, values, 0, length)
            copy(mixed[row], head, 0, vectors, heads + 1, 0, dimension)
    return pooled, mixed, attention, weights


@njit(cache=True, nogil=True)
def spread_sessions(
    by_pooled: Matrix,
    by_mixed: Matrix,
    states: Matrix,
    projected: Matrix,
    lengths: Ids,
    queries: Matrix,
    by_value: Matrix,
    attention: Matrix,
    weights: Matrix,
) -> tuple[Matrix, Matrix, Matrix, Matrix]:
    """Return the gradients of states, projections, queries and u from those of both sums."""
    (rows, width, dimension), heads = states.shape, by_value.shape[1]
    size, places = dimension // heads, attention.shape[3]
    scale = spread(_f(1 / math.sqrt(size)))
    by_states, by_projected = np.empty_like(states), np.empty_like(projected)
    by_queries, by_values = np.zeros_like(queries), np.zeros_like(by_value)
    own = room_for(places, whole(dimension))
    # What the gradient of a state is a sum of, and how much of each there is in it: of the gradient
    # of the mean its weight, of the query the gradient of its score, and two for each head.
    parts = room_for(2 + 2 * heads, whole(dimension))
    shares = room_for(2 + 2 * heads, places)
    along = room_for(2 * heads, places)
    asked = room_for(places, whole(size))
    keys = room_for(places, whole(size))
    seen, by_seen = room_for(places, places), room_for(places, places)
    out = room_for(places, whole(dimension))
    asking, asked_of = room_for(places, whole(size)), room_for(places, whole(size))
    for row in range(rows):
        length = lengths[row]
        by_states[row, length:] = 0
        by_projected[row, length:] = 0
        if not length:
            continue
        fill(own, states[row], 0, dimension, length)
        copy(parts, 0, 0, by_pooled, row, 0, dimension)
        copy(parts, 1, 0, queries, row, 0, dimension)
        copy(shares, 0, 0, weights, row, 0, width)
        dots(shares, 1, own, length, parts, 0)
        for head in range(heads):
            end, start = 2 + 2 * head, 3 + 2 * head
            copy(parts, end, 0, by_mixed[row], head, 0, dimension)
            copy(parts, start, 0, by_value[row], head, 0, dimension)
            dots(along, 2 * head, own, length, parts, end)
            dots(along, 2 * head + 1, own, length, parts, start)
            for at in range(0, length, LANES):
                more = weighted(attention[row, head], at, along, 2 * head, length)
                store(shares, 1, at, add(load(shares, 1, at), more))
        level = _f(0)
        for at in range(length):
            level += shares[0, at] * shares[1, at]
        for at in range(places):
            # Behind the last place the weight is 0, and so is this.
            shares[1, at] = shares[0, at] * (shares[1, at] - level) if at < length else _f(0)
        sum_rows(out, 0, own, shares, 1, length)
        copy(by_queries, row, 0, out, 0, 0, dimension)
        for head in range(heads):
            end, start = 2 + 2 * head, 3 + 2 * head
            fill(seen, attention[row, head], 0, places, length)
            dots(shares, end, seen, length, shares, 0)
            dots(shares, start, seen, length, shares, 1)
            sum_rows(out, 0, own, shares, start, length)
            copy(by_values[row], head, 0, out, 0, 0, dimension)
            for at in range(0, length, LANES):
                _through_softmax(seen, by_seen, shares, along, 2 * head, at, length, scale)
            fill(asked, projected[row], head * size, size, length)
            fill(keys, projected[row], dimension + head * size, size, length)
            for place in range(0, length, 4):
                sum_four_by_column(asking, place, keys, by_seen, length)
                sum_four_rows(asked_of, place, asked, by_seen, length)
            first, into = head * size, by_projected[row]
            for place in range(length):
                copy(into, place, first, asking, place, 0, size)
                copy(into, place, dimension + first, asked_of, place, 0, size)
        for place in range(0, length, 4):
            sum_four_by_column(out, place, parts, shares, 2 + 2 * heads)
        for place in range(length):
            copy(by_states[row], place, 0, out, place, 0, dimension)
    return by_states, by_projected, by_queries, by_values


@njit(inline="always")
def _softmax_columns(scores: Matrix, column: int, count: int, scale: object) -> None:
    """Write the softmax over the first rows of a register of scores, times ``scale``."""
    infinite = spread(_INFINITE)
    top = load(scores, 0, column)
    for m in range(1, count):
        top = clamp(top, load(scores, m, column), infinite)
    total = spread(_f(0))
    for m in range(count):
        power = exp(multiply(subtract(load(scores, m, column), top), scale))
        store(scores, m, column, power)
        total = add(total, power)
    share = divide(spread(_ONE), total)
    for m in range(count):
        store(scores, m, column, multiply(load(scores, m, column), share))


@njit(inline="always")
def _through_softmax(
    seen: Matrix,
    by_seen: Matrix,
    shares: Matrix,
    along: Matrix,
    head: int,
    column: int,
    count: int,
    scale: object,
) -> None:
    """Write A·(g − Σ_m A·g), times ``scale``, of a register of columns; g = a_l·e_m + s_l·v_m."""
    share, by_score, level = load(shares, 0, column), load(shares, 1, column), spread(_f(0))
    for m in range(count):
        end, start = spread(peek(along, head, m)), spread(peek(along, head + 1, m))
        grad = multiply_add(share, end, multiply(by_score, start))
        store(by_seen, m, column, grad)
        level = multiply_add(load(seen, m, column), grad, level)
    for m in range(count):
        grad = subtract(load(by_seen, m, column), level)
        store(by_seen, m, column, multiply(multiply(load(seen, m, column), grad), scale))
