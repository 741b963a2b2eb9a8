"""Updates of single rows of a table, in place: a step costs what it touches, whatever the table.

Every kernel begins with the same arrays: the table ``weight`` [V, D], float32, float64 or the bits
of bfloat16 as uint16; a gradient grouped by row, ``ids`` [N] with equal ones together, ``order``
[N] the place of each in ``values`` [N, D], of the table's type or float32; and two buffers
``gradient`` and ``row`` [D], in whose type all is calculated. Entries of the same row are summed in
their order in ``values``; then the row is updated once. Weights decay through the gradient, to
which ``decay`` times the row is added, or apart from it: the row is first multiplied by ``kept``.
``step`` seeds the rounding of bfloat16, else it is unused.

The plain reference of each is in ``widemax.optim``, written in torch.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widemax.kernels.compiling import njit, prange
from widemax.kernels.hashing import empty_table, first_slot, hash_shift
from widemax.kernels.models.prefetch import prefetch_part, prefetch_row

# Division as in NumPy: a check for 0 at every element would keep the loops from being vectorised.
_kernel = njit(cache=True, nogil=True, error_model="numpy")
# Without calls, the compiler need not count references to arrays at each: half of a step's time.
_part = njit(cache=True, nogil=True, error_model="numpy", forceinline=True)

Ids = NDArray[np.int64]
Array = NDArray[Any]

_AHEAD = 8  # entries: so long before its turn a row of the table is asked for

_RADIX, _DIGITS = 64, 3  # of counts of steps, whose powers are products of those of their digits

_EXPONENT = np.uint32(0x7F800000)  # all ones in infinity and NaN


@_kernel
def sgd(
    weight: Array, ids: Ids, order: Ids, values: Array, gradient: Array, row: Array,
    lr: float, decay: float, kept: float, step: int,
) -> None:  # fmt: skip
    """Take one step of stochastic gradient descent on the rows of a gradient, in place.

    Formula: w ← w − lr·g, with g = Σ values of the row + decay·w.

    >>> weight, ids = np.ones((3, 2)), np.array([2, 2])
    >>> sgd(weight, ids, np.array([0, 1]), np.ones((2, 2)), np.empty(2), np.empty(2), 0.25, 0.0,
    ...     1.0, 0)
    >>> weight.tolist()
    [[1.0, 1.0], [1.0, 1.0], [0.5, 0.5]]
    """
    rate = row.dtype.type(lr)
    end = 0
    while end < len(ids):
        y = ids[end]
        end = _open_row(weight, ids, order, values, gradient, row, decay, kept, end)
        for j in range(len(row)):
            row[j] -= rate * gradient[j]
        _write(row, weight, y, step)


@_kernel
def adagrad(
    weight: Array, ids: Ids, order: Ids, values: Array, gradient: Array, row: Array,
    sums: Array, lr: float, eps: float, decay: float, kept: float, step: int,
) -> None:  # fmt: skip
    """Take one step of Adagrad on the rows of a gradient, in place.

    Formula: s ← s + g²; w ← w − lr·g / (√s + eps), element by element, ``sums`` [V, D].

    >>> weight, sums, ids = np.ones((2, 2)), np.zeros((2, 2)), np.array([1])
    >>> adagrad(weight, ids, np.array([0]), np.array([[3.0, -4.0]]), np.empty(2), np.empty(2),
    ...         sums, 0.5, 1e-10, 0.0, 1.0, 0)
    >>> weight.round(6).tolist(), sums.tolist()
    ([[1.0, 1.0], [0.5, 1.5]], [[0.0, 0.0], [9.0, 16.0]])
    """
    rate, least = row.dtype.type(lr), row.dtype.type(eps)
    end = 0
    while end < len(ids):
        y = ids[end]
        end = _open_row(weight, ids, order, values, gradient, row, decay, kept, end)
        for j in range(len(row)):
            sums[y, j] += gradient[j] * gradient[j]
            row[j] -= rate * gradient[j] / (math.sqrt(sums[y, j]) + least)
        _write(row, weight, y, step)


@_kernel
def rowwise_adagrad(
    weight: Array, ids: Ids, order: Ids, values: Array, gradient: Array, row: Array,
    sums: Array, lr: float, eps: float, decay: float, kept: float, step: int,
) -> None:  # fmt: skip
    """Take one step of Adagrad with one sum per row on the rows of a gradient, in place.

    Formula: s ← s + Σ_d g_d² / D; w ← w − lr·g / (√s + eps), ``sums`` [V].

    >>> weight, sums, ids = np.ones((2, 2)), np.zeros(2), np.array([1])
    >>> rowwise_adagrad(weight, ids, np.array([0]), np.array([[1.0, 7.0]]), np.empty(2),
    ...                 np.empty(2), sums, 0.5, 1e-10, 0.0, 1.0, 0)
    >>> weight.round(6).tolist(), sums.round(6).tolist()
    ([[1.0, 1.0], [0.9, 0.3]], [0.0, 25.0])
    """
    end = 0
    while end < len(ids):
        y = ids[end]
        end = _open_row(weight, ids, order, values, gradient, row, decay, kept, end)
        sums[y] += _sum_of_squares(gradient) / len(row)
        rate = row.dtype.type(lr / (math.sqrt(sums[y]) + eps))
        for j in range(len(row)):
            row[j] -= rate * gradient[j]
        _write(row, weight, y, step)


@njit(cache=True, nogil=True, error_model="numpy", parallel=True)
def rowwise_adagrad_in_blocks(
    edges: Ids, weight: Array, ids: Ids, order: Ids, values: Array, gradient: Array, row: Array,
    sums: Array, lr: float, eps: float, decay: float, kept: float, step: int,
) -> None:  # fmt: skip
    """Do what ``rowwise_adagrad`` does, block by block of the sorted ids, on several cores.

    ``edges`` are the ends of the blocks, none within a row (``block_edges``); of the buffers
    ``gradient`` and ``row`` only size and type matter.
    """
    for block in prange(len(edges) - 1):
        places = slice(edges[block], edges[block + 1])
        own, spare = np.empty_like(gradient), np.empty_like(row)
        rowwise_adagrad(
            weight, ids[places], order[places], values, own, spare, sums, lr, eps, decay, kept, step
        )


@njit(cache=True, nogil=True)
def group_rows(ids: Ids) -> tuple[Ids, Ids]:
    """Return the ids with equal ones together, first seen first, and the place each came from.

    >>> grouped, order = group_rows(np.array([5, 2, 5, 9, 2]))
    >>> grouped.tolist(), order.tolist()
    ([5, 5, 2, 2, 9], [0, 2, 1, 4, 3])
    """
    shift = hash_shift(2 * len(ids))
    table = empty_table(shift)  # of the groups of ids, not of ids
    group, first = np.empty(len(ids), np.int64), np.empty(len(ids), np.int64)
    sizes, found = np.zeros(len(ids) + 1, np.int64), 0
    for place in range(len(ids)):
        slot = first_slot(np.uint64(ids[place]), shift)
        while table[slot] >= 0 and first[table[slot]] != ids[place]:
            slot = (slot + 1) & (len(table) - 1)
        if table[slot] < 0:
            table[slot], first[found] = found, ids[place]
            found += 1
        group[place] = table[slot]
        sizes[group[place] + 1] += 1
    ends = sizes.cumsum()  # where each group starts, moved on as it fills
    grouped, order = np.empty(len(ids), np.int64), np.empty(len(ids), np.int64)
    for place in range(len(ids)):
        target = ends[group[place]]
        ends[group[place]] += 1
        grouped[target], order[target] = ids[place], place
    return grouped, order


@njit(cache=True, nogil=True)
def extremes(ids: Ids) -> tuple[int, int]:
    """Return the lowest and the highest of at least one id.

    >>> extremes(np.array([5, 2, 9]))
    (2, 9)
    """
    low = high = ids[0]
    for y in ids:
        low, high = min(low, y), max(high, y)
    return low, high


def block_edges(ids: Ids, blocks: int) -> Ids:
    """Return where to cut grouped ids into at most ``blocks`` parts that share no id.

    >>> block_edges(np.array([1, 2, 2, 2, 3, 4]), 2).tolist()
    [0, 4, 6]
    """
    edges = [0]
    for block in range(1, blocks):
        edge = max(edges[-1], len(ids) * block // blocks)
        while 0 < edge < len(ids) and ids[edge] == ids[edge - 1]:
            edge += 1
        edges.append(edge)
    return np.array([*edges, len(ids)])


@_kernel
def adam(
    weight: Array, ids: Ids, order: Ids, values: Array, gradient: Array, row: Array,
    means: Array, squares: Array, steps: Ids,
    lr: float, beta1: float, beta2: float, eps: float, decay: float, kept: float,
) -> None:  # fmt: skip
    """Take one step of Adam on the rows of a gradient, in place, each row by a clock of its own.

    Formula: t ← t + 1; m ← β1·m + (1 − β1)·g; v ← β2·v + (1 − β2)·g²;
    w ← w − lr·m / (1 − β1^t) / (√(v / (1 − β2^t)) + eps), with t in ``steps`` [V].

    >>> weight, means, squares = np.ones((2, 2)), np.zeros((2, 2)), np.zeros((2, 2))
    >>> steps = np.array([9, 0])
    >>> adam(weight, np.array([1]), np.array([0]), np.array([[5.0, -0.1]]), np.empty(2),
    ...      np.empty(2), means, squares, steps, 0.5, 0.9, 0.999, 1e-8, 0.0, 1.0)
    >>> weight.round(6).tolist(), steps.tolist()
    ([[1.0, 1.0], [0.5, 1.5]], [9, 1])
    """
    kind = row.dtype.type
    kept1, new1, kept2, new2 = kind(beta1), kind(1 - beta1), kind(beta2), kind(1 - beta2)
    least = kind(eps)
    powers1, powers2, clocks = _powers(beta1), _powers(beta2), steps.reshape(1, -1)
    end = 0
    while end < len(ids):
        y = ids[end]
        if end + _AHEAD < len(ids):
            prefetch_row(means, ids[end + _AHEAD], len(row))
            prefetch_row(squares, ids[end + _AHEAD], len(row))
            prefetch_part(clocks, 0, ids[end + _AHEAD], 1)
            prefetch_row(values, order[end + _AHEAD], len(row))
        end = _open_row(weight, ids, order, values, gradient, row, decay, kept, end)
        steps[y] += 1
        rate = kind(lr / (1 - _power(beta1, powers1, steps[y])))
        scale = kind(1 / math.sqrt(1 - _power(beta2, powers2, steps[y])))
        for j in range(len(row)):
            means[y, j] = kept1 * means[y, j] + new1 * gradient[j]
            squares[y, j] = kept2 * squares[y, j] + new2 * gradient[j] * gradient[j]
            row[j] -= rate * means[y, j] / (math.sqrt(squares[y, j]) * scale + least)
        _write(row, weight, y, steps[y])


@_kernel
def _powers(base: float) -> Array:
    """Return the powers of a base that ``_power`` multiplies, [_DIGITS, _RADIX]."""
    powers = np.ones((_DIGITS, _RADIX), np.float64)
    for digit in range(_DIGITS):
        for k in range(1, _RADIX):
            powers[digit, k] = powers[digit, k - 1] * base
        base *= powers[digit, _RADIX - 1]
    return powers


@_part
def _power(base: float, powers: Array, count: int) -> float:
    """Return base^count by the digits of the count.

    Each row has another: by its bits, there would be branches that a processor guesses wrong.
    """
    if count >= _RADIX**_DIGITS:
        return float(base**count)
    low, middle, high = count & 63, (count >> 6) & 63, count >> 12
    return float(powers[0, low] * powers[1, middle] * powers[2, high])


@_kernel
def squared_norm(ids: Ids, order: Ids, values: Array, gradient: Array, row: Array) -> float:
    """Return the squared 2-norm of a gradient, its entries of the same row summed first.

    >>> values = np.array([[1.0, 0.0], [2.0, 4.0]])
    >>> squared_norm(np.array([5, 5]), np.array([0, 1]), values, np.empty(2), np.empty(2))
    25.0
    """
    total, end = 0.0, 0
    while end < len(ids):
        end = _sum_row(ids, order, values, gradient, row, end)
        total += _sum_of_squares(gradient)
    return total


@_part
def _open_row(
    weight: Array, ids: Ids, order: Ids, values: Array, gradient: Array, row: Array,
    decay: float, kept: float, start: int,
) -> int:  # fmt: skip
    """Fill the buffers with gradient and weights of the row at ``start``; return where it ends."""
    if start + _AHEAD < len(ids):
        prefetch_row(weight, ids[start + _AHEAD], len(row))
    end: int = _sum_row(ids, order, values, gradient, row, start)
    _read(weight, ids[start], row)
    if decay != 0:
        factor = row.dtype.type(decay)
        for j in range(len(row)):
            gradient[j] += factor * row[j]
    if kept != 1:
        share = row.dtype.type(kept)
        for j in range(len(row)):
            row[j] *= share
    return end


@_part
def _sum_row(ids: Ids, order: Ids, values: Array, gradient: Array, spare: Array, start: int) -> int:
    _read(values, order[start], gradient)
    end = start + 1
    while end < len(ids) and ids[end] == ids[start]:
        _read(values, order[end], spare)
        for j in range(len(spare)):
            gradient[j] += spare[j]
        end += 1
    return end


@_part
def _read(source: Array, y: int, row: Array) -> None:
    # The width is known to the compiler: of the two branches it keeps one.
    if source.itemsize == 2:
        for j in range(len(row)):
            row[j] = np.uint32(np.uint32(source[y, j]) << np.uint32(16)).view(np.float32)
    else:
        for j in range(len(row)):
            row[j] = source[y, j]


@_part
def _write(row: Array, target: Array, y: int, step: int) -> None:
    if target.itemsize == 2:
        seed = _mix(_mix(np.uint32(step)) + np.uint32(y))
        for j in range(len(row)):
            bits = np.float32(row[j]).view(np.uint32)
            noise = _mix(seed + np.uint32(j)) & np.uint32(0xFFFF)
            # Noise would carry a NaN whose last bits are all set over into 0.
            finite = (bits & _EXPONENT) != _EXPONENT
            target[y, j] = np.uint32(bits + (noise if finite else np.uint32(0))) >> np.uint32(16)
    else:
        for j in range(len(row)):
            target[y, j] = row[j]


@_part
def _mix(number: Any) -> Any:
    """Return 32 bits that each depend on the lower 32 of ``number``."""
    mixed = np.uint32(number)
    mixed = np.uint32((mixed ^ (mixed >> np.uint32(16))) * np.uint32(0x85EBCA6B))
    mixed = np.uint32((mixed ^ (mixed >> np.uint32(13))) * np.uint32(0xC2B2AE35))
    return np.uint32(mixed ^ (mixed >> np.uint32(16)))


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _sum_of_squares(row: Array) -> float:
    total = 0.0
    for j in range(len(row)):
        total += np.float64(row[j]) * np.float64(row[j])
    return total
