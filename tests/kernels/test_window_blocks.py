"""The parts of a window's arithmetic against NumPy, for all numbers of rows there is code for."""

import numpy as np
import pytest

from widemax.kernels.compiling import njit
from widemax.kernels.models.window_blocks import (
    MOST_QUERIES,
    add_to_rows,
    make_steps,
    mean_row,
    move_rows,
    score_rows,
)

ROWS = 40
COUNTS = range(2, MOST_QUERIES + 1, 2)


@njit()
def _score(queries, rows, start, count, outputs, own, ids, row, first, num, scores):
    score_rows(queries, rows, start, count, outputs, own, ids, row, first, num, scores)


@njit()
def _move(
    queries, rows, start, count, outputs, own, ids, row, first, num, steps, moved, moved_rows
):
    move_rows(
        queries, rows, start, count, outputs, own, ids, row, first, num, steps, moved, moved_rows
    )


@njit()
def _mean(means, place, table, rows, start, num, share):
    mean_row(means, place, table, rows, start, num, share)


@njit()
def _add(table, rows, start, num, moves, place):
    add_to_rows(table, rows, start, num, moves, place)


@njit(error_model="numpy")
def _steps(scores, num, num_true, rate):
    make_steps(scores, num, num_true, rate)


@pytest.fixture
def random():
    return np.random.default_rng(0)


def table_of(random, dimension, rows=ROWS):
    return random.standard_normal((rows, dimension)).astype(np.float32)


@pytest.mark.parametrize("dimension", [16, 112])
@pytest.mark.parametrize("num", [*range(1, 16), 23])
@pytest.mark.parametrize("count", COUNTS)
def test_scores_are_products_and_nothing_else_is_written(random, count, num, dimension):
    queries, outputs = table_of(random, dimension), table_of(random, dimension)
    rows, ids = random.integers(ROWS, size=(1, 3 + count)), random.integers(ROWS, size=(4, 5 + num))
    scores = np.full((1, count * num + 16), np.nan, np.float32)
    own = outputs[:7].copy()
    outputs[:7] = np.nan
    _score(queries, rows, 3, count, outputs, own, ids, 2, 5, num, scores)
    outputs[:7] = own
    expected = outputs[ids[2, 5:]] @ queries[rows[0, 3:]].T
    np.testing.assert_allclose(scores[0, : count * num], expected.ravel(), atol=1e-4)
    assert np.isnan(scores[0, count * num :]).all()


@pytest.mark.parametrize("num", [0, 1, 7, 12])
@pytest.mark.parametrize("count", COUNTS)
def test_rows_that_are_there_twice_move_twice(random, count, num):
    queries, outputs = table_of(random, 48, 6), table_of(random, 48, 6)
    rows, ids = random.integers(6, size=(1, 1 + count)), random.integers(6, size=(2, 2 + num))
    steps = random.standard_normal((1, max(1, count * num))).astype(np.float32)
    expected, others = queries.astype(np.float64), outputs.astype(np.float64)
    values, moves = expected[rows[0, 1:]], np.zeros((count, 48))
    for k, output in enumerate(ids[1, 2:]):
        own = steps[0, k * count : (k + 1) * count].astype(np.float64)
        moves += np.outer(own, others[output])
        others[output] += own @ values
    np.add.at(expected, rows[0, 1:], moves)
    own = outputs[:2].copy()
    outputs[:2] = np.nan
    _move(queries, rows, 1, count, outputs, own, ids, 1, 2, num, steps, queries, rows)
    outputs[:2] = own
    largest = max(1, np.abs(expected).max(), np.abs(others).max())
    np.testing.assert_allclose(queries, expected, atol=1e-5 * largest)
    np.testing.assert_allclose(outputs, others, atol=1e-5 * largest)


@pytest.mark.parametrize("registers", [1, 3, 7, 8, 19])
def test_means_and_what_is_added_to_many_rows(random, registers):
    table, means = table_of(random, 16 * registers), table_of(random, 16 * registers, 2)
    rows = np.array([[0, 5, 7, 5, 1]])
    before, left = table.astype(np.float64), means[0].copy()
    _mean(means, 1, table, rows, 1, 3, np.float32(0.25))
    np.testing.assert_allclose(means[1], before[[5, 7, 5]].sum(0) / 4, atol=1e-5)
    np.testing.assert_array_equal(means[0], left)
    move = means[1].copy()
    _add(table, rows, 1, 3, means, 1)
    np.add.at(before, [5, 7, 5], move)
    np.testing.assert_allclose(table, before, atol=1e-5)
    assert (means[1] == 0).all()
    np.testing.assert_array_equal(means[0], left)


def test_steps_push_down_all_but_the_first(random):
    scores = (10 * random.standard_normal((1, 64))).astype(np.float32)
    scores[0, :2] = -500, 500
    sigmoid = (1 + np.tanh(scores[0].astype(np.float64) / 2)) / 2
    found = scores.copy()
    _steps(found, 40, 7, np.float32(0.5))
    expected = 0.5 * ((np.arange(64) < 7) - sigmoid)
    np.testing.assert_allclose(found[0, :48], expected[:48], atol=1e-6)
    np.testing.assert_array_equal(found[0, 48:], scores[0, 48:])
