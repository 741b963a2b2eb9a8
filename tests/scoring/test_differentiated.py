"""The differentiated scorer: slices against zero-padded vectors, in float64."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tests.heads import head_cases_structured as cases
from widemax.contracts.head import check_head
from widemax.heads import (
    Entmax15Head,
    FullHead,
    SampledHead,
    SelfNormalisedHead,
    SparsemaxHead,
    TopKSoftmaxHead,
    as_table,
)
from widemax.sampling import UniformSampler
from widemax.scoring import TableScorer
from widemax.scoring.base import Scorer
from widemax.scoring.differentiated import DifferentiatedScorer

BLOCKS = [(5, 4), (10, 2), (25, 1)]


def make(**options):
    torch.manual_seed(0)
    scorer = DifferentiatedScorer(40, BLOCKS, **options).double()
    if scorer.bias is not None:
        torch.nn.init.normal_(scorer.bias)
    return scorer, torch.randn(6, 7, dtype=torch.float64, requires_grad=True)


def all_ids():
    generator = torch.Generator().manual_seed(1)
    return {
        "all": None,
        "shared": torch.tensor([39, 0, 4, 5, 5, 14, 15, 20]),
        "one block": torch.tensor([20, 30]),
        "none": torch.empty(0, dtype=torch.int64),
        "per row": torch.randint(40, (6, 9), generator=generator),
        "per row, none": torch.empty((6, 0), dtype=torch.int64),
    }


@pytest.mark.parametrize("name", [name for name in cases.HEADS if "differentiated" in name])
def test_contract(name):
    make_head, gradients = cases.HEADS[name]
    torch.manual_seed(0)
    check_head(make_head(), dimension=cases.DIMENSION, gradients=gradients)


def test_scores_equal_a_loop_over_the_slices():
    scorer, hidden = make(bias=True)
    columns, start = {0: slice(0, 4), 1: slice(4, 6), 2: slice(6, 7)}, 0
    for block, (size, _) in enumerate(BLOCKS):
        for local in range(size):
            vector, class_id = scorer.weights[block][local], start + local
            expected = hidden[:, columns[block]] @ vector + scorer.bias[class_id]
            torch.testing.assert_close(scorer(hidden)[:, class_id], expected)
        start += size


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", all_ids())
def test_slices_equal_the_padded_vectors_with_their_gradients(name, bias):
    scorer, hidden = make(bias=bias)
    ids = all_ids()[name]
    fast, padded = scorer(hidden, ids), Scorer.forward(scorer, hidden, ids)
    torch.testing.assert_close(fast, padded, rtol=1e-12, atol=1e-12)
    if not fast.numel():
        return
    grad = torch.randn_like(fast)
    inputs = [hidden, *scorer.parameters()]
    ours = torch.autograd.grad(fast, inputs, grad, allow_unused=True, materialize_grads=True)
    plain = torch.autograd.grad(padded, inputs, grad, allow_unused=True, materialize_grads=True)
    for one, other in zip(ours, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_one_block_is_the_table():
    scorer = DifferentiatedScorer(40, [(40, 7)], bias=True).double()
    table = TableScorer(40, 7, bias=True).double()
    table.load_state_dict({"weight": scorer.weights[0], "bias": scorer.bias})
    hidden, targets = torch.randn(6, 7, dtype=torch.float64), torch.randint(40, (6,))
    torch.testing.assert_close(scorer(hidden), table(hidden))
    one, other = FullHead(scorer), FullHead(table)
    torch.testing.assert_close(one(hidden, targets), other(hidden, targets))
    assert torch.equal(one.topk(hidden, 5).ids, other.topk(hidden, 5).ids)


@pytest.mark.parametrize("per_example", [False, True])
def test_a_sparse_gradient_holds_the_touched_rows_and_equals_the_dense_one(per_example):
    dense, _ = make()
    sparse, hidden = make(sparse=True)
    targets = torch.tensor([3, 3, 7, 9, 20, 39])
    for scorer in (dense, sparse):
        sampler = UniformSampler(40, per_example=per_example)
        head = SampledHead(scorer, sampler, num_samples=5)
        head(hidden, targets, generator=torch.Generator().manual_seed(1)).sum().backward()
    for one, other in zip(dense.weights, sparse.weights, strict=True):
        assert other.grad.is_sparse
        torch.testing.assert_close(other.grad.to_dense(), one.grad)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_finite(dtype):
    scorer, hidden = make(bias=True)
    head = FullHead(scorer.to(dtype))
    losses = head(hidden.detach().to(dtype), torch.tensor([0, 5, 15, 39, 1, 2]))
    losses.sum().backward()
    assert losses.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in scorer.parameters())


@pytest.mark.parametrize(
    ("num_classes", "blocks", "named"),
    [
        (10, [(4, 2), (5, 2)], "blocks must hold num_classes = 10 classes in all, got 9"),
        (10, [], "got 0"),
        (10, [(10, 0)], r"blocks must hold .* at least 1, got \(10, 0\)"),
        (10, [(11, 2), (-1, 2)], r"got \(-1, 2\)"),
        (0, [], "num_classes"),
        (2**62, [(2**62, 1)], "num_classes"),
    ],
)
def test_faults_are_named(num_classes, blocks, named):
    with pytest.raises(ValueError, match=named):
        DifferentiatedScorer(num_classes, blocks)


def test_hidden_of_another_dimension_is_refused():
    scorer, _ = make()
    with pytest.raises(ValueError, match=r"hidden must have shape \[B, 7\]"):
        scorer(torch.randn(2, 6, dtype=torch.float64))


EXACT_HEADS = {
    "full": FullHead,
    "full, smoothed": lambda scorer: FullHead(scorer, label_smoothing=0.2),
    "self-normalised": SelfNormalisedHead,
    "top-k": lambda scorer: TopKSoftmaxHead(scorer, k=7),
    "sparsemax": SparsemaxHead,
    "entmax": Entmax15Head,
}
TARGETS = torch.tensor([[0, 39, 7], [5, 14, -100], [15, -100, -100], [4, 5, 15], [39, 38, 0],
                        [20, -100, -100]])  # fmt: skip


COTANGENT = torch.linspace(-1, 2, 6, dtype=torch.float64)


def padded_gradients(losses, inputs):
    """Gradients of a table, cut to the slices that the blocks have of it."""
    by_hidden, by_table, *rest = torch.autograd.grad(losses, inputs, COTANGENT)
    rows, columns, cut = 0, 0, []
    for size, dimension in BLOCKS:
        cut.append(by_table[rows : rows + size, columns : columns + dimension])
        rows, columns = rows + size, columns + dimension
    return [by_hidden, *cut, *rest]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", EXACT_HEADS)
def test_exact_heads_by_blocks_equal_those_on_the_padded_table(name, bias):
    scorer, hidden = make(bias=bias)
    ours, plain = EXACT_HEADS[name](scorer), EXACT_HEADS[name](as_table(scorer))
    losses, expected = ours(hidden, TARGETS), plain(hidden, TARGETS)
    torch.testing.assert_close(losses, expected, rtol=1e-12, atol=1e-12)
    biases = [scorer.bias] if bias else []
    found = torch.autograd.grad(losses, [hidden, *scorer.weights, *biases], COTANGENT)
    by_padded = padded_gradients(expected, [hidden, *plain.parameters()])
    for one, other in zip(found, by_padded, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-12)
    for ids in all_ids().values():
        one, other = ours.log_prob(hidden, ids), plain.log_prob(hidden, ids)
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-12)
    exclude = torch.randint(-1, 40, (6, 25), generator=torch.Generator().manual_seed(3))
    for left_out in (None, exclude, torch.arange(39).expand(6, -1)):
        one, other = (head.topk(hidden, 12, exclude=left_out) for head in (ours, plain))
        assert torch.equal(one.ids, other.ids)
        torch.testing.assert_close(one.scores, other.scores, rtol=1e-12, atol=1e-12)


def multiplications(call):
    with FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops() / 2


def test_no_zeros_are_multiplied():
    """The padded product of B = 6 rows with V = 4,000 classes in D = 80 dimensions is 1.9 M."""
    blocks = [(400, 64), (3600, 16)]
    scorer, hidden = DifferentiatedScorer(4000, blocks), torch.randn(6, 80, requires_grad=True)
    needed = 6 * sum(size * dimension for size, dimension in blocks)
    full, targets = FullHead(scorer), torch.arange(6) * 600

    def step(head):
        head(hidden, targets).sum().backward()

    assert needed <= multiplications(lambda: full.topk(hidden, 5)) <= 1.1 * needed
    assert multiplications(lambda: full.log_prob(hidden.detach())) <= 2.1 * needed
    assert multiplications(lambda: full.log_normalizer(hidden)) <= 1.1 * needed
    assert multiplications(lambda: step(full)) <= 4.1 * needed
    assert multiplications(lambda: step(SelfNormalisedHead(scorer))) <= 4.1 * needed
    assert multiplications(lambda: step(TopKSoftmaxHead(scorer, k=9))) <= 3.1 * needed


@pytest.mark.parametrize("ruled_out", [slice(0, 5), slice(15, 40)])
def test_classes_ruled_out_by_their_bias_may_fill_a_block(ruled_out):
    """The sum over such a block is 0, and its share of the gradient is 0, not NaN."""
    scorer, hidden = make(bias=True)
    with torch.no_grad():
        scorer.bias[ruled_out] = -torch.inf
    targets = torch.tensor([5, 6, 7, 8, 9, 14])
    inputs = [hidden, *scorer.parameters()]
    losses = FullHead(scorer)(hidden, targets)
    plain = torch.nn.functional.cross_entropy(scorer(hidden), targets, reduction="none")
    found, expected = (torch.autograd.grad(each.sum(), inputs) for each in (losses, plain))
    torch.testing.assert_close([losses, *found], [plain, *expected])


@pytest.mark.parametrize("ruled_out", [slice(0, 5), slice(15, 40)])
def test_second_derivatives_where_a_block_is_ruled_out(ruled_out):
    scorer, hidden = make(bias=True)
    with torch.no_grad():
        scorer.bias[ruled_out] = -torch.inf
    targets = torch.tensor([5, 6, 7, 8, 9, 14])
    inputs, found = [hidden, *scorer.parameters()], []
    plain = torch.nn.functional.cross_entropy(scorer(hidden), targets, reduction="none")
    for losses in (FullHead(scorer)(hidden, targets), plain):
        first = torch.autograd.grad(losses.sum(), inputs, create_graph=True)
        second = torch.autograd.grad(sum(each.square().sum() for each in first), inputs)
        found.append([*first, *second])
    assert all(each.isfinite().all() for each in found[0])
    torch.testing.assert_close(*found)


def test_interests_where_a_block_is_ruled_out():
    scorer, hidden = make(bias=True)
    with torch.no_grad():
        scorer.bias[:5] = -torch.inf
    targets = torch.tensor([5, 6, 7, 8, 9, 14])
    inputs = [hidden, *scorer.parameters()]
    losses = FullHead(scorer).interest_losses(hidden[:, None], hidden, targets)
    plain = torch.nn.functional.cross_entropy(scorer(hidden), targets, reduction="none")
    found, expected = (torch.autograd.grad(each.sum(), inputs) for each in (losses, plain))
    torch.testing.assert_close([losses, *found], [plain, *expected])
