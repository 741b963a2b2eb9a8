"""Adam on all rows against its formula, and sparse gradients against dense ones."""

import pytest
import torch

from widemax.optim import DenseAdam

V, D = 7, 3
BATCHES = [[0, 3, 3], [5], [0], [], [6, 1], [3]]


def trained(optimizer_of, *, sparse):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        table = torch.nn.Embedding(V, D, sparse=sparse, dtype=torch.float64)
    optimizer = optimizer_of(table.parameters())
    for step, ids in enumerate(BATCHES):
        optimizer.zero_grad()
        (table(torch.tensor(ids, dtype=torch.int64)) ** 2).sum().mul(step + 1).backward()
        optimizer.step()
    return table.weight.detach()


def formula(*, lr, weight_decay):
    """The updates of all rows, as Kingma & Ba write them."""
    weight = trained(lambda parameters: torch.optim.SGD(parameters, lr=0.0), sparse=False)
    mean, square = torch.zeros_like(weight), torch.zeros_like(weight)
    for step, ids in enumerate(BATCHES, 1):
        times = torch.bincount(torch.tensor(ids, dtype=torch.int64), minlength=V)[:, None]
        gradient = 2 * step * times * weight + weight_decay * weight
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        corrected = (square / (1 - 0.999**step)).sqrt() + 1e-8
        weight = weight - lr * mean / (1 - 0.9**step) / corrected
    return weight


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("sparse", [False, True])
def test_every_row_moves_as_in_the_formula(sparse, weight_decay):
    options = {"lr": 0.05, "weight_decay": weight_decay}
    found = trained(lambda parameters: DenseAdam(parameters, **options), sparse=sparse)
    torch.testing.assert_close(found, formula(**options), rtol=0, atol=1e-12)


def test_a_row_goes_on_after_the_batch_that_used_it():
    table = torch.nn.Embedding(V, D, sparse=True)
    optimizer = DenseAdam(table.parameters(), lr=0.1)
    table(torch.tensor([2])).sum().backward()
    optimizer.step()
    before = table.weight.detach().clone()
    optimizer.zero_grad()
    table(torch.tensor([4])).sum().backward()
    assert optimizer.step(lambda: 3.0) == 3.0
    moved = (table.weight.detach() - before).abs().sum(-1) > 0
    assert moved.nonzero().flatten().tolist() == [2, 4]
