"""The row-sparse optimisers against plain dense references in float64, on both paths."""

import math

import pytest
import torch
from torch import nn

from widemax import optim
from widemax.devices import plain_torch
from widemax.optim import base

STEPS = 50
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-13}


class Reference:
    """Keeps a dense float64 copy of a table and updates it row by row, as the formulas say."""

    def __init__(self, weight, *, lr, weight_decay, decoupled=False):
        self.weight = weight.detach().double().clone()
        self.lr, self.decay = lr, weight_decay
        self.decoupled = decoupled
        self.state = [None] * len(weight)

    def step(self, ids, values):
        gradient = torch.zeros_like(self.weight)
        for i, y in enumerate(ids.tolist()):
            gradient[y] += values[i].double()
        for y in sorted(set(ids.tolist())):
            g = gradient[y] + (0 if self.decoupled else self.decay * self.weight[y])
            if self.decoupled:
                self.weight[y] -= self.lr * self.decay * self.weight[y]
            self.state[y], move = self.rule(self.state[y], g)
            self.weight[y] -= self.lr * move


class SGDReference(Reference):
    def rule(self, state, g):
        return None, g


class AdagradReference(Reference):
    def rule(self, state, g):
        total = (0.25 if state is None else state) + g * g
        return total, g / (total.sqrt() + 1e-3)


class RowwiseAdagradReference(Reference):
    def rule(self, state, g):
        total = (0.25 if state is None else state) + sum(x * x for x in g.flatten().tolist()) / (
            g.numel()
        )
        return total, g / (math.sqrt(total) + 1e-3)


class AdamReference(Reference):
    def rule(self, state, g):
        t, mean, square = (0, 0 * g, 0 * g) if state is None else state
        t, mean, square = t + 1, 0.8 * mean + 0.2 * g, 0.99 * square + 0.01 * g * g
        move = mean / (1 - 0.8**t) / ((square / (1 - 0.99**t)).sqrt() + 1e-3)
        return (t, mean, square), move


# The start of the sums keeps a first tiny gradient from being blown up to a step of size lr, where
# float32 could not be compared with float64.
ADAGRAD = {"eps": 1e-3, "initial_accumulator_value": 0.25}
CASES = {
    "sgd": (optim.RowSGD, {}, SGDReference),
    "adagrad": (optim.RowAdagrad, ADAGRAD, AdagradReference),
    "rowwise adagrad": (optim.RowwiseAdagrad, ADAGRAD, RowwiseAdagradReference),
    "adam": (optim.RowAdam, {"betas": (0.8, 0.99), "eps": 1e-3}, AdamReference),
}
SHAPES = {"table": (17, 5), "one column": (17, 1), "bias": (17,), "wide": (9, 33), "3-d": (7, 2, 3)}


def make_parameter(shape, dtype, *, contiguous=True):
    generator = torch.Generator().manual_seed(3)
    weight = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    if not contiguous:
        weight = torch.stack([weight, weight], dim=-1)[..., 0]
        assert not weight.is_contiguous()
    return nn.Parameter(weight)


def sparse(ids, values, shape):
    return torch.sparse_coo_tensor(ids[None], values, shape, check_invariants=True)


