"""State of the row-sparse optimisers: resuming, schedules, memory, and what is refused."""

import copy
import json

import psutil
import pytest
import torch
from torch import nn

from tests.optim.test_optim import CASES, make_parameter, random_gradient, sparse
from widemax import optim

DTYPES = [torch.float32, torch.float64, torch.bfloat16]


def make_run(name, dtype):
    """Return a table, a dense layer and the optimiser of both."""
    make, options, _ = CASES[name]
    table, layer = make_parameter((17, 5), dtype), make_parameter((4, 3), dtype)
    return table, layer, make([table, layer], lr=0.05, weight_decay=0.01, **options)


def advance(run, steps):
    table, layer, optimiser = run
    for step in steps:
        ids, values = random_gradient(step, (17, 5), table.dtype)
        table.grad = sparse(ids, values, (17, 5))
        layer.grad = random_gradient(step, (9, 3), table.dtype, entries=4)[1]
        optimiser.step()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_a_resumed_run_goes_on_with_the_same_bits(name, dtype):
    whole, first, second = (make_run(name, dtype) for _ in range(3))
    advance(whole, range(20))
    advance(first, range(9))
    stored = copy.deepcopy(first[2].state_dict())
    # What a file of numbers can hold: tensors, and the rest through JSON.
    stored["param_groups"] = json.loads(json.dumps(stored["param_groups"]))
    assert all(
        type(v) is torch.Tensor for entry in stored["state"].values() for v in entry.values()
    )
    with torch.no_grad():
        for mine, theirs in zip(second[:2], first[:2], strict=True):
            mine.copy_(theirs)
    second[2].load_state_dict(stored)
    advance(second, range(9, 20))
    for resumed, uninterrupted in zip(second[:2], whole[:2], strict=True):
        assert torch.equal(resumed, uninterrupted)
        one, other = second[2].state[resumed], whole[2].state[uninterrupted]
        assert one.keys() == other.keys()
        for key in one:
            assert one[key].dtype == other[key].dtype
            assert torch.equal(one[key], other[key])


def test_state_of_a_bfloat16_table_is_loaded_as_float32():
    _, _, optimiser = run = make_run("adagrad", torch.bfloat16)
    advance(run, range(3))
    total = optimiser.state_dict()["state"][0]["sum"]
    assert not torch.equal(total, total.bfloat16().float())
    table, _, other = make_run("adagrad", torch.bfloat16)
    other.load_state_dict(copy.deepcopy(optimiser.state_dict()))
    assert other.state[table]["sum"].dtype == torch.float32
    assert torch.equal(other.state[table]["sum"], total)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    "schedule",
    [
        lambda optimiser: torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: step / 10),
        lambda optimiser: torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 10),
        lambda optimiser: torch.optim.lr_scheduler.OneCycleLR(
            optimiser, 0.1, total_steps=11, cycle_momentum=False
        ),
    ],
    ids=["lambda", "cosine", "one cycle"],
)
def test_schedules_of_torch(name, schedule):
    make, options, reference_of = CASES[name]
    parameter = make_parameter((17, 5), torch.float64)
    reference = reference_of(parameter, lr=0.05, weight_decay=0.0)
    optimiser = make([parameter], lr=0.05, **options)
    scheduler = schedule(optimiser)
    rates = set()
    for step in range(10):
        reference.lr = optimiser.param_groups[0]["lr"]
        rates.add(reference.lr)
        ids, values = random_gradient(step, (17, 5), torch.float64)
        parameter.grad = sparse(ids, values, (17, 5))
        optimiser.step()
        scheduler.step()
        reference.step(ids, values)
    assert len(rates) > 5
    torch.testing.assert_close(parameter.detach(), reference.weight, rtol=0, atol=1e-13)


@pytest.mark.parametrize("make", [optim.RowAdagrad, optim.RowwiseAdagrad, optim.RowAdam])
def test_memory_is_paid_as_rows_are_touched(make):
    num_rows, dimension = 2**20, 64
    table = nn.Parameter(torch.empty(num_rows, dimension))
    optimiser = make([table], lr=0.1)
    ids = torch.arange(64)  # pages may be of 2 MB, so they stand together, as frequent classes do
    process = psutil.Process()
    table.grad = sparse(ids, torch.ones(64, dimension), table.shape)
    before = process.memory_info().rss
    for _ in range(3):
        optimiser.step()
    # A whole state would be 256 MB, one number per row 4 MB.
    assert process.memory_info().rss - before < 50e6


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (optim.RowSGD, {"lr": 0}, "lr must be a finite number above 0, got 0"),
        (optim.RowSGD, {"lr": float("nan")}, "lr must be a finite number above 0, got nan"),
        (optim.RowSGD, {"weight_decay": -1}, "weight_decay must be a finite number of at least 0"),
        (optim.RowAdagrad, {"eps": 0}, "eps must be a finite number above 0, got 0"),
        (
            optim.RowwiseAdagrad,
            {"initial_accumulator_value": -0.1},
            "initial_accumulator_value must be a finite number of at least 0, got -0.1",
        ),
        (optim.RowAdam, {"betas": (0.9, 1.0)}, r"betas\[1\] must be at least 0 and below 1, got 1"),
        (optim.RowAdam, {"betas": 0.9}, "betas must be two numbers, got 0.9"),
    ],
)
def test_numbers_out_of_their_limits_are_refused(make, options, message):
    parameter = make_parameter((3, 2), torch.float32)
    with pytest.raises(ValueError, match=message):
        make([parameter], **options)
    with pytest.raises(ValueError, match=message):
        make([{"params": [parameter], **options}])


