"""The kernel that works in blocks on several cores gives what the serial one gives, bit by bit."""

import pytest
import torch

from widemax.kernels.optim.rows import block_edges, group_rows
from widemax.optim import RowwiseAdagrad


def train(threads, dtype, ids):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        generator = torch.Generator().manual_seed(0)
        table = torch.nn.Parameter(torch.randn(500, 64, generator=generator).to(dtype))
        optimizer = RowwiseAdagrad([table], lr=0.1, weight_decay=0.01)
        for _ in range(3):
            values = torch.randn(len(ids), 64, generator=generator).to(dtype)
            table.grad = torch.sparse_coo_tensor(ids[None], values, table.shape)
            optimizer.step()
    finally:
        torch.set_num_threads(before)
    return table.detach(), optimizer.state[table]["sum"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("kind", ["many", "few", "one"])
def test_blocks_equal_the_serial_kernel(dtype, kind):
    high = {"many": 500, "few": 3, "one": 1}[kind]
    ids = torch.randint(high, (4096,), generator=torch.Generator().manual_seed(1))
    for serial, parallel in zip(train(1, dtype, ids), train(3, dtype, ids), strict=True):
        assert torch.equal(serial, parallel)


def test_edges_never_cut_a_row():
    ids = torch.randint(20, (1000,), generator=torch.Generator().manual_seed(0)).sort().values
    for blocks in (1, 2, 7, 64):
        edges = block_edges(ids.numpy(), blocks)
        assert edges[0] == 0
        assert edges[-1] == 1000
        assert len(edges) == blocks + 1
        inner = [edge for edge in edges[1:-1] if edge < 1000]
        assert bool((ids[inner] != ids[[edge - 1 for edge in inner]]).all())
        assert edges.tolist() == sorted(edges.tolist())


@pytest.mark.parametrize("high", [1, 7, 10**12])
def test_groups_hold_every_place_once_in_order(high):
    ids = torch.randint(high, (500,), generator=torch.Generator().manual_seed(0))
    grouped, order = map(torch.from_numpy, group_rows(ids.numpy()))
    assert torch.equal(ids[order], grouped)
    assert torch.equal(order.sort().values, torch.arange(500))
    changes = int((grouped[1:] != grouped[:-1]).sum()) + 1
    assert changes == len(ids.unique())
    same = grouped[1:] == grouped[:-1]
    assert bool((order[1:] > order[:-1])[same].all())
