"""The kernel of the corrected log-sum-exp against the same in torch's own operations, float64."""

import functools
import math
import os

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import widemax as wm
from widemax.candidates import InnerProduct
from widemax.declarations.table import declared, load
from widemax.kernels.objectives.log_sum import row_log_sums
from widemax.kernels.threads import num_blocks
from widemax.objectives import find_from_factors
from widemax.objectives.log_sum import fused_log_sum, plain_log_sum


def make(rows, width, *, seed=0, offset=0.0, per_row=False, removed=0.2):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(rows, width, generator=generator) * 4 + offset
    log_count = torch.randn(rows if per_row else 1, width, generator=generator) * 6 - 8
    log_count = log_count if per_row else log_count[0]
    hits = torch.rand(rows, width, generator=generator) < removed
    scores = scores.masked_fill(torch.rand(rows, width, generator=generator) < removed, -torch.inf)
    return scores, log_count, hits


def both(scores, log_count, hits, temperature):
    """Return (top, log_sum, gradient) of the kernel and of the float64 reference."""
    results = []
    for log_sum, dtype in ((fused_log_sum, torch.float32), (plain_log_sum, torch.float64)):
        leaf = scores.to(dtype).requires_grad_()
        count = None if log_count is None else log_count.to(dtype)
        found = log_sum(leaf, count, hits, temperature)
        weights = torch.linspace(-1, 2, len(scores), dtype=dtype)
        finite = torch.where(torch.isneginf(found.log_sum), 0.0, found.log_sum)
        (gradient,) = torch.autograd.grad((finite * weights).sum(), leaf)
        results.append([*(part.detach().double() for part in found), gradient.double()])
    return results


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("temperature", [1.0, 0.05])
@pytest.mark.parametrize("log_count", ["none", "shared", "by row"])
def test_equals_the_reference(threads, temperature, log_count):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        scores, counts, hits = make(300, 700, per_row=log_count == "by row")
        counts = None if log_count == "none" else counts
        kernel, plain = both(scores, counts, hits, temperature)
    finally:
        torch.set_num_threads(before)
    for mine, reference in zip(kernel, plain, strict=True):
        torch.testing.assert_close(mine, reference, rtol=3e-6, atol=3e-6)


@settings(max_examples=150, deadline=None)
@given(
    rows=st.integers(0, 6),
    width=st.integers(0, 40),
    seed=st.integers(0, 10_000),
    offset=st.sampled_from([0.0, 1e4, -1e6]),
    removed=st.sampled_from([0.0, 0.3, 0.9, 1.0]),
    per_row=st.booleans(),
)
def test_any_shape(rows, width, seed, offset, removed, per_row):
    scores, log_count, hits = make(
        rows, width, seed=seed, offset=offset, per_row=per_row, removed=removed
    )
    kernel, plain = both(scores, log_count, hits, 1.0)
    for mine, reference in zip(kernel, plain, strict=True):
        torch.testing.assert_close(mine, reference, rtol=1e-5, atol=1e-5)


def test_removed_candidates_have_weight_zero_exactly():
    scores, log_count, hits = make(50, 60)
    kernel, _ = both(scores, log_count, hits, 1.0)
    assert bool((kernel[2][hits | torch.isneginf(scores)] == 0).all())
    assert bool((kernel[2] != 0).any())


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_what_is_not_finite_shows(poison):
    scores, log_count, _ = make(4, 30, removed=0.0)
    scores[2, 7] = poison
    found = fused_log_sum(scores.requires_grad_(), log_count, None, 1.0)
    assert found.log_sum.isnan().tolist() == [False, False, True, False]
    found.log_sum.sum().backward()
    assert scores.grad.isnan().any(-1).tolist() == [False, False, True, False]


def test_a_row_of_nothing_but_nan_shows():
    scores = torch.full((1, 30), math.nan)
    assert fused_log_sum(scores, None, None, 1.0).log_sum.isnan().all()


