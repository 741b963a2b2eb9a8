"""Rows of a table against plain indexing, and what their gradients hold."""

import copy
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from widemax.scoring import TableScorer
from widemax.scoring.pages import ask_for_huge_pages
from widemax.scoring.rows import gather_rows

V, D = 30, 4
TABLES = {"vectors": (V, D), "biases": (V,)}
IDS = {
    "one": torch.tensor(3),
    "none": torch.empty(0, dtype=torch.int64),
    "list": torch.tensor([3, 7, 3, 29, 0]),
    "int32": torch.tensor([3, 7, 3], dtype=torch.int32),
    "per row": torch.tensor([[1, 1], [3, 2], [29, 1]]),
}
HALVES = [torch.bfloat16, torch.float16]


def make(shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype))


def loss(rows):
    """Weigh every entry differently, so that rows cannot be mistaken for each other."""
    weights = torch.linspace(-1, 2, rows.numel(), dtype=rows.dtype).view(rows.shape)
    return (weights * rows * rows).sum()


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("ids", IDS.values(), ids=IDS)
@pytest.mark.parametrize("shape", TABLES.values(), ids=TABLES)
def test_rows_and_gradient_are_those_of_indexing(shape, ids, sparse):
    table, plain = make(shape, torch.float64), make(shape, torch.float64)
    rows, expected = gather_rows(table, ids, sparse=sparse), plain[ids]
    assert torch.equal(rows, expected)
    loss(rows).backward()
    loss(expected).backward()
    assert table.grad.is_sparse == sparse
    if sparse:
        assert table.grad._nnz() == ids.numel()  # nothing sorted or summed yet
    torch.testing.assert_close(table.grad.to_dense(), plain.grad)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("shape", TABLES.values(), ids=TABLES)
def test_gradcheck(shape, sparse):
    ids = IDS["per row"]

    def function(table):
        # Through a copy, whose gradient is dense: gradcheck compares no sparse ones.
        return gather_rows(_Dense.apply(table), ids, sparse=sparse).sin()

    assert torch.autograd.gradcheck(function, make(shape, torch.float64))


class _Dense(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table):
        return table.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad.to_dense()


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("shape", TABLES.values(), ids=TABLES)
def test_half_precision_gives_float32_rows_and_a_float32_gradient(shape, sparse, dtype):
    table = make(shape, dtype)
    wide = nn.Parameter(table.detach().float())
    ids = IDS["per row"]
    for each in (table, wide):
        rows = gather_rows(each, ids, sparse=sparse)
        assert rows.dtype == torch.float32
        loss(rows).backward()
    assert table.grad.dtype == torch.float32
    assert table.grad.is_sparse == sparse
    # To the bit: nothing is rounded on the way.
    assert torch.equal(table.grad.to_dense(), wide.grad.to_dense())


@pytest.mark.parametrize("sparse", [False, True])
def test_small_shares_of_a_gradient_add_up_in_half_precision(sparse):
    """1 + 1,000 times 0.001 is 2; summed in bfloat16 it stays 1."""
    table = make((V, D), torch.bfloat16)
    ids = torch.full((1001,), 7)
    shares = torch.full((1001, D), 1e-3)
    shares[0] = 1
    (gather_rows(table, ids, sparse=sparse) * shares).sum().backward()
    torch.testing.assert_close(table.grad.to_dense()[7], torch.full((D,), 2.0), rtol=1e-3, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES], ids=str)
@pytest.mark.parametrize("shape", TABLES.values(), ids=TABLES)
def test_a_table_used_twice_in_one_step_and_over_two_steps(shape, dtype):
    table, plain = make(shape, dtype), nn.Parameter(make(shape, dtype).detach().float())
    for _ in range(2):  # the second gradient is added to the first
        for each in (table, plain):
            pieces = (gather_rows(each, IDS[name], sparse=True) for name in ("list", "per row"))
            sum(loss(piece) for piece in pieces).backward()
    assert table.grad.is_sparse
    assert table.grad.dtype == torch.float32
    torch.testing.assert_close(table.grad.to_dense(), plain.grad.to_dense())


def test_a_deep_copy_and_a_cast_keep_the_gradient_wide():
    scorer = TableScorer(V, D, bias=True, sparse=True, dtype=torch.bfloat16)

    def gradient(of):
        of.zero_grad()
        of(torch.ones(2, D), IDS["list"]).sum().backward()
        return of.weight.grad

    assert gradient(scorer).dtype == torch.float32
    copied = copy.deepcopy(scorer)
    assert copied.weight.grad is None
    assert gradient(copied).dtype == torch.float32
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        scorer.zero_grad()
        scorer.to(dtype)
        scorer.class_vectors().sum().backward()  # a gradient of the table's own dtype
        assert scorer.weight.grad.dtype == dtype


def test_sparse_and_dense_uses_of_a_half_precision_table_add_up():
    table = make((V, D), torch.bfloat16)
    (gather_rows(table, IDS["list"], sparse=True).sum() + table.sum()).backward()
    expected = torch.ones(V, D).index_add_(0, IDS["list"], torch.ones(5, D))
    torch.testing.assert_close(table.grad.to_dense().float(), expected)


def test_a_gradient_that_stands_in_half_precision_is_added_to():
    table = make((V, D), torch.bfloat16)
    table.sum().backward()
    gather_rows(table, IDS["list"], sparse=True).sum().backward()
    expected = torch.ones(V, D).index_add_(0, IDS["list"], torch.ones(5, D))
    torch.testing.assert_close(table.grad.to_dense().float(), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", TABLES.values(), ids=TABLES)
@pytest.mark.parametrize("wrong", [-1, V])
def test_ids_outside_the_table_are_refused(shape, wrong, dtype):
    with pytest.raises(IndexError):
        gather_rows(make(shape, dtype), torch.tensor([0, wrong]), sparse=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", TABLES.values(), ids=TABLES)
def test_compiles(shape, dtype):
    """The tracing only; a table in full precision leaves the graph whole."""
    plain, table = make(shape, dtype), make(shape, dtype)

    def function(table, ids):
        return loss(gather_rows(table, ids, sparse=True))

    function(plain, IDS["per row"]).backward()
    torch.compiler.reset()
    whole = dtype == torch.float32
    compiled = torch.compile(function, backend="aot_eager", fullgraph=whole)
    compiled(table, IDS["per row"]).backward()
    assert table.grad.is_sparse
    assert table.grad.dtype == torch.float32
    torch.testing.assert_close(table.grad.to_dense(), plain.grad.to_dense())


def test_the_scorer_has_sparse_gradients_of_vectors_and_biases():
    dense, sparse = TableScorer(V, D, bias=True), TableScorer(V, D, bias=True, sparse=True)
    sparse.load_state_dict(dense.state_dict())
    for scorer in (dense, sparse):
        loss(scorer(torch.linspace(-1, 1, 3 * D).view(3, D), IDS["per row"])).backward()
    for one, other in ((dense.weight, sparse.weight), (dense.bias, sparse.bias)):
        assert not one.grad.is_sparse
        assert other.grad.is_sparse
        assert other.grad._nnz() == IDS["per row"].numel()
        torch.testing.assert_close(other.grad.to_dense(), one.grad)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such call")
def test_a_large_table_asks_for_huge_pages():
    if "[never]" in Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text():
        pytest.skip("this system never gives them")
    assert ask_for_huge_pages(torch.empty(2**21))
    assert not ask_for_huge_pages(torch.empty(100))
