"""All that a user's two halves go through between the LSTM and the gate, in one call.

Between two calls a processor comes back to code of torch and Python that the data of a kernel has
pushed out of its caches: many short calls then cost more than the work. Rows of sessions, the last
items of a user, stand in the order of ``longest_first``; all others as they were given. D is a
multiple of ``WIDTH``, and D / heads of ``LANES``.
"""

from __future__ import annotations

import numpy as np

from widemax.kernels.compiling import njit
from widemax.kernels.encoders.gate import bend_half, mix_halves
from widemax.kernels.encoders.pooling import attended_rows
from widemax.kernels.encoders.register_rows import copy, room_for, space_for, whole
from widemax.kernels.encoders.rows import Ids, Matrix, Vector
from widemax.kernels.encoders.session import pool_into
from widemax.kernels.models.prefetch import prefetch_row
from widemax.kernels.products import multiplied, panels_of, summed_over_rows
from widemax.kernels.registers import unowned
from widemax.kernels.tiles import HEIGHT

_f = np.float32
_AHEAD = 8  # rows: so long before its turn one is asked for

OfSessions = tuple[Matrix, ...]
OfHalves = tuple[Matrix, ...]


@njit(cache=True, nogil=True)
def longest_first(places: Ids) -> tuple[Ids, Ids, Ids]:
    """Return rows [B, L] in falling order of their lengths, these, and where each row was.

    Places are -1 behind the last of a row. A step of a recurrence then is over the first rows only.

    >>> longest_first(np.array([[7, -1], [5, 6]]))[2].tolist()
    [1, 0]
    """
    rows, width = places.shape
    missing = np.zeros(rows, np.int64)
    starts = np.zeros(width + 2, np.int64)
    for row in range(rows):
        for place in range(width):
            missing[row] += places[row, place] < 0
        starts[missing[row] + 1] += 1
    starts = starts.cumsum()
    in_order, lengths = np.empty_like(places), np.empty(rows, np.int64)
    order = np.empty(rows, np.int64)
    for row in range(rows):
        place = starts[missing[row]]
        starts[missing[row]] += 1
        order[place], lengths[place], in_order[place] = row, width - missing[row], places[row]
    return in_order, lengths, order


@njit(cache=True, nogil=True)
def rows_of(table: Matrix, ids: Ids) -> Matrix:
    """Return the rows of a table that ids name, [U, D], each asked for before its turn.

    >>> rows_of(np.eye(2, dtype=np.float32), np.array([1, 0])).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    rows = space_for(len(ids), table.shape[1])
    _copy_rows(table, ids, rows)
    return rows


@njit(cache=True, nogil=True)
def _copy_rows(table: Matrix, ids: Ids, rows: Matrix) -> None:
    table, ids, rows = unowned(table, ids, rows)
    size = table.shape[1]
    for row in range(len(ids)):
        if row + _AHEAD < len(ids):
            prefetch_row(table, ids[row + _AHEAD], size)
        copy(rows, row, 0, table, ids[row], 0, size)


@njit(cache=True, nogil=True)
def fuse_halves(
    vectors: Matrix, before: Ids, query: Matrix, states: Matrix, lengths: Ids, order: Ids,
    heads: int, attention: Matrix, output: Matrix, summary: Matrix, summary_bias: Vector,
    gate: Matrix, gate_bias: Vector,
) -> tuple[Matrix, OfSessions, OfHalves]:  # fmt: skip
    """Return the users' vectors [B, D], and what ``spread_halves`` needs besides.

    ``states`` [B·L, D] are those of the sessions, which attend by ``attention`` [3·D, D] and
    ``output`` [D, D]; ``before`` [B, H] are places among ``vectors`` of what came before them, -1
    for none. ``query`` is [B, D], or [1, D] for all; ``summary`` [D, D] and ``gate`` [D, 3·D] are
    the maps of ``widemax.encoders.gate``.
    """
    rows, size = len(order), vectors.shape[1]
    session, of_sessions = _pool_sessions(
        query[order] if len(query) > 1 else query, states, lengths, heads, attention, output
    )
    short, halves, hidden = space_for(rows, size), space_for(rows, 2 * size), space_for(rows, size)
    for place in range(rows):
        short[order[place]] = session[place]
    pooled, weights = attended_rows(vectors, before, query)
    bend_half(short, multiplied(pooled, summary.T), summary_bias.reshape(1, size), halves)
    asked = multiplied(query, np.ascontiguousarray(gate[:, :size]).T) + gate_bias
    gates = multiplied(halves, np.ascontiguousarray(gate[:, size:]).T)
    mix_halves(halves, asked, gates, hidden)
    return hidden, of_sessions, (pooled, weights, halves, gates)


@njit(cache=True, nogil=True)
def _pool_sessions(
    query: Matrix, states: Matrix, lengths: Ids, heads: int, attention: Matrix, output: Matrix
) -> tuple[Matrix, OfSessions]:
    """Return the weighted mean of what attention makes of each session, [B, D]."""
    rows, size = len(lengths), states.shape[1]
    width = len(states) // rows
    maps = _head_maps(attention[2 * size :], np.ascontiguousarray(output.T), heads)
    by_value = multiplied(query, maps.T).reshape(len(query), heads, size)
    by_head = by_each_head(attention[: 2 * size], heads)
    if rows % HEIGHT:
        states = np.concatenate((states, room_for(-rows % HEIGHT * width, size)))
    session, mixed = room_for(rows, size), room_for(rows, heads * size)
    shares = space_for(rows * heads * width, whole(width)).reshape(rows, heads, width, whole(width))
    weights, projected = space_for(rows, whole(width)), space_for(len(states), 2 * size)
    pool_into(
        states, panels_of(by_head.T), lengths, query, by_value, _f((size // heads) ** -0.5),
        session, mixed.reshape(rows, heads, size), shares, weights, projected,
    )  # fmt: skip
    # The mean of what is mapped is the mean, mapped.
    session += multiplied(mixed, maps)
    return session, (query, states, maps, by_head, by_value, mixed, shares, weights, projected)


@njit(cache=True, nogil=True)
def _head_maps(values: Matrix, outputs: Matrix, heads: int) -> Matrix:
    """Return what the mean of each head adds to the output, [heads·D, D], if multiplied by it."""
    dimension = values.shape[1]
    size = dimension // heads
    maps = space_for(heads * dimension, dimension)
    for head in range(heads):
        own = slice(head * size, (head + 1) * size)
        maps[head * dimension : (head + 1) * dimension] = summed_over_rows(
            values[own], outputs[own]
        )
    return maps


@njit(cache=True, nogil=True)
def by_each_head(weight: Matrix, heads: int) -> Matrix:
    """Return rows of [queries of all heads, keys of all heads] as [query, key] of each head.

    >>> weight = np.arange(4, dtype=np.float32).reshape(4, 1)
    >>> by_each_head(weight, 2)[:, 0].tolist()
    [0.0, 2.0, 1.0, 3.0]
    """
    size = len(weight) // (2 * heads)
    by_head = np.empty_like(weight)
    for head in range(heads):
        for kind in range(2):
            to, of = (2 * head + kind) * size, (kind * heads + head) * size
            by_head[to : to + size] = weight[of : of + size]
    return by_head
