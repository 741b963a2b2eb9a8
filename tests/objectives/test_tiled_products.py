"""The softmax whose products go by tiles against float64, and against the way without tiles."""

from __future__ import annotations

import pytest
import torch

import widemax as wm
from widemax.candidates import InnerProduct
from widemax.kernels.objectives import tiled_products
from widemax.kernels.objectives.tiled_products import tiles_fit
from widemax.kernels.tiles import HEIGHT, WIDTH
from widemax.objectives import find_from_factors

ROWS, CANDIDATES, DIMENSION = 9 * HEIGHT, 300, 2 * WIDTH


def make(rows, width, dimension, *, bias=True, scale=1.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    queries = torch.randn(rows, dimension, generator=generator) * scale
    vectors = torch.randn(rows + width, dimension, generator=generator)
    biases = torch.randn(rows + width, generator=generator) if bias else None
    hits = torch.rand(rows, width, generator=generator) < 0.1
    hits[1] = True  # a row in which nothing competes
    counts = {
        "log_expected_count": torch.randn(width, generator=generator) - 3,
        "target_log_expected_count": -torch.rand(rows, generator=generator) - 1,
    }
    return (queries, vectors, biases), counts, hits


def losses_and_gradients(factors, counts, hits, dtype):
    leaves = [
        None if each is None else each.to(dtype, copy=True).requires_grad_() for each in factors
    ]
    queries, vectors, biases = leaves
    product = InnerProduct(queries=queries, vectors=vectors, biases=biases)
    losses = find_from_factors(wm.sampled_softmax)(product, hits=hits, **counts)
    (losses * torch.linspace(0.5, 2, len(losses), dtype=dtype)).sum().backward()
    return [losses.detach(), *(leaf.grad for leaf in leaves if leaf is not None)]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("rows", "width"), [(ROWS, 8 * WIDTH), (ROWS - 1, 300), (HEIGHT, WIDTH), (65 * HEIGHT, 513)]
)
def test_equals_float64(rows, width, bias, threads):
    assert tiles_fit(rows, width, DIMENSION)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        given = make(rows, width, DIMENSION, bias=bias)
        found = losses_and_gradients(*given, torch.float32)
    finally:
        torch.set_num_threads(before)
    expected = losses_and_gradients(*given, torch.float64)
    for mine, reference in zip(found, expected, strict=True):
        torch.testing.assert_close(mine.double(), reference, rtol=2e-5, atol=2e-5)


def test_large_scores_are_no_less_exact_than_without_tiles(monkeypatch):
    given = make(ROWS, CANDIDATES, DIMENSION, scale=30.0)
    expected = losses_and_gradients(*given, torch.float64)
    tiled = losses_and_gradients(*given, torch.float32)
    monkeypatch.setattr(tiled_products, "tiles_fit", lambda *_: False)
    plain = losses_and_gradients(*given, torch.float32)
    for mine, other, reference in zip(tiled, plain, expected, strict=True):
        error, usual = (mine - reference).abs().max(), (other - reference).abs().max()
        assert error <= 2 * usual + 1e-6


def test_only_what_nearly_fills_its_tiles_goes_by_them():
    assert tiles_fit(ROWS, CANDIDATES, DIMENSION)
    assert not tiles_fit(ROWS, CANDIDATES, DIMENSION + 4)
    assert not tiles_fit(1, CANDIDATES, DIMENSION)
    assert not tiles_fit(ROWS, 0, DIMENSION)


def test_the_backward_pass_may_run_twice():
    (queries, vectors, biases), counts, hits = make(ROWS, CANDIDATES, DIMENSION)
    queries.requires_grad_()
    product = InnerProduct(queries=queries, vectors=vectors, biases=biases)
    total = find_from_factors(wm.sampled_softmax)(product, hits=hits, **counts).sum()
    first, second = (torch.autograd.grad(total, queries, retain_graph=True)[0] for _ in range(2))
    torch.testing.assert_close(first, second, rtol=0, atol=0)


@pytest.mark.parametrize("wanted", [0, 1])
def test_a_gradient_of_one_factor_alone(wanted):
    factors, counts, hits = make(ROWS, CANDIDATES, DIMENSION, bias=False)
    expected = losses_and_gradients(factors, counts, hits, torch.float64)[1 + wanted]
    leaf = factors[wanted].requires_grad_()
    product = InnerProduct(queries=factors[0], vectors=factors[1], biases=None)
    find_from_factors(wm.sampled_softmax)(product, hits=hits, **counts).mul(
        torch.linspace(0.5, 2, ROWS)
    ).sum().backward()
    torch.testing.assert_close(leaf.grad.double(), expected, rtol=2e-5, atol=2e-5)


def test_second_derivatives_by_tiles():
    (queries, vectors, _), counts, hits = make(ROWS, CANDIDATES, DIMENSION, bias=False)

    def curvature(dtype):
        leaf = queries.to(dtype, copy=True).requires_grad_()
        product = InnerProduct(queries=leaf, vectors=vectors.to(dtype), biases=None)
        total = find_from_factors(wm.sampled_softmax)(product, hits=hits, **counts).sum()
        (gradient,) = torch.autograd.grad(total, leaf, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), leaf)[0].double()

    torch.testing.assert_close(
        curvature(torch.float32), curvature(torch.float64), rtol=1e-3, atol=1e-4
    )


def test_nan_is_found():
    (queries, vectors, _), counts, hits = make(ROWS, CANDIDATES, DIMENSION, bias=False)
    queries[3, 0] = torch.nan
    product = InnerProduct(queries=queries, vectors=vectors, biases=None)
    losses = find_from_factors(wm.sampled_softmax)(product, hits=hits, **counts)
    assert losses.isnan().nonzero().flatten().tolist() == [3]
