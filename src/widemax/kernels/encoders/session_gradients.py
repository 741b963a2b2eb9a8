"""The gradients of self-attention within each row of a batch, of which a weighted mean was wanted.

The names are those of ``widemax.kernels.encoders.session``, and so is what is kept of each row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from widemax.kernels.compiling import njit
from widemax.kernels.encoders.register_rows import (
    clear,
    copy,
    dots,
    fill,
    room_for,
    sum_four_by_column,
    sum_four_rows,
    sum_rows,
    weighted,
)
from widemax.kernels.encoders.rows import Ids, Matrix
from widemax.kernels.models.prefetch import prefetch_row
from widemax.kernels.registers import (
    LANES,
    add,
    load,
    multiply,
    multiply_add,
    peek,
    spread,
    store,
    subtract,
    unowned,
)
from widemax.kernels.tiles import HEIGHT, WIDTH, multiply_tile

_f = np.float32
_AHEAD = 2  # sessions: so long before its turn one is asked for
SPARE = 4
"""Rows behind the last session, for what is written in fours."""

_multiply: Any = multiply_tile  # numba's own type counts the argument that it adds


def spread_sessions(
    by_pooled: Matrix,
    by_mixed: Matrix,
    states: Matrix,
    weight: Matrix,
    lengths: Ids,
    queries: Matrix,
    by_value: Matrix,
    scale: float,
    attention: Matrix,
    weights: Matrix,
    projected: Matrix,
) -> list[Matrix]:
    """Return the gradients of states, weight, queries and u from those of both sums.

    All else is as ``pooled_sessions`` takes and returns it. Those of queries and u are for each
    row, also where one stands for all.
    """
    rows, heads, dimension = by_mixed.shape
    by_states = torch.empty(len(states) + SPARE, dimension)
    by_weight = torch.zeros(len(weight), dimension)
    by_queries, by_values = torch.zeros(rows, dimension), torch.zeros(rows, heads, dimension)
    found = [each.numpy() for each in (by_states, by_weight, by_queries, by_values)]
    given = (states, weight, lengths, queries, by_value, _f(scale), attention, weights, projected)
    spread_into(by_pooled, by_mixed, *given, *found)
    return [found[0][: len(states)], *found[1:]]


@njit(cache=True, nogil=True)
def spread_into(
    by_pooled: Matrix, by_mixed: Matrix, states: Matrix, weight: Matrix, lengths: Ids,
    queries: Matrix, by_value: Matrix, scale: np.float32, attention: Matrix, weights: Matrix,
    projected: Matrix, by_states: Matrix, by_weight: Matrix, by_queries: Matrix, by_values: Matrix,
) -> None:  # fmt: skip
    """Do what ``spread_sessions`` does; all from ``by_states`` is written.

    That has ``SPARE`` rows more than the states, all others are zeros before.
    """
    (heads, dimension), (width, places) = by_value.shape[1:], attention.shape[2:]
    # What the gradient of a state is a sum of, and how much of each there is in it: of the gradient
    # of the mean its weight, of the query the gradient of its score, and two for each head.
    parts, shares = room_for(2 + 2 * heads, dimension), room_for(2 + 2 * heads, places)
    own, along = room_for(places, dimension), room_for(2 * heads, places)
    seen, by_seen = room_for(places, places), room_for(places, places)
    # Of the queries and keys of a few rows.
    by_projected = room_for(HEIGHT * width + SPARE, len(weight))
    _spread_rows(
        by_pooled, by_mixed, states, weight, lengths, queries, by_value, scale, attention, weights,
        projected, by_states, by_weight, by_queries, by_values, parts, shares, own, along, seen,
        by_seen, by_projected,
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _spread_rows(
    by_pooled: Matrix, by_mixed: Matrix, states: Matrix, weight: Matrix, lengths: Ids,
    queries: Matrix, by_value: Matrix, scale: np.float32, attention: Matrix, weights: Matrix,
    projected: Matrix, by_states: Matrix, by_weight: Matrix, by_queries: Matrix, by_values: Matrix,
    parts: Matrix, shares: Matrix, own: Matrix, along: Matrix, seen: Matrix, by_seen: Matrix,
    by_projected: Matrix,
) -> None:  # fmt: skip
    (heads, dimension), (width, places) = by_value.shape[1:], attention.shape[2:]
    size = len(weight) // (2 * heads)
    by_pooled, by_mixed, states, weight = unowned(by_pooled, by_mixed, states, weight)
    lengths, queries, by_value, attention = unowned(lengths, queries, by_value, attention)
    weights, projected, by_states = unowned(weights, projected, by_states)
    by_weight, by_queries, by_values = unowned(by_weight, by_queries, by_values)
    parts, shares, own, along = unowned(parts, shares, own, along)
    seen, by_seen, by_projected = unowned(seen, by_seen, by_projected)
    for row in range(len(lengths)):
        start, length = row * width, lengths[row]
        first = row % HEIGHT * width
        for place in range(start, start + width):
            if place + _AHEAD * width < len(states):
                prefetch_row(states, place + _AHEAD * width, dimension)
                prefetch_row(projected, place + _AHEAD * width, projected.shape[1])
        if row % HEIGHT == 0 and row + HEIGHT > len(lengths):
            by_projected[:] = 0  # of the sessions that are missing
        if length:
            of = row if len(queries) > 1 else 0
            fill(own, states, start, 0, dimension, length)
            copy(parts, 0, 0, by_pooled, row, 0, dimension)
            copy(parts, 1, 0, queries, of, 0, dimension)
            copy(shares, 0, 0, weights, row, 0, places)
            dots(shares, 1, own, length, parts, 0)
            for head in range(heads):
                end, begin = 2 + 2 * head, 3 + 2 * head
                copy(parts, end, 0, by_mixed[row], head, 0, dimension)
                copy(parts, begin, 0, by_value[of], head, 0, dimension)
                dots(along, 2 * head, own, length, parts, end)
                dots(along, 2 * head + 1, own, length, parts, begin)
                found = attention[row, head]
                for at in range(0, length, LANES):
                    more = weighted(found, at, along, 2 * head, length)
                    store(shares, 1, at, add(load(shares, 1, at), more))
            level = _f(0)
            for at in range(length):
                level += shares[0, at] * shares[1, at]
            for at in range(places):
                # Behind the last place the weight is 0, and so is this.
                shares[1, at] = shares[0, at] * (shares[1, at] - level) if at < length else _f(0)
            sum_rows(by_queries, row, own, shares, 1, length)
            for head in range(heads):
                end, begin = 2 + 2 * head, 3 + 2 * head
                fill(seen, attention[row, head], 0, 0, places, length)
                dots(shares, end, seen, length, shares, 0)
                dots(shares, begin, seen, length, shares, 1)
                sum_rows(by_values[row], head, own, shares, begin, length)
                for at in range(0, length, LANES):
                    _through_softmax(
                        seen, by_seen, shares, along, 2 * head, at, length, spread(scale)
                    )
                query, key = 2 * head * size, (2 * head + 1) * size
                asked = projected[start : start + width, query:key]
                keys = projected[start : start + width, key : key + size]
                by_asked = by_projected[first : first + width + SPARE, query:key]
                by_keys = by_projected[first : first + width + SPARE, key : key + size]
                for place in range(0, length, 4):
                    sum_four_by_column(by_asked, place, keys, by_seen, length)
                    sum_four_rows(by_keys, place, asked, by_seen, length)
            into = by_states[start : start + width + SPARE]
            for place in range(0, length, 4):
                sum_four_by_column(into, place, parts, shares, 2 + 2 * heads)
        # Of what is behind the last place nothing comes; sums were written there, in fours.
        for place in range(length, width + SPARE):
            clear(by_states, start + place)
            clear(by_projected, first + place)
        if row % HEIGHT == HEIGHT - 1 or row == len(lengths) - 1:
            begin = start - first
            _add_by_projected(begin, width, by_projected, states, weight, by_states, by_weight)


@njit(cache=True, nogil=True)
def _add_by_projected(
    first: int, width: int, by_projected: Matrix, states: Matrix, weight: Matrix,
    by_states: Matrix, by_weight: Matrix,
) -> None:  # fmt: skip
    """Add what the gradients of queries and keys of a few rows are for states and weight."""
    by_projected, states, weight = unowned(by_projected, states, weight)
    by_states, by_weight = unowned(by_states, by_weight)
    count = HEIGHT * width
    for c in range(0, states.shape[1], WIDTH):
        columns = slice(c, c + WIDTH)
        for r in range(0, count, HEIGHT):
            into = by_states[first + r : first + r + HEIGHT, columns]
            _multiply(by_projected[r : r + HEIGHT], weight[:, columns], into, True)
        for r in range(0, len(weight), HEIGHT):
            left = by_projected[:count, r : r + HEIGHT].T
            into = by_weight[r : r + HEIGHT, columns]
            _multiply(left, states[first : first + count, columns], into, True)


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
