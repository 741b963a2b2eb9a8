"""The kernels of the simple recommenders against dense algebra in float64."""

import numpy as np
import pytest
import torch

from widemax.data import Sequences
from widemax.kernels.models import gram as gram_kernel
from widemax.kernels.models import least_squares, neighbours
from widemax.models.baselines import ease
from widemax.models.baselines.base import distinct, transposed

SETS, V = 60, 23


@pytest.fixture(params=[1, 2], ids=["serial", "two-threads"])
def threads(request, monkeypatch):
    """Both forms of each kernel: as many blocks as asked for, however little there is to do."""
    for module in (gram_kernel, least_squares, neighbours):
        monkeypatch.setattr(module, "num_blocks", lambda *_, **__: request.param)


def random_sets(seed, *, weighed=False):
    draw = np.random.default_rng(seed)
    lists = [draw.integers(0, V - 1, draw.integers(0, 9)).tolist() for _ in range(SETS)]
    lists[7] = list(range(V - 1))  # one set is longer than a vector
    sequences = Sequences.from_lists(lists)
    weights = torch.from_numpy(draw.uniform(0.1, 3.0, len(sequences.values)))
    return distinct(sequences.weighed_by(weights if weighed else None))


def dense(sets):
    matrix = np.zeros((len(sets), V))
    owners = np.repeat(np.arange(len(sets)), sets.lengths.numpy())
    matrix[owners, sets.values.numpy()] = 1 if sets.weights is None else sets.weights.numpy()
    return matrix


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1, 3, 8])
@pytest.mark.parametrize("seed", range(3))
def test_rows_are_solved(threads, seed, size, dtype):
    sets, draw = random_sets(seed, weighed=True), np.random.default_rng(seed)
    vectors = draw.normal(size=(V, size))
    values, basis = np.linalg.eigh(vectors.T @ vectors)
    vectors, strengths = vectors @ basis, 10 * dense(sets)
    penalties = draw.uniform(0.01, 2.0, len(sets))
    wanted = np.stack(
        [
            np.linalg.solve(
                np.diag(values + penalty) + (vectors.T * row) @ vectors,
                (1 + row) * (row > 0) @ vectors,
            )
            for row, penalty in zip(strengths, penalties, strict=True)
        ]
    )
    own = 10 * sets.weights.numpy()
    for guess in (np.zeros_like(wanted), draw.normal(size=wanted.shape)):
        found = guess.astype(dtype)
        least_squares.solve_rows(
            sets.offsets.numpy(),
            sets.values.numpy(),
            *(each.astype(dtype) for each in (own, vectors, values, penalties)),
            found,
            100 * np.finfo(dtype).eps,
        )
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2000 * np.finfo(dtype).eps)


def test_lopsided_vectors_are_solved_as_well(threads):
    """Where plain conjugate gradients would take hundreds of steps."""
    draw = np.random.default_rng(0)
    vectors = draw.normal(size=(400, 16)) * np.logspace(0, -4, 16)
    values, basis = np.linalg.eigh(vectors.T @ vectors)
    vectors, members, one = vectors @ basis, np.sort(draw.permutation(400)[:60]), np.ones(1)
    system = np.diag(values + 1e-6) + 10 * vectors[members].T @ vectors[members]
    assert np.linalg.cond(system) > 1e6
    found, offsets = np.zeros((1, 16)), np.array([0, 60])
    strengths = np.full(60, 10.0)
    least_squares.solve_rows(
        offsets, members, strengths, vectors, values, 1e-6 * one, found, tolerance=1e-13
    )
    wanted = np.linalg.solve(system, 11 * vectors[members].sum(0))
    np.testing.assert_allclose(found[0], wanted, rtol=1e-8)


@pytest.mark.parametrize("weighed", [False, True])
def test_gram_is_that_of_the_whole_matrix(threads, weighed):
    sets = random_sets(1, weighed=weighed)
    found = ease._lower_gram(sets, V)
    wanted = np.tril(dense(sets).T @ dense(sets))
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("size", [1, 2, 5, 16, 37])
def test_a_matrix_is_inverted_by_halves(size, monkeypatch):
    monkeypatch.setattr(ease, "_INVERTED_AT_ONCE", 2)
    draw = np.random.default_rng(size)
    x = draw.normal(size=(size, size))
    whole = x @ x.T + 0.1 * np.eye(size)
    found = torch.from_numpy(np.tril(whole))  # the upper triangle is not read
    ease._invert(found)
    np.testing.assert_allclose(found.numpy(), np.linalg.inv(whole), rtol=0, atol=1e-10)


@pytest.mark.parametrize("num_neighbours", [1, 3, 20, 30])
@pytest.mark.parametrize("shrinkage", [0.0, 10.0])
def test_neighbours_are_those_of_the_whole_matrix(threads, num_neighbours, shrinkage):
    for seed in range(5):
        sets = random_sets(seed)
        users = transposed(sets, V)
        parts = [each.numpy() for each in (sets.offsets, sets.values, users.offsets, users.values)]
        ids, found = neighbours.nearest_items(*parts, shrinkage, num_neighbours)
        wanted_ids, wanted = neighbours.nearest_items_reference(*parts, shrinkage, num_neighbours)
        assert ids.tolist() == wanted_ids.tolist()
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