def random_gradient(step, shape, dtype, entries=12):
    """Entries over the first two thirds of the rows, most with duplicates, the last in none."""
    generator = torch.Generator().manual_seed(step)
    ids = torch.randint(2 * shape[0] // 3 + 1, (entries,), generator=generator)
    return ids, torch.randn(entries, *shape[1:], generator=generator, dtype=dtype)


@pytest.fixture(params=["kernel", "plain"])
def path(request, monkeypatch):
    """Make both paths run, and make sure that the one that is meant does."""
    if request.param == "plain":
        monkeypatch.setattr(base, "fits_kernel", lambda tensor: False)
    else:
        monkeypatch.setattr(base, "sum_rows", None)
    return request.param


@pytest.mark.parametrize(("weight_decay", "decoupled"), [(0.0, False), (0.1, False), (0.1, True)])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("path")
def test_equals_the_dense_reference(name, dtype, shape, weight_decay, decoupled):
    make, options, reference_of = CASES[name]
    parameter = make_parameter(shape, dtype)
    reference = reference_of(parameter, lr=0.05, weight_decay=weight_decay, decoupled=decoupled)
    untouched = parameter.detach()[-1].clone()
    optimiser = make(
        [parameter],
        lr=0.05,
        weight_decay=weight_decay,
        decoupled_weight_decay=decoupled,
        **options,
    )
    for step in range(STEPS):
        ids, values = random_gradient(step, shape, dtype)
        parameter.grad = sparse(ids, values, shape)
        optimiser.step()
        reference.step(ids, values)
    error = (parameter.double() - reference.weight).abs().max().item()
    # Decay apart from the gradient rounds a row once more in each step.
    assert error < TOLERANCE[dtype] * (2 if decoupled else 1)
    assert torch.equal(parameter[-1], untouched)


@pytest.mark.parametrize("name", CASES)
def test_equals_the_reference_where_the_table_is_not_contiguous(name):
    make, options, reference_of = CASES[name]
    parameter = make_parameter((17, 5), torch.float32, contiguous=False)
    reference = reference_of(parameter, lr=0.05, weight_decay=0.1)
    optimiser = make([parameter], lr=0.05, weight_decay=0.1, **options)
    for step in range(STEPS):
        ids, values = random_gradient(step, (17, 5), torch.float32)
        parameter.grad = sparse(ids, values, (17, 5))
        optimiser.step()
        reference.step(ids, values)
    torch.testing.assert_close(parameter.double(), reference.weight, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("path")
def test_values_need_not_be_contiguous_and_the_gradient_stays_as_it_was(name):
    make, options, _ = CASES[name]
    one, other = (make_parameter((17, 4), torch.float32) for _ in range(2))
    ids, values = random_gradient(0, (17, 4), torch.float32)
    one.grad = sparse(ids, values, (17, 4))
    other.grad = sparse(ids, values.t().contiguous().t(), (17, 4))
    for parameter in (one, other):
        make([parameter], lr=0.05, weight_decay=0.1, **options).step()
    assert torch.equal(one, other)
    assert torch.equal(one.grad._values(), values)
    assert torch.equal(one.grad._indices()[0], ids)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    ("ours", "torch_s"),
    [
        (optim.RowSGD, torch.optim.SGD),
        (optim.RowAdagrad, torch.optim.Adagrad),
        (optim.RowwiseAdagrad, torch.optim.Adagrad),
        (optim.RowAdam, torch.optim.Adam),
    ],
    ids=lambda make: make.__name__,
)
@pytest.mark.parametrize("shape", [(17, 5), (6,), (), (2, 3, 4)], ids=str)
def test_dense_gradients_as_in_torch(ours, torch_s, shape, dtype):
    one, other = (nn.Parameter(torch.full(shape, 0.5, dtype=dtype)) for _ in range(2))
    optimisers = [
        make([p], lr=0.05, weight_decay=0.1) for make, p in ((ours, one), (torch_s, other))
    ]
    generator = torch.Generator().manual_seed(0)
    for _ in range(STEPS):
        one.grad = torch.randn(shape, generator=generator, dtype=dtype)
        other.grad = one.grad.clone()
        for optimiser in optimisers:
            optimiser.step()
    torch.testing.assert_close(one, other, rtol=0, atol=TOLERANCE[dtype])


@pytest.mark.parametrize("decoupled", [False, True])
def test_adam_updates_dense_parameters_together_as_each_alone(decoupled):
    generator = torch.Generator().manual_seed(0)
    shapes = [(17, 5), (6,), (), (0, 3)]
    values = [torch.randn(shape, generator=generator) for shape in shapes]
    settings = {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": decoupled}
    both = [[nn.Parameter(each.clone()) for each in values] for _ in range(2)]
    together, alone = (optim.RowAdam(each, **settings) for each in both)
    for _ in range(STEPS):
        for one, other in zip(*both, strict=True):
            one.grad = torch.randn(one.shape, generator=generator)
            other.grad = one.grad.clone()
        together.step()
        with plain_torch():
            alone.step()
    for one, other in zip(*both, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=TOLERANCE[torch.float32])
        assert int(together.state[one]["step"]) == int(alone.state[other]["step"]) == STEPS


@pytest.mark.parametrize("name", CASES)
def test_a_later_dense_gradient_touches_all_rows_by_the_rule_of_the_first(name):
    make, options, reference_of = CASES[name]
    shape = (17, 5)
    parameter = make_parameter(shape, torch.float64)
    reference = reference_of(parameter, lr=0.05, weight_decay=0.1)
    optimiser = make([parameter], lr=0.05, weight_decay=0.1, **options)
    for step in range(STEPS):
        ids, values = random_gradient(step, shape, torch.float64)
        parameter.grad = sparse(ids, values, shape)
        if step % 3 == 1:
            parameter.grad = parameter.grad.to_dense()
            ids, values = torch.arange(17), parameter.grad
        optimiser.step()
        reference.step(ids, values)
    torch.testing.assert_close(parameter, nn.Parameter(reference.weight), rtol=0, atol=1e-13)


@pytest.mark.parametrize("make", [optim.RowAdagrad, optim.RowwiseAdagrad])
def test_a_later_sparse_gradient_is_applied_by_element_where_the_first_was_dense(make):
    shape = (17, 5)
    parameter, other = (make_parameter(shape, torch.float64) for _ in range(2))
    optimiser, dense = make([parameter], lr=0.05), torch.optim.Adagrad([other], lr=0.05)
    parameter.grad = other.grad = torch.randn(shape, dtype=torch.float64)
    for step in range(STEPS):
        optimiser.step()
        dense.step()
        parameter.grad = sparse(*random_gradient(step, shape, torch.float64), shape)
        other.grad = parameter.grad.to_dense()
    assert optimiser.state[parameter]["sum"].shape == shape
    torch.testing.assert_close(parameter, other, rtol=0, atol=1e-13)


def test_adam_of_one_clock_lets_a_sparse_gradient_touch_its_own_rows_only():
    parameter, other = (make_parameter((4, 3), torch.float64) for _ in range(2))
    optimiser, sparse_adam = optim.RowAdam([parameter]), torch.optim.SparseAdam([other])
    parameter.grad = torch.ones(4, 3, dtype=torch.float64)
    other.grad = parameter.grad.to_sparse(1)
    optimiser.step()
    sparse_adam.step()
    for _ in range(5):
        parameter.grad = other.grad = sparse(
            torch.tensor([2, 0, 2]), torch.randn(3, 3, dtype=torch.float64), (4, 3)
        )
        optimiser.step()
        sparse_adam.step()
    # With one clock, SparseAdam's meaning is ours.
    torch.testing.assert_close(parameter, other, rtol=0, atol=1e-8)
    assert optimiser.state[parameter]["step"].item() == 6


def test_the_first_update_of_a_rare_row_is_as_large_as_that_of_any_other():
    table = nn.Embedding(3, 2, sparse=True)
    before = table.weight.detach().clone()
    optimiser = optim.RowAdam(table.parameters(), lr=0.01)
    for ids in [[0]] * 1000 + [[1]]:
        optimiser.zero_grad()
        table(torch.tensor(ids)).sum().backward()
        optimiser.step()
    moved = (before - table.weight.detach())[:, 0]
    torch.testing.assert_close(moved, torch.tensor([10.0, 0.01, 0.0]), rtol=1e-4, atol=1e-5)
    assert optimiser.state[table.weight]["step"].tolist() == [1000, 1, 0]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("path")
def test_a_tied_table_sums_the_gradients_of_both_uses(name):
    make, options, reference_of = CASES[name]
    table = nn.Embedding(17, 5, sparse=True, dtype=torch.float64)
    reference = reference_of(table.weight, lr=0.05, weight_decay=0.0)
    optimiser = make(table.parameters(), lr=0.05, **options)
    for step in range(5):
        ids, values = random_gradient(step, (17, 5), torch.float64)
        optimiser.zero_grad()
        (table(ids[:7]) * values[:7]).sum().backward()
        (table(ids[7:]) * values[7:]).sum().backward()
        assert not table.weight.grad.is_coalesced()
        optimiser.step()
        reference.step(ids, values)
    torch.testing.assert_close(table.weight.detach(), reference.weight, rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", CASES)
def test_an_encoder_and_a_table_learn_together_by_groups_of_their_own(name):
    make, options, _ = CASES[name]
    torch.manual_seed(0)
    encoder, table = nn.Linear(6, 8), nn.Embedding(30, 8, sparse=True)
    groups = [{"params": encoder.parameters(), "lr": 0.02}, {"params": table.parameters()}]
    optimiser = make(groups, lr=0.2, **options)
    inputs, targets = torch.randn(30, 6), torch.arange(30)

    def closure():
        optimiser.zero_grad()
        scores = encoder(inputs) @ table(targets).t()
        loss = nn.functional.cross_entropy(scores, targets)
        loss.backward()
        return loss

    first = optimiser.step(closure).item()
    for _ in range(100):
        last = optimiser.step(closure).item()
    assert last < 0.7 * first
    assert [group["lr"] for group in optimiser.param_groups] == [0.02, 0.2]


@pytest.mark.parametrize("name", CASES)
def test_nothing_to_update(name):
    make, options, _ = CASES[name]
    parameter, idle, empty = (
        make_parameter(shape, torch.float32) for shape in ((5, 2), (3, 2), (0, 2))
    )
    before = parameter.detach().clone()
    optimiser = make([parameter, idle, empty], lr=0.05, weight_decay=0.1, **options)
    for tensor in (parameter, empty):
        tensor.grad = sparse(torch.empty(0, dtype=torch.int64), torch.empty(0, 2), tensor.shape)
    optimiser.step()
    assert torch.equal(parameter, before)
    assert idle not in optimiser.state


def test_autograd_notices_that_a_table_has_changed():
    table = nn.Embedding(5, 2, sparse=True)
    optimiser = optim.RowSGD(table.parameters())
    loss = table.weight.square().sum()
    parameter = table.weight
    parameter.grad = sparse(torch.tensor([1]), torch.ones(1, 2), (5, 2))
    optimiser.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
