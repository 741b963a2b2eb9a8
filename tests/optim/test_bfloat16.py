"""Tables in bfloat16: float32 state and arithmetic, stochastic rounding, on both paths."""

import numpy as np
import pytest
import torch
from torch import nn

from tests.optim.test_optim import CASES, path, random_gradient, sparse  # noqa: F401
from widemax import optim
from widemax.optim.rounding import round_stochastically

HALF = torch.bfloat16


def bits(tensor):
    return tensor.detach().view(torch.int16)


def rounded_by(kernel, value, shape, steps):
    """Return ``value`` as rounded in tables of the given shape, once a step."""
    if not kernel:
        rows = torch.arange(shape[0])
        return torch.stack(
            [round_stochastically(torch.full(shape, value), torch.tensor(s), rows) for s in steps]
        )
    seen = []
    for step in steps:
        table = nn.Parameter(torch.zeros(shape, dtype=HALF))
        table.grad_dtype = torch.float32
        table.grad = sparse(torch.arange(shape[0]), torch.full(shape, -value), shape)
        optimiser = optim.RowSGD([table], lr=1.0)
        optimiser.state[table]["step"] = torch.tensor(step - 1)
        optimiser.step()
        seen.append(table.detach().clone())
    return torch.stack(seen)


@pytest.mark.parametrize("value", [1.001, -1.001, 3e-3, 1e-39, -77.7, 0.0, 1.0078125])
@pytest.mark.parametrize("kernel", [True, False])
def test_rounding_gives_a_neighbour_and_is_right_on_average(kernel, value):
    seen = rounded_by(kernel, value, (50, 40), range(1, 26)).double()
    exact = torch.tensor(value).double().item()
    near = seen.unique().tolist()
    assert len(near) == (1 if torch.tensor(value, dtype=HALF).item() == exact else 2)
    gap = near[-1] - near[0]
    assert near[0] <= exact <= near[-1]
    up = (exact - near[0]) / gap if gap else 0.0
    # 50,000 roundings: within 4.5 standard deviations of the mean that is asked for.
    assert abs(seen.mean().item() - exact) <= 4.5 * gap * (up * (1 - up) / seen.numel()) ** 0.5
    # The chance is fresh in every step, row and column: no mean along one of them strays.
    for along in ((1, 2), (0, 2), (0, 1)):
        means = seen.mean(along)
        count = seen.numel() / means.numel()
        assert ((means - exact).abs() <= 5.5 * gap * (up * (1 - up) / count) ** 0.5 + 1e-15).all()


def test_neighbouring_steps_rows_and_columns_are_not_correlated():
    seen = rounded_by(False, 1.00390625, (256, 256), range(1, 9)).double() - 1.00390625
    seen = seen / seen.std()
    for shifted in (seen.roll(1, 0), seen.roll(1, 1), seen.roll(1, 2), seen.roll((1, -1), (1, 2))):
        assert abs((seen * shifted).mean().item()) < 4.5 / seen.numel() ** 0.5


def test_numbers_that_are_none_stay():
    strange = torch.tensor([[torch.inf, -torch.inf, torch.nan, 0.0]])
    # A NaN of all ones: any noise would carry it over into 0.
    strange.view(torch.int32)[0, 3] = 0x7FFFFFFF
    for step in range(1, 50):
        rounded = round_stochastically(strange, torch.tensor(step), torch.tensor([0]))
        assert rounded[0, :2].tolist() == [torch.inf, -torch.inf]
        assert rounded[0, 2:].isnan().all()
        table = nn.Parameter(torch.zeros(1, 4, dtype=HALF))
        table.grad_dtype = torch.float32
        table.grad = sparse(torch.tensor([0]), -strange, (1, 4))
        optim.RowSGD([table], lr=1.0).step()
        assert table[0, :2].tolist() == [torch.inf, -torch.inf]
        assert table[0, 2:].isnan().all()


