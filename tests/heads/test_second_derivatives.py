"""A gradient that is asked for a graph has one, or says that it cannot: never half of one."""

from functools import partial

import pytest
import torch

from tests.heads.declared_heads import MAKERS, NAMES, drawn, make_batch, make_head
from widemax import objectives
from widemax.heads import HierarchicalHead, SampledHead, Tree
from widemax.heads.adaptive import clusters
from widemax.heads.exact import linear
from widemax.scoring import DifferentiatedScorer, ShardedTableScorer

FURTHER = {
    f"sampled, {name}{', per example' if per_example else ''}": partial(
        drawn, SampledHead, objective=objective, per_example=per_example
    )
    for name, objective in {
        "sampled softmax": objectives.sampled_softmax,
        "smoothed": partial(objectives.sampled_softmax, label_smoothing=0.1),
        "nce": objectives.nce,
        "importance sampling": objectives.importance_sampling,
        "corrected log q": objectives.corrected_log_q,
    }.items()
    for per_example in (False, True)
} | {
    "sampled, sparse table": partial(drawn, SampledHead, sparse=True),
    "hierarchical, sparse": partial(
        HierarchicalHead, 6, Tree.huffman(range(40, 0, -1)), bias=True, sparse=True
    ),
}
CASES = [*NAMES, *FURTHER]


def make(name):
    return make_head(name, makers=MAKERS | FURTHER)


def gradient(head, hidden, targets, **options):
    generator = torch.Generator().manual_seed(3)
    losses = head(hidden, targets, generator=generator)
    # Squares, too: then the gradient that arrives at the head depends on its losses.
    return torch.autograd.grad((losses + losses.square()).sum(), hidden, **options)[0]


def plain_sum_gradient(head, hidden, targets, **options):
    losses = head(hidden, targets, generator=torch.Generator().manual_seed(3))
    return torch.autograd.grad(losses.sum(), hidden, **options)[0]


@pytest.mark.filterwarnings("ignore:sampled_softmax")
@pytest.mark.parametrize("slope", [gradient, plain_sum_gradient])
@pytest.mark.parametrize("name", [name for name in CASES if "corrected" not in name])
def test_fault_39_second_derivatives_are_those_of_differences(name, slope):
    """Of all but corrected_log_q, which stops a part of its gradient on purpose."""
    head = make(name).double()
    hidden, targets = make_batch(torch.float64)
    direction = torch.randn_like(hidden)
    with_graph = slope(head, hidden.requires_grad_(), targets, create_graph=True)
    (found,) = torch.autograd.grad(with_graph, hidden, direction)
    step = 1e-6 * direction
    ahead, behind = (
        slope(head, (hidden.detach() + sign * step).requires_grad_(), targets) for sign in (1, -1)
    )
    torch.testing.assert_close(found, (ahead - behind) / 2e-6, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:sampled_softmax")
@pytest.mark.parametrize("slope", [gradient, plain_sum_gradient])
@pytest.mark.parametrize("name", CASES)
def test_fault_39_float32_has_the_second_derivative_or_says_why_not(name, slope):
    results = []
    for dtype in (torch.float64, torch.float32):
        hidden, targets = make_batch(dtype)
        head, hidden = make(name).to(dtype), hidden.requires_grad_()
        direction = torch.linspace(-1, 1, hidden.numel(), dtype=dtype).view_as(hidden)
        try:
            with_graph = slope(head, hidden, targets, create_graph=True)
        except RuntimeError as error:
            if dtype == torch.float64 or "no second derivative here, as the k" not in str(error):
                raise
            return
        plain = slope(head, hidden, targets)
        torch.testing.assert_close(with_graph.detach(), plain, rtol=1e-5, atol=1e-5)
        results.append(torch.autograd.grad(with_graph, hidden, direction)[0].double())
    torch.testing.assert_close(results[0], results[1], rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("name", NAMES)
def test_second_derivatives_by_the_parameters(name, monkeypatch):
    """Through tiles and through kept scores alike, the table is reached too."""
    monkeypatch.setattr(clusters, "_KEPT_SCORES", 60)
    monkeypatch.setattr(linear, "_TILE_SCORES", 21)
    head = make(name).double()
    hidden, targets = make_batch(torch.float64)
    parameters = list(head.parameters())
    with_graph = plain_sum_gradient(head, hidden.requires_grad_(), targets, create_graph=True)
    direction = torch.randn_like(hidden)
    found = torch.autograd.grad(
        with_graph, parameters, direction, allow_unused=True, materialize_grads=True
    )

    def slope_along_direction():
        return (plain_sum_gradient(head, hidden, targets) * direction).sum()

    for parameter, each in zip(parameters, found, strict=True):
        step = torch.randn_like(parameter)
        with torch.no_grad():
            parameter += 1e-6 * step
        ahead = slope_along_direction()
        with torch.no_grad():
            parameter -= 2e-6 * step
        behind = slope_along_direction()
        with torch.no_grad():
            parameter += 1e-6 * step
        torch.testing.assert_close(
            (each * step).sum(), (ahead - behind) / 2e-6, rtol=1e-4, atol=1e-6
        )


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", ["blocks", "shards"])
def test_a_part_of_the_table_without_an_id_has_second_derivatives_too(kind, bias):
    """One block or shard holds all ids: what the others contribute is 0."""
    if kind == "blocks":
        scorer = DifferentiatedScorer(40, [(5, 2), (1, 1), (34, 3)], bias=bias).double()
    else:
        scorer = ShardedTableScorer(40, 6, num_shards=3, shard_by="div", bias=bias).double()
    hidden = torch.randn(2, 6, dtype=torch.float64, requires_grad=True)
    inputs, ids = [hidden, *scorer.parameters()], torch.tensor([30, 31, 39])
    found = []
    for scores in (scorer(hidden, ids), scorer(hidden)[:, ids]):
        first = torch.autograd.grad(scores.logsumexp(1).sum(), inputs, create_graph=True)
        size = sum(each.square().sum() for each in first)
        second = torch.autograd.grad(size, inputs, materialize_grads=True)
        found.append([*first, *second])
    torch.testing.assert_close(*found)
