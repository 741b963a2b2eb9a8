"""Self-attention within each row of a batch, of which only a weighted mean is wanted.

Per row: h [L, D] are states, Q_i and K_i the queries and keys of head i, q [D] weighs the places,
u_i [D] is what head i makes of q. A_i = softmax over m of Q_i·K_iᵀ / √d, and a = softmax over l of
h_l·q + Σ_i Σ_m A_i[l, m]·(h_m·u_i). Attention is kept as its transpose, m by l.
"""

from __future__ import annotations

import math

import numpy as np

from widemax.kernels.compiling import njit
from widemax.kernels.encoders.rows import (
    Ids,
    Matrix,
    Vector,
    add_dots,
    add_rows,
    dot,
    softmax,
    softmax_columns,
)

_f = np.float32
_ONE = _f(1)


@njit(cache=True, nogil=True)
def pooled_sessions(
    states: Matrix, projected: Matrix, lengths: Ids, queries: Matrix, by_value: Matrix
) -> tuple[Matrix, Matrix, Matrix, Matrix]:
    """Return Σ_l a_l·h_l [B, D], Σ_l a_l·(A_i·h)_l [B, heads, D], all A [B, heads, L²], a [B, L].

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
    size = dimension // heads
    scale = _f(1 / math.sqrt(size))
    pooled, mixed = np.zeros_like(queries), np.zeros_like(by_value)
    attention = np.zeros((rows, heads, width * width), np.float32)
    weights = np.zeros((rows, width), np.float32)
    asked, keys = np.empty((width, size), np.float32), np.empty((width, size), np.float32)
    tops, values = np.empty(width, np.float32), np.empty(width, np.float32)
    for row in range(rows):
        length = lengths[row]
        if not length:
            continue
        own, scores = states[row, :length], weights[row, :length]
        add_dots(scores, _ONE, own, queries[row])
        for head in range(heads):
            _read_head(projected[row], head, asked[:length], keys[:length])
            shares = attention[row, head, : length * length].reshape(length, length)
            for m in range(length):
                add_dots(shares[m], scale, asked[:length], keys[m])
            softmax_columns(shares, shares, tops)
            values[:length] = 0
            add_dots(values[:length], _ONE, own, by_value[row, head])
            add_rows(scores, values[:length], shares)
        softmax(scores, scores)
        add_rows(pooled[row], scores, own)
        for head in range(heads):
            shares = attention[row, head, : length * length].reshape(length, length)
            values[:length] = 0
            add_dots(values[:length], _ONE, shares, scores)
            add_rows(mixed[row, head], values[:length], own)
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
    size = dimension // heads
    scale = _f(1 / math.sqrt(size))
    by_states, by_projected = np.zeros_like(states), np.zeros_like(projected)
    by_queries, by_values = np.zeros_like(queries), np.zeros_like(by_value)
    # What the gradient of a state is a sum of, and how much of each there is in it.
    parts = np.empty((2 + 2 * heads, dimension), np.float32)
    shares_of = np.zeros((2 + 2 * heads, width), np.float32)
    along = np.empty((2, heads, width), np.float32)
    asked, keys = np.empty((width, size), np.float32), np.empty((width, size), np.float32)
    room, levels = np.empty((2, width * width), np.float32), np.empty(width, np.float32)
    for row in range(rows):
        length = lengths[row]
        if not length:
            continue
        own, share = states[row, :length], weights[row, :length]
        parts[0], parts[1] = by_pooled[row], queries[row]
        shares_of[:] = 0
        along[:] = 0
        by_score = shares_of[1, :length]
        add_dots(by_score, _ONE, own, by_pooled[row])
        for head in range(heads):
            parts[2 + 2 * head], parts[3 + 2 * head] = by_mixed[row, head], by_value[row, head]
            seen = attention[row, head, : length * length].reshape(length, length)
            add_dots(along[0, head, :length], _ONE, own, by_mixed[row, head])
            add_dots(along[1, head, :length], _ONE, own, by_value[row, head])
            add_rows(by_score, along[0, head, :length], seen)
        level = dot(share, by_score)
        for place in range(length):
            by_score[place] = share[place] * (by_score[place] - level)
        shares_of[0, :length] = share
        add_rows(by_queries[row], by_score, own)
        for head in range(heads):
            seen = attention[row, head, : length * length].reshape(length, length)
            add_dots(shares_of[2 + 2 * head, :length], _ONE, seen, share)
            add_dots(shares_of[3 + 2 * head, :length], _ONE, seen, by_score)
            add_rows(by_values[row, head], shares_of[3 + 2 * head, :length], own)
            by_seen = room[0, : length * length].reshape(length, length)
            ends, starts = along[0, head, :length], along[1, head, :length]
            _through_softmax(seen, share, by_score, ends, starts, levels[:length], by_seen)
            turned = room[1, : length * length].reshape(length, length)
            turned[:] = by_seen.T
            by_seen *= scale
            turned *= scale
            _read_head(projected[row], head, asked[:length], keys[:length])
            first = head * size
            for place in range(length):
                into = by_projected[row, place]
                add_rows(into[first : first + size], turned[place], keys[:length])
                first_key = dimension + first
                add_rows(into[first_key : first_key + size], by_seen[place], asked[:length])
        for place in range(length):
            add_rows(by_states[row, place], shares_of[:, place].copy(), parts)
    return by_states, by_projected, by_queries, by_values


@njit(cache=True, nogil=True)
def _read_head(projected: Matrix, head: int, asked: Matrix, keys: Matrix) -> None:
    """Copy the queries and keys of one head, so that they stand row after row."""
    length, size = keys.shape
    first, dimension = head * size, projected.shape[1] // 2
    for place in range(length):
        asked[place] = projected[place, first : first + size]
        keys[place] = projected[place, dimension + first : dimension + first + size]


@njit(cache=True, nogil=True)
def _through_softmax(
    seen: Matrix,
    share: Vector,
    by_score: Vector,
    ends: Vector,
    starts: Vector,
    levels: Vector,
    by_seen: Matrix,
) -> None:
    """Write A·(g − Σ_m A·g) of each column l, where g = a_l·e_m + s_l·v_m."""
    levels[:] = 0
    for m in range(len(seen)):
        for place in range(len(levels)):
            grad = share[place] * ends[m] + by_score[place] * starts[m]
            by_seen[m, place] = grad
        for place in range(len(levels)):
            levels[place] += seen[m, place] * by_seen[m, place]
    for m in range(len(seen)):
        for place in range(len(levels)):
            by_seen[m, place] = seen[m, place] * (by_seen[m, place] - levels[place])
