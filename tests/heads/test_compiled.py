"""Every head is one graph for ``torch.compile``, with the losses and gradients of itself."""

import copy
import shutil

import pytest
import torch

from tests.heads.declared_heads import MAKERS, NAMES, drawn, make_batch, make_head
from widemax.heads import HierarchicalHead, SampledHead, Tree
from widemax.objectives import corrected_log_q, nce
from widemax.sampling import LogUniformSampler, UnigramSampler
from widemax.scoring import TableScorer

FURTHER = {
    "sampled, nce": lambda: drawn(SampledHead, objective=nce),
    "sampled, per example": lambda: drawn(SampledHead, objective=corrected_log_q, per_example=True),
    "sampled, distinct": lambda: SampledHead(
        TableScorer(40, 6, bias=True),
        UnigramSampler(40, range(1, 41), unique=True),
        num_samples=12,
    ),
    "sampled, sparse": lambda: SampledHead(
        TableScorer(40, 6, bias=True, sparse=True),
        LogUniformSampler(40, unique=True),
        num_samples=12,
    ),
    "hierarchical, sparse": lambda: HierarchicalHead(
        6, Tree.huffman(range(40, 0, -1)), bias=True, sparse=True
    ),
}
CASES = [*NAMES, *FURTHER]


def results(head, module, hidden, targets, weights):
    head.zero_grad()
    torch.manual_seed(5)
    hidden = hidden.detach().clone().requires_grad_()
    losses = module(hidden, targets, weights=weights)
    losses.sum().backward()
    grads = [None if each.grad is None else each.grad.to_dense() for each in head.parameters()]
    return losses.detach(), hidden.grad, grads


def assert_compiled_is_eager(name, backend, targets, *, dtype=torch.float32):
    head = make_head(name, makers=MAKERS | FURTHER).to(dtype)
    hidden, _ = make_batch(dtype)
    weights = torch.linspace(0.5, 1.5, len(hidden), dtype=dtype)
    torch.compiler.reset()
    compiled = torch.compile(head, backend=backend, fullgraph=True)
    batch = hidden, targets, weights
    torch.testing.assert_close(
        results(head, compiled, *batch), results(head, head, *batch), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("name", CASES)
def test_fault_39_one_graph_has_the_losses_and_gradients_of_the_head(name):
    """Tracing and autograd of the graph, without the minutes that a compiler takes."""
    assert_compiled_is_eager(name, "aot_eager", make_batch()[1])


IGNORED = torch.tensor([0, -100, 39, 7, -100])
DRAWN_BY_ROW = ("infrequent", "sampled, per example")


@pytest.mark.parametrize("name", [name for name in CASES if name not in DRAWN_BY_ROW])
def test_ignored_targets_in_a_graph(name):
    assert_compiled_is_eager(name, "eager", IGNORED)


@pytest.mark.parametrize("name", DRAWN_BY_ROW)
def test_ignored_targets_where_each_row_has_draws_of_its_own(name):
    """A graph draws for all rows, so that others get other draws than without a graph."""
    head = make_head(name, makers=MAKERS | FURTHER)
    hidden, _ = make_batch()
    hidden[1] = torch.nan  # what does not count may hold anything
    torch.compiler.reset()
    losses = torch.compile(head, backend="eager", fullgraph=True)(hidden, IGNORED)
    losses.sum().backward()
    assert losses[[1, 4]].tolist() == [0, 0]
    assert bool(losses[[0, 2, 3]].all())
    assert all(bool(each.grad.isfinite().all()) for each in head.parameters())


@pytest.mark.parametrize("name", [name for name in NAMES if name not in DRAWN_BY_ROW])
def test_several_positives_in_a_graph(name):
    targets = torch.tensor([[0, 3], [7, -100], [39, 39], [-100, -100], [21, 2]])
    assert_compiled_is_eager(name, "eager", targets)


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.parametrize("name", ["full", "sampled"])
def test_compiled_code_has_the_losses_and_gradients_of_the_head(name):
    assert_compiled_is_eager(name, "inductor", make_batch()[1])


def test_a_wrong_target_is_refused_by_the_graph():
    head = make_head("full")
    torch.compiler.reset()
    compiled = torch.compile(head, backend="aot_eager", fullgraph=True)
    hidden, targets = make_batch()
    compiled(hidden, targets)
    with pytest.raises(RuntimeError, match="targets must lie between 0 and 39"):
        compiled(hidden, targets + 1)


def test_a_copy_of_a_head_draws_by_its_own_sampler():
    head = SampledHead(TableScorer(40, 6), UnigramSampler(40, [1] * 40), num_samples=5)
    other = copy.deepcopy(head)
    other.sampler._table = UnigramSampler(40, [1, *[0] * 39])._table
    drawn = []
    for each in (head, other):
        torch.compiler.reset()
        draw = torch.compile(each.sampler.sample, backend="eager", fullgraph=True)
        drawn.append(set(draw(50, torch.tensor([0])).ids.tolist()))
    assert len(drawn[0]) > 1
    assert drawn[1] == {0}