@pytest.mark.parametrize("row", [0, 2**31, 2**32 + 5])
@pytest.mark.parametrize("step", [1, 2**31, 2**32 + 7])
def test_large_steps_and_rows_are_hashed_alike_on_both_paths(step, row):
    from widemax.kernels.optim import rows as kernel

    values = torch.randn(1, 100, generator=torch.Generator().manual_seed(0))
    expected = bits(round_stochastically(values, torch.tensor(step), torch.tensor([row])))
    target = np.zeros((1, 100), np.uint16)
    # A table of one row whose memory is said to begin so far below that it is row number ``row``.
    far = np.lib.stride_tricks.as_strided(target, (row + 1, 100), (0, 2))
    one = np.array([row])
    kernel.sgd(far, one, np.array([0]), -values.numpy(), *np.empty((2, 100), np.float32), 1.0, 0.0, 1.0, step)  # fmt: skip # noqa: E501
    assert torch.equal(torch.from_numpy(target).view(torch.int16), expected)


@pytest.mark.parametrize("wide", [True, False], ids=["float32 values", "bfloat16 values"])
@pytest.mark.parametrize("name", CASES)
def test_both_paths_write_the_same_bits(name, wide, monkeypatch):
    make, options, _ = CASES[name]
    tables = []
    for plain in (False, True):
        with monkeypatch.context() as patch:
            if plain:
                patch.setattr("widemax.optim.base.fits_kernel", lambda tensor: False)
            table = nn.Parameter(torch.linspace(-2, 2, 85).view(17, 5).to(HALF))
            table.grad_dtype = torch.float32 if wide else HALF
            optimiser = make([table], lr=0.05, weight_decay=0.1, **options)
            for step in range(20):
                ids, values = random_gradient(step, (17, 5), table.grad_dtype)
                table.grad = sparse(ids, values, (17, 5))
                optimiser.step()
        tables.append(table)
        floating = [value for key, value in optimiser.state[table].items() if key != "step"]
        assert all(value.dtype == torch.float32 for value in floating)
    # float32 arithmetic may differ in its last bit, and then rarely a rounding.
    same = (bits(tables[0]) == bits(tables[1])).double().mean().item()
    assert same == 1 if name == "sgd" else same > 0.95


@pytest.mark.parametrize("layout", ["sparse", "dense"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("path")
def test_small_updates_survive(name, layout):
    """Each update is far below half the distance of 1 to its neighbour, 2^-8."""
    if name == "adam":
        make, options = optim.RowAdam, {"lr": 1e-4}
    else:
        make, options = CASES[name][0], {"lr": 1e-4}
        options |= {} if name == "sgd" else {"initial_accumulator_value": 1e6, "lr": 1e-1}
    table = nn.Parameter(torch.ones(40, 50, dtype=HALF))
    optimiser = make([table], **options)
    gradient = torch.ones(40, 50, dtype=HALF)
    ids = torch.arange(40)
    for _ in range(500):
        table.grad = gradient if layout == "dense" else sparse(ids, gradient, (40, 50))
        optimiser.step()
    # 500 updates of 1e-4; each of 2,000 weights strays by about a tenth of a gap a step.
    assert abs(table.double().mean().item() - 0.95) < 2e-3


@pytest.mark.usefixtures("path")
def test_duplicates_are_summed_in_float32():
    table = nn.Parameter(torch.zeros(2, 1, dtype=HALF))
    values = torch.full((256, 1), 1 / 256, dtype=HALF)
    values[0] = 1.0  # in bfloat16, 1 + 1/256 is 1
    table.grad = sparse(torch.zeros(256, dtype=torch.int64), values, (2, 1))
    optimiser = optim.RowAdagrad([table])
    optimiser.step()
    assert optimiser.state[table]["sum"][0].item() == pytest.approx((1 + 255 / 256) ** 2, rel=1e-6)


def test_float16_is_updated_in_float32_too():
    table = nn.Parameter(torch.ones(3, 2, dtype=torch.float16))
    optimiser = optim.RowwiseAdagrad([table], lr=0.5)
    for _ in range(3):
        table.grad = sparse(torch.tensor([1, 1]), torch.full((2, 2), 300.0).half(), (3, 2))
        optimiser.step()
    # 600² is above the largest float16.
    assert optimiser.state[table]["sum"].tolist() == [0.0, 3 * 600.0**2, 0.0]
    moved = 1 - 0.5 * (1 + 2**-0.5 + 3**-0.5)
    torch.testing.assert_close(table[:, 0].float(), torch.tensor([1, moved, 1]), rtol=0, atol=1e-3)