def test_the_scores_given_are_left_as_they_are():
    scores, log_count, hits = make(4, 30)
    before = scores.clone()
    fused_log_sum(scores, log_count, hits, 1.0)
    assert torch.equal(scores, before)


def test_a_poisoned_hit_does_not_count():
    scores, log_count, hits = make(3, 10, removed=0.0)
    scores[1, 4] = math.nan
    hits[1, 4] = True
    assert fused_log_sum(scores, log_count, hits, 1.0).log_sum.isfinite().all()


def test_strided_scores():
    scores, log_count, hits = make(30, 20)
    found = fused_log_sum(scores.T.contiguous().T, log_count, hits, 1.0)
    expected = fused_log_sum(scores, log_count, hits, 1.0)
    assert torch.equal(found.log_sum, expected.log_sum)


def test_the_exponential_over_its_whole_range():
    below = torch.linspace(-86.9, 0, 100_000)
    scores = torch.stack([torch.zeros_like(below), below], dim=1).numpy()
    nothing = np.zeros((1, 2), np.float32)
    powers = scores.copy()
    *_, scale = row_log_sums(powers, nothing, nothing > 0, 1.0)
    expected = below.double().sigmoid().numpy()
    assert np.abs(scale * powers[:, 1] / expected - 1).max() < 5e-7


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_as_many_blocks_as_torch_has_threads(two_threads):
    assert num_blocks(100, smallest=50) == 2
    assert num_blocks(100, smallest=60) == num_blocks(0) == 1
    torch.set_num_threads(1)
    assert num_blocks(10_000) == 1


