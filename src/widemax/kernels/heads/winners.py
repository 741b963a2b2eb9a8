"""The gradient of the best products: of each example's queries a class moves the one that won.

A matrix product would multiply by 0 wherever another query won. Rows of vectors and queries are
whole registers (``LANES`` numbers).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from widemax.kernels.compiling import njit
from widemax.kernels.registers import LANES, load, multiply_add, peek, spread, store

# Classes whose vectors, and examples whose queries, stay in the nearest cache.
_CLASSES, _EXAMPLES = 96, 32

Matrix = NDArray[np.float32]
Starts = NDArray[np.int64]
Winners = NDArray[np.uint16]


@njit(cache=True, nogil=True)
def pull_winners(grad: Matrix, winners: Winners, starts: Starts, vectors: Matrix) -> Matrix:
    """Return for each query the sum of g·vector over the classes that it won, [N, D].

    Gradients g and winners are [B, S], ``starts`` [B + 1] says which queries an example has.

    >>> grad, winners = np.float32([[2, 3, 5]]), np.uint16([[1, 0, 1]])
    >>> vectors = np.ones((3, LANES), np.float32)
    >>> pull_winners(grad, winners, np.array([0, 2]), vectors)[:, 0].tolist()
    [3.0, 7.0]
    """
    examples, width = grad.shape
    by_queries = np.zeros((starts[-1], vectors.shape[1]), np.float32)
    most = 0
    for example in range(examples):
        most = max(most, starts[example + 1] - starts[example])
    won, counts = np.empty((most, _CLASSES), np.int32), np.empty(most, np.int64)
    for first in range(0, width, _CLASSES):
        last = min(width, first + _CLASSES)
        for example in range(examples):
            counts[:] = 0
            for s in range(first, last):
                winner = np.int64(peek(winners, example, s))
                won[winner, counts[winner]] = s
                counts[winner] += 1
            for place in range(starts[example + 1] - starts[example]):
                _add_won(
                    by_queries[starts[example] + place :],
                    vectors,
                    won[place:],
                    counts[place],
                    grad[example:],
                )
    return by_queries


@njit(cache=True, nogil=True)
def push_winners(grad: Matrix, winners: Winners, starts: Starts, queries: Matrix) -> Matrix:
    """Return for each class the sum of g·query over the queries that won it, [S, D].

    >>> grad, winners = np.float32([[2, 3, 5]]), np.uint16([[1, 0, 1]])
    >>> queries = np.repeat(np.float32([[1], [10]]), LANES, 1)
    >>> push_winners(grad, winners, np.array([0, 2]), queries)[:, 0].tolist()
    [20.0, 3.0, 50.0]
    """
    (examples, width), dimension = grad.shape, queries.shape[1]
    by_vectors = np.zeros((width, dimension), np.float32)
    whole = dimension - dimension % (4 * LANES)
    for first in range(0, examples, _EXAMPLES):
        last = min(examples, first + _EXAMPLES)
        for s in range(width):
            for d in range(0, whole, 4 * LANES):
                # Four sums that do not wait for each other.
                e, f, g = d + LANES, d + 2 * LANES, d + 3 * LANES
                one, two = load(by_vectors, s, d), load(by_vectors, s, e)
                three, four = load(by_vectors, s, f), load(by_vectors, s, g)
                for i in range(first, last):
                    row = starts[i] + np.int64(peek(winners, i, s))
                    share = spread(peek(grad, i, s))
                    one = multiply_add(share, load(queries, row, d), one)
                    two = multiply_add(share, load(queries, row, e), two)
                    three = multiply_add(share, load(queries, row, f), three)
                    four = multiply_add(share, load(queries, row, g), four)
                store(by_vectors, s, d, one)
                store(by_vectors, s, e, two)
                store(by_vectors, s, f, three)
                store(by_vectors, s, g, four)
            for d in range(whole, dimension, LANES):
                total = load(by_vectors, s, d)
                for i in range(first, last):
                    row = starts[i] + np.int64(peek(winners, i, s))
                    total = multiply_add(spread(peek(grad, i, s)), load(queries, row, d), total)
                store(by_vectors, s, d, total)
    return by_vectors


@njit(inline="always")
def _add_won(
    totals: Matrix, vectors: Matrix, won: NDArray[np.int32], count: int, grad: Matrix
) -> None:
    """Add the vectors of the first classes won, each times its gradient, to the first total."""
    dimension = vectors.shape[1]
    whole = dimension - dimension % (4 * LANES)
    for d in range(0, whole, 4 * LANES):
        e, f, g = d + LANES, d + 2 * LANES, d + 3 * LANES
        one, two = load(totals, 0, d), load(totals, 0, e)
        three, four = load(totals, 0, f), load(totals, 0, g)
        for i in range(count):
            s = np.int64(peek(won, 0, i))
            share = spread(peek(grad, 0, s))
            one = multiply_add(share, load(vectors, s, d), one)
            two = multiply_add(share, load(vectors, s, e), two)
            three = multiply_add(share, load(vectors, s, f), three)
            four = multiply_add(share, load(vectors, s, g), four)
        store(totals, 0, d, one)
        store(totals, 0, e, two)
        store(totals, 0, f, three)
        store(totals, 0, g, four)
    for d in range(whole, dimension, LANES):
        total = load(totals, 0, d)
        for i in range(count):
            s = np.int64(peek(won, 0, i))
            total = multiply_add(spread(peek(grad, 0, s)), load(vectors, s, d), total)
        store(totals, 0, d, total)
