"""Self-attention within each row of a batch, of which only a weighted mean is wanted.

Per row: h [L, D] are states, Q_i and K_i the queries and keys of head i, q [D] weighs the places,
u_i [D] is what head i makes of q. A_i = softmax over m of Q_i·K_iᵀ / √d, and a = softmax over l of
h_l·q + Σ_i Σ_m A_i[l, m]·(h_m·u_i). Attention is kept as its transpose, m by l, with columns in
whole registers. Queries and keys of a few rows are multiplied out by tiles, and used at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from widemax.kernels.compiling import njit
from widemax.kernels.curves import exp
from widemax.kernels.encoders.register_rows import (
    clear,
    dots,
    fill,
    room_for,
    softmax_row,
    sum_rows,
    weighted,
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
    spread,
    store,
    subtract,
    unowned,
)
from widemax.kernels.tiles import HEIGHT, WIDTH, multiply_tile

_f = np.float32
_ONE, _INFINITE = _f(1), _f(np.inf)

_multiply: Any = multiply_tile  # numba's own type counts the argument that it adds


def pooled_sessions(
    states: Matrix, weight: Matrix, lengths: Ids, queries: Matrix, by_value: Matrix, scale: float
) -> list[Matrix]:
    """Return Σ_l a_l·h_l [B, D], Σ_l a_l·(A_i·h)_l [B, heads, D], all A, a [B, L], all Q and K.

    ``states`` [B'·L, D] are those of all rows, B' a multiple of ``HEIGHT`` and D of ``WIDTH``;
    ``lengths`` [B] say how many places of a row count. ``weight`` [heads·2·d, D] maps a state to
    the query and the key of each head, d a multiple of ``LANES``, and ``scale`` is 1 / √d of the
    model. ``queries`` [B, D] are q and ``by_value`` [B, heads, D] the u_i, of which one row may
    stand for all. ``attention_pool`` of a ``SelfAttention`` is the reference.

    >>> states, weight = np.eye(HEIGHT, WIDTH, dtype=np.float32), np.zeros((WIDTH, WIDTH))
    >>> nothing, one = np.zeros((1, 1, WIDTH), np.float32), np.array([1])
    >>> given = (states, weight.astype(np.float32), one, nothing[0], nothing, 1.0)
    >>> pooled, mixed, *_ = pooled_sessions(*given)
    >>> pooled[0, :2].tolist(), mixed[0, 0, :2].tolist()
    ([1.0, 0.0], [1.0, 0.0])
    """
    rows, (_, heads, dimension) = len(lengths), by_value.shape
    width = len(states) // _whole_rows(rows)
    panels = np.ascontiguousarray(weight.reshape(-1, WIDTH, dimension).transpose(0, 2, 1))
    # By torch, whose memory begins where a cache line does: a register then is in one line.
    pooled, mixed = torch.zeros(rows, dimension), torch.zeros(rows, heads, dimension)
    attention = torch.empty(rows, heads, width, whole(width))  # up to each length
    weights, projected = torch.empty(rows, whole(width)), torch.empty(len(states), len(weight))
    found = [each.numpy() for each in (pooled, mixed, attention, weights, projected)]
    pool_into(states, panels, lengths, queries, by_value, _f(scale), *found)
    return found


def _whole_rows(rows: int) -> int:
    return max(1, -(-rows // HEIGHT)) * HEIGHT


@njit(cache=True, nogil=True)
def pool_into(
    states: Matrix, panels: Matrix, lengths: Ids, queries: Matrix, by_value: Matrix,
    scale: np.float32, pooled: Matrix, mixed: Matrix, attention: Matrix, weights: Matrix,
    projected: Matrix,
) -> None:  # fmt: skip
    """Do what ``pooled_sessions`` does, by ``panels_of`` weightᵀ; all from ``pooled`` is written.

    ``pooled`` and ``mixed`` are zeros before.
    """
    (heads, dimension), places = by_value.shape[1:], attention.shape[3]
    own, asked = room_for(places, dimension), room_for(places, projected.shape[1] // (2 * heads))
    seen, two = room_for(places, places), room_for(2, places)
    _pool_rows(
        states, panels, lengths, queries, by_value, scale, pooled, mixed, attention, weights,
        projected, own, asked, seen, two,
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _pool_rows(
    states: Matrix, panels: Matrix, lengths: Ids, queries: Matrix, by_value: Matrix,
    scale: np.float32, pooled: Matrix, mixed: Matrix, attention: Matrix, weights: Matrix,
    projected: Matrix, own: Matrix, asked: Matrix, seen: Matrix, two: Matrix,
) -> None:  # fmt: skip
    (heads, dimension), (width, places) = by_value.shape[1:], attention.shape[2:]
    size = projected.shape[1] // (2 * heads)
    states, panels, lengths, queries, by_value = unowned(states, panels, lengths, queries, by_value)
    pooled, mixed, attention, weights = unowned(pooled, mixed, attention, weights)
    projected, own, asked, seen, two = unowned(projected, own, asked, seen, two)
    scores, values = two[:1], two[1:]
    for row in range(len(lengths)):
        start, length = row * width, lengths[row]
        if row % HEIGHT == 0:
            for c in range(len(panels)):
                for r in range(start, start + HEIGHT * width, HEIGHT):
                    into = projected[r : r + HEIGHT, c * WIDTH : (c + 1) * WIDTH]
                    _multiply(states[r : r + HEIGHT], panels[c], into, False)
        clear(weights, row)
        if not length:
            continue
        of = row if len(queries) > 1 else 0
        fill(own, states, start, 0, dimension, length)
        dots(scores, 0, own, length, queries, of)
        for head in range(heads):
            query, key = 2 * head * size, (2 * head + 1) * size
            fill(asked, projected, start, query, size, length)
            keys, found = projected[start : start + width, key:], attention[row, head]
            for m in range(length):
                dots(seen, m, asked, length, keys, m)
            for at in range(0, length, LANES):
                _softmax_columns(seen, found, at, length, spread(scale))
            dots(values, 0, own, length, by_value[of], head)
            for at in range(0, length, LANES):
                more = weighted(found, at, values, 0, length)
                store(scores, 0, at, add(load(scores, 0, at), more))
        softmax_row(scores, weights, row, length)
        sum_rows(pooled, row, own, weights, row, length)
        for head in range(heads):
            # Behind the last place the weight is 0.
            fill(seen, attention[row, head], 0, 0, places, length)
            dots(values, 0, seen, length, weights, row)
            sum_rows(mixed[row], head, own, values, 0, length)


@njit(inline="always")
def _softmax_columns(
    scores: Matrix, shares: Matrix, column: int, count: int, scale: object
) -> None:
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
        store(shares, m, column, multiply(load(scores, m, column), share))