def test_a_forked_process_does_not_wait_for_the_threads_of_its_parent(two_threads):
    scores, log_count, hits = make(300, 700)
    expected = fused_log_sum(scores, log_count, hits, 1.0).log_sum
    child = os.fork()
    if child == 0:
        torch.set_num_threads(1)
        found = fused_log_sum(scores, log_count, hits, 1.0).log_sum
        os._exit(0 if torch.equal(found, expected) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_float32_takes_the_kernel_and_torch_func_goes_through():
    scores = torch.randn(4, 9)

    def loss(scores):
        return wm.info_nce(scores[:, 0], scores[:, 1:]).sum()

    leaf = scores.clone().requires_grad_()
    result = loss(leaf)
    result.backward()
    names, nodes = [], [result.grad_fn]
    while nodes:
        node = nodes.pop()
        names.append(node.name())
        nodes += [parent for parent, _ in node.next_functions if parent is not None]
    assert "_FusedLogSumBackward" in names
    torch.testing.assert_close(torch.func.grad(loss)(scores), leaf.grad)


OBJECTIVES = {name: load(each) for name, each in declared("objective").items()}
FACTORED = sorted(name for name in OBJECTIVES if find_from_factors(OBJECTIVES[name]))
UNCORRECTED = {"target_log_expected_count": None, "log_expected_count": None, "hits": None}


def test_the_default_objective_starts_from_factors():
    assert {"sampled-softmax", "info-nce", "full-softmax"} <= set(FACTORED)
    assert find_from_factors(functools.partial(wm.sampled_softmax)) is not None
    assert find_from_factors(functools.partial(wm.sampled_softmax, torch.zeros(1))) is None
    assert find_from_factors(functools.partial(wm.nce)) is None
    assert find_from_factors(lambda scores: scores) is None


def test_an_object_of_a_user_may_start_from_factors():
    class Mean:
        def __call__(self, target_scores, candidate_scores, **_):
            return candidate_scores.mean(-1) - target_scores

        def from_factors(self, product, **_):
            return torch.full((product.shape[0],), 7.0)

    head = wm.SampledHead(
        wm.TableScorer(50, 4), wm.UniformSampler(50), objective=Mean(), num_samples=5
    )
    assert head(torch.randn(3, 4), torch.tensor([1, 2, 3])).tolist() == [7.0] * 3


@pytest.mark.parametrize("scale", [1.0, 1e3])
@pytest.mark.parametrize("spread", [1.0, 30.0])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", FACTORED)
def test_factors_give_what_float64_scores_give(name, bias, spread, scale):
    """Losses and gradients of an objective from float32 factors, against its float64 scores."""
    generator = torch.Generator().manual_seed(0)
    queries, vectors, biases = (
        torch.randn(shape, generator=generator) for shape in ((40, 8), (130, 8), (130,))
    )
    log_count = torch.randn(90, generator=generator) * spread - 3
    target_log_count = -3 - torch.rand(40, generator=generator)
    hits = torch.rand(40, 90, generator=generator) < 0.1
    hits[3] = True
    weights = torch.linspace(-1, 2, 40)
    results = []
    for dtype in (torch.float32, torch.float64):
        leaves = [part.to(dtype).requires_grad_() for part in (queries * scale, vectors, biases)]
        leaves = leaves[: 2 + bias]
        product = InnerProduct(queries=leaves[0], vectors=leaves[1], biases=(*leaves, None)[2])
        given = {
            "target_log_expected_count": target_log_count.to(dtype),
            "log_expected_count": log_count.to(dtype),
            "hits": hits,
        }
        if dtype == torch.float64:
            scores = (product.target_scores(), product.candidate_scores())
            losses = OBJECTIVES[name](*scores, **given)
        else:
            losses = find_from_factors(OBJECTIVES[name])(product, **given)
            assert losses.grad_fn.name() == "_FactoredSoftmaxBackward"
        gradients = torch.autograd.grad((losses * weights.to(dtype)).sum(), leaves)
        results.append([part.detach().double() for part in (losses, *gradients)])
    for mine, reference in zip(*results, strict=True):
        torch.testing.assert_close(mine, reference, rtol=1e-4, atol=1e-5 * scale)


@pytest.mark.parametrize("options", [{"label_smoothing": 0.1}, {"temperature": 0.2}])
def test_options_with_factors(options):
    product = InnerProduct(queries=torch.randn(5, 4), vectors=torch.randn(14, 4), biases=None)
    expected = wm.info_nce(product.target_scores(), product.candidate_scores(), **options)
    from_factors = find_from_factors(functools.partial(wm.info_nce, **options))
    torch.testing.assert_close(from_factors(product, **UNCORRECTED), expected)


@pytest.mark.parametrize("options", [{"label_smoothing": 1.0}, {"temperature": 0.0}])
def test_wrong_options_with_factors(options):
    product = InnerProduct(queries=torch.randn(5, 4), vectors=torch.randn(14, 4), biases=None)
    with pytest.raises(ValueError, match=next(iter(options))):
        wm.info_nce.from_factors(product, **UNCORRECTED, **options)


def test_sampled_softmax_from_factors_needs_counts():
    product = InnerProduct(queries=torch.randn(5, 4), vectors=torch.randn(14, 4), biases=None)
    with pytest.raises(ValueError, match="needs target_log_expected_count"):
        wm.sampled_softmax.from_factors(product, **UNCORRECTED)


def test_factors_backward_twice():
    queries = torch.randn(5, 4, requires_grad=True)
    product = InnerProduct(queries=queries, vectors=torch.randn(14, 4), biases=None)
    total = wm.info_nce.from_factors(product, **UNCORRECTED).sum()
    (first,) = torch.autograd.grad(total, queries, retain_graph=True)
    (second,) = torch.autograd.grad(total, queries)
    assert torch.equal(first, second)


def test_a_head_with_its_own_forward_or_hook_is_asked_for_scores():
    scorer = wm.TableScorer(50, 4)
    head = wm.SampledHead(scorer, wm.UniformSampler(50), num_samples=5)
    hidden, targets = torch.randn(3, 4), torch.tensor([1, 2, 3])
    assert head(hidden, targets).grad_fn.name() == "_FactoredSoftmaxBackward"
    calls = []
    scorer.register_forward_hook(lambda *arguments: calls.append(1))
    head(hidden, targets)
    assert len(calls) == 2
