"""The gradients of all that a user's two halves go through, in one call.

The names are those of ``widemax.kernels.encoders.halves``, and so is what is kept of each half.
"""

from __future__ import annotations

import numpy as np

from widemax.kernels.compiling import njit
from widemax.kernels.encoders.gate import unbend_gates, unbend_halves
from widemax.kernels.encoders.halves import OfHalves, OfSessions
from widemax.kernels.encoders.pooling import spread_attention
from widemax.kernels.encoders.register_rows import room_for, space_for
from widemax.kernels.encoders.rows import Ids, Matrix, Vector
from widemax.kernels.encoders.session_gradients import SPARE, spread_into
from widemax.kernels.products import multiplied, summed_over_rows

_f = np.float32


@njit(cache=True, nogil=True)
def spread_halves(
    grad: Matrix, vectors: Matrix, before: Ids, query: Matrix, lengths: Ids, order: Ids,
    heads: int, attention: Matrix, output: Matrix, summary: Matrix, gate: Matrix,
    of_sessions: OfSessions, of_halves: OfHalves,
) -> tuple[Matrix, Matrix, Matrix, Matrix, Matrix, Matrix, Vector, Matrix, Vector]:  # fmt: skip
    """Return the gradients of states, vectors, query, and of all maps from that of the result.

    Those of the vectors are of what came before the sessions.
    """
    rows, size = grad.shape
    pooled, weights, halves, gates = of_halves
    by_gates, by_short, by_mapped = (
        space_for(rows, size), space_for(rows, size), space_for(rows, size)
    )  # fmt: skip
    unbend_gates(grad, halves, gates, by_gates)
    by_halves = multiplied(by_gates, np.ascontiguousarray(gate[:, size:]))
    unbend_halves(grad, halves, gates, by_halves, by_short, by_mapped)
    by_gate, by_gate_bias = np.empty_like(gate), _total(by_gates)
    by_asked = by_gates if len(query) > 1 else by_gate_bias.reshape(1, size)
    by_gate[:, :size] = summed_over_rows(by_asked, query)
    by_gate[:, size:] = summed_over_rows(by_gates, halves)
    by_query = multiplied(by_asked, np.ascontiguousarray(gate[:, :size]))
    by_vectors, by_pooling = spread_attention(
        multiplied(by_mapped, summary), vectors, before, query, pooled, weights
    )
    _add_rows(by_query, by_pooling)
    by_states, by_asking, by_attention, by_output = _spread_sessions(
        by_short[order], lengths, heads, attention, output, of_sessions
    )
    for place in range(len(by_asking)):
        by_query[order[place] if len(query) > 1 else 0] += by_asking[place]
    return (
        by_states, by_vectors, by_query, by_attention, by_output,
        summed_over_rows(by_mapped, pooled), _total(by_mapped), by_gate, by_gate_bias,
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _spread_sessions(
    grad: Matrix, lengths: Ids, heads: int, attention: Matrix, output: Matrix,
    of_sessions: OfSessions,
) -> tuple[Matrix, Matrix, Matrix, Matrix]:  # fmt: skip
    """Return the gradients of states, queries and both maps from that of the sessions' means."""
    query, states, maps, by_head, by_value, mixed, shares, weights, projected = of_sessions
    rows, size = grad.shape
    by_states, by_weight = space_for(len(states) + SPARE, size), room_for(len(by_head), size)
    by_asking, by_values = room_for(rows, size), room_for(rows, heads * size)
    spread_into(
        grad, multiplied(grad, maps.T).reshape(rows, heads, size), states, by_head, lengths, query,
        by_value, _f((size // heads) ** -0.5), shares, weights, projected, by_states, by_weight,
        by_asking, by_values.reshape(rows, heads, size),
    )  # fmt: skip
    if len(query) == 1:
        by_asking = _total(by_asking).reshape(1, size)
        by_values = _total(by_values).reshape(1, heads * size)
    by_asking += multiplied(by_values, maps)
    by_maps = summed_over_rows(mixed, grad)
    by_maps += summed_over_rows(by_values, query)
    by_attention, by_output = _spread_maps(by_maps, attention, output, heads)
    part = size // heads
    for head in range(heads):
        for kind in range(2):
            to, of = (kind * heads + head) * part, (2 * head + kind) * part
            by_attention[to : to + part] = by_weight[of : of + part]
    return by_states[: rows * shares.shape[2]], by_asking, by_attention, by_output


@njit(cache=True, nogil=True)
def _spread_maps(
    by_maps: Matrix, attention: Matrix, output: Matrix, heads: int
) -> tuple[Matrix, Matrix]:
    """Return the gradients of ``attention``, filled for the values only, and of ``output``."""
    size, outputs = len(output), np.ascontiguousarray(output.T)
    part = size // heads
    by_attention, by_outputs = np.empty_like(attention), np.empty_like(output)
    for head in range(heads):
        own, first = slice(head * part, (head + 1) * part), 2 * size + head * part
        of_map = by_maps[head * size : (head + 1) * size]
        by_attention[first : first + part] = multiplied(outputs[own], of_map.T)
        by_outputs[own] = multiplied(attention[first : first + part], of_map)
    return by_attention, np.ascontiguousarray(by_outputs.T)


@njit(cache=True, nogil=True)
def _total(rows: Matrix) -> Vector:
    """Return the sum of all rows."""
    total = np.zeros(rows.shape[1], np.float32)
    for row in range(len(rows)):
        for j in range(len(total)):
            total[j] += rows[row, j]
    return total


@njit(cache=True, nogil=True)
def _add_rows(totals: Matrix, rows: Matrix) -> None:
    """Add rows to as many, or all of them to one."""
    if len(totals) == len(rows):
        totals += rows
    else:
        totals[0] += _total(rows)
