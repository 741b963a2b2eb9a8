"""Whole registers inside a kernel: what they read, write, multiply and sum."""

import sys

import numpy as np
import pytest

from widemax.kernels.compiling import njit
from widemax.kernels.registers import (
    LANES,
    add,
    clamp,
    divide,
    load,
    multiply,
    multiply_add,
    peek,
    round_down,
    spread,
    store,
    store_sums,
    subtract,
    two_to,
    unowned,
)


@pytest.fixture
def table():
    return np.random.default_rng(0).standard_normal((4, 3 * LANES)).astype(np.float32)


@njit()
def _combine(table, target, factor):
    product = multiply(load(table, 0, LANES), load(table, 1, 2 * LANES))
    store(target, 1, LANES, multiply_add(spread(factor), load(table, 2, 0), product))
    store(target, 0, 0, add(product, load(table, 3, LANES)))


def test_registers_are_read_combined_and_written_where_they_are_asked_for(table):
    target = np.full((2, 2 * LANES), np.nan, np.float32)
    _combine(table, target, np.float32(0.5))
    product = table[0, LANES : 2 * LANES] * table[1, 2 * LANES :]
    np.testing.assert_allclose(target[1, LANES:], product + table[2, :LANES] / 2, rtol=1e-5)
    np.testing.assert_allclose(target[0, :LANES], product + table[3, LANES : 2 * LANES], rtol=1e-5)
    assert np.isnan(target[0, LANES:]).all()
    assert np.isnan(target[1, :LANES]).all()


@njit()
def _bend(table, target):
    one, other = load(table, 0, 0), load(table, 1, 0)
    store(target, 0, 0, divide(subtract(one, other), other))
    store(target, 1, 0, clamp(one, spread(np.float32(-0.5)), spread(np.float32(0.5))))
    store(target, 2, 0, two_to(round_down(one)))


def test_registers_are_divided_kept_within_limits_and_raised(table):
    target = np.empty((3, LANES), np.float32)
    table[0, 0] = np.nan
    _bend(table, target)
    one, other = table[0, :LANES], table[1, :LANES]
    np.testing.assert_allclose(target[0], (one - other) / other, rtol=1e-6)
    np.testing.assert_array_equal(target[1], np.clip(one, -0.5, 0.5))
    np.testing.assert_array_equal(target[2, 1:], np.exp2(np.floor(one[1:])))


@njit()
def _sum(table, target):
    a, b, c, d = load(table, 0, 0), load(table, 1, 0), load(table, 2, 0), load(table, 3, 0)
    store_sums(target, 1, 3, a, b, c, d)


def test_sums_of_four_registers(table):
    target = np.full((2, 8), np.nan, np.float32)
    _sum(table, target)
    sums = table[:, :LANES].astype(np.float64).sum(1)
    np.testing.assert_allclose(target[1, 3:7], sums, rtol=1e-5)
    assert np.isnan(target[1, [0, 1, 2, 7]]).all()


@njit()
def _peek(table, row, column):
    return peek(table, row, column)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.int32, np.uint64])
def test_a_single_number_of_any_kind(dtype):
    table = np.arange(12).reshape(3, 4).astype(dtype)
    assert _peek(table, 2, 1) == 9


@njit()
def _write_to_views(table, ids, target):
    table, ids, target = unowned(table, ids, target)
    for row in range(len(ids)):
        part = target[ids[row]]
        part[:] = table[row]


def test_arrays_of_which_no_references_are_counted_are_the_same_memory(table):
    target, ids = np.zeros_like(table), np.array([2, 0])
    _write_to_views(table, ids, target)  # compiled, which holds what it was given for a while
    before = [sys.getrefcount(each) for each in (table, target, ids)]
    for _ in range(3):
        _write_to_views(table, ids, target)
    after = [sys.getrefcount(each) for each in (table, target, ids)]
    np.testing.assert_array_equal(target[[2, 0]], table[:2])
    assert not target[[1, 3]].any()
    assert after == before