def test_parameters_must_be_floating_point():
    optimiser = optim.RowSGD([make_parameter((3, 2), torch.float32)])
    whole = nn.Parameter(torch.zeros(3, dtype=torch.int64), requires_grad=False)
    with pytest.raises(ValueError, match=r"floating point, got dtype torch.int64"):
        optimiser.add_param_group({"params": [whole]})
    assert len(optimiser.param_groups) == 1


@pytest.mark.parametrize("bad", [-1, 5])
def test_ids_outside_the_table_are_refused(bad):
    parameter = make_parameter((5, 2), torch.float32)
    ids = torch.tensor([[2, bad, 1]])
    parameter.grad = torch.sparse_coo_tensor(ids, torch.ones(3, 2), (5, 2), check_invariants=False)
    before = parameter.detach().clone()
    with pytest.raises(ValueError, match=f"between 0 and 4, got {bad}"):
        optim.RowSGD([parameter]).step()
    assert torch.equal(parameter, before)


def test_gradients_that_are_sparse_within_rows_are_refused():
    parameter = make_parameter((5, 2), torch.float32)
    parameter.grad = torch.eye(5, 2).to_sparse()
    with pytest.raises(ValueError, match="sparse in its rows alone, got 2 sparse dimensions"):
        optim.RowSGD([parameter]).step()


@pytest.mark.parametrize("shape", [(4, 5), (17, 4), (20, 5)], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_a_table_of_another_size_is_refused(name, shape):
    if name == "sgd":
        pytest.skip("it has no state")
    if name == "rowwise adagrad" and shape[0] == 17:
        pytest.skip("one number per row fits every dimension")
    table, _, optimiser = run = make_run(name, torch.float32)
    advance(run, range(2))
    table.grad = None
    table.data = torch.zeros(shape)
    table.grad = sparse(torch.tensor([3]), torch.ones(1, shape[1]), shape)
    with pytest.raises(ValueError, match="make a new optimiser for a table of another size"):
        optimiser.step()


def test_a_gradient_of_the_old_size_is_refused():
    parameter = make_parameter((5, 2), torch.float32)
    parameter.grad = sparse(torch.tensor([4]), torch.ones(1, 2), (5, 2))
    parameter.data = torch.zeros(3, 2)
    with pytest.raises(ValueError, match=r"shape of its parameter \[3, 2\], got \[5, 2\]"):
        optim.RowSGD([parameter]).step()


def test_state_of_another_optimiser_is_refused():
    adam, adagrad = make_run("adam", torch.float32), make_run("adagrad", torch.float32)
    advance(adam, range(2))
    with pytest.raises(ValueError, match=r"state of a RowAdagrad \(sum\), got exp_avg"):
        adagrad[2].load_state_dict(adam[2].state_dict())


def test_sums_per_row_are_no_state_of_a_sum_per_element():
    rowwise, adagrad = (
        make_run("rowwise adagrad", torch.float32),
        make_run("adagrad", torch.float32),
    )
    advance(rowwise, range(2))
    adagrad[2].load_state_dict(rowwise[2].state_dict())
    with pytest.raises(ValueError, match=r"of shape \[17, 5\] must belong to it, got shape \[17\]"):
        advance(adagrad, range(1))


def test_a_mapped_table_is_updated_in_its_file(tmp_path):
    file = tmp_path / "table.bin"
    file.write_bytes(bytes(100 * 4 * 4))
    mapped = torch.from_file(str(file), shared=True, size=400, dtype=torch.float32)
    table = nn.Parameter(mapped.view(100, 4))
    table.grad = sparse(torch.tensor([7, 7]), torch.ones(2, 4), (100, 4))
    optim.RowSGD([table], lr=0.25).step()
    stored = torch.frombuffer(bytearray(file.read_bytes()), dtype=torch.float32).view(100, 4)
    assert stored.nonzero()[:, 0].unique().tolist() == [7]
    assert stored[7].tolist() == [-0.5] * 4
