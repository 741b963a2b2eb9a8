"""Tensors and nested state: what comes back is what went in, to the bit and the type."""

import json
from collections import Counter, OrderedDict

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import nn

from tests.fuzzing import FUZZ
from widemax.storage.state_dicts import MAX_DEPTH, flatten_state, unflatten_state
from widemax.storage.tensors import read_tensors, serialize_tensors


def stored(path, tensors):
    path.write_bytes(b"".join(serialize_tensors(tensors)))
    return path


def same(a, b):
    """Equal in type and bits, however nested; NaN equals itself."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        return bytes(a.reshape(-1).view(torch.uint8)) == bytes(b.reshape(-1).view(torch.uint8))
    if isinstance(a, dict):
        pairs = zip(a.items(), b.items(), strict=True)
        return len(a) == len(b) and all(same(x, y) for x, y in pairs)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return repr(a) == repr(b)


DTYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 5), (3, 5)])
def test_every_dtype_and_shape_comes_back(tmp_path, dtype, shape):
    tensor = (torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 9).to(dtype)
    tensors = {"odd": torch.ones(3, dtype=torch.bool), "a": tensor}
    path = stored(tmp_path / "a.safetensors", tensors)
    assert same(read_tensors(path)["a"], tensor)
    assert same(load_file(path)["a"], tensor), "the library itself reads the file"


def test_bits_of_nan_and_negative_zero_survive(tmp_path):
    bits = torch.tensor([0x7FC00001, 0x7F800001, -0x80000000, 1], dtype=torch.int64).int()
    path = stored(tmp_path / "a.safetensors", {"a": bits.view(torch.float32)})
    assert torch.equal(read_tensors(path)["a"].view(torch.int32), bits)


def test_foreign_file_is_read(tmp_path):
    tensors = {"x": torch.arange(6.0).reshape(2, 3), "y": torch.tensor(True)}
    save_file(tensors, tmp_path / "a.safetensors", metadata={"format": "pt"})
    assert read_tensors(tmp_path / "a.safetensors").keys() == tensors.keys()


def test_views_of_one_memory_keep_their_own_values(tmp_path):
    whole = torch.arange(24.0).reshape(4, 6)
    views = {"t": whole.t(), "row": whole[1], "step": whole[:, ::2], "wide": whole[:1].expand(3, 6)}
    back = read_tensors(stored(tmp_path / "a.safetensors", {"whole": whole, **views}))
    for name, view in views.items():
        assert torch.equal(back[name], view)
        assert back[name].untyped_storage().nbytes() == view.numel() * 4


def test_contiguous_tensors_are_not_copied():
    tensor = torch.zeros(1000)
    _, data = serialize_tensors({"a": tensor})
    tensor.fill_(1.0)
    assert bytes(data) == bytes(tensor.numpy().tobytes())


def test_tied_weights_are_stored_once_and_tied_again(tmp_path):
    def tied():
        model = nn.ModuleDict({"encoder": nn.Linear(8, 50), "decoder": nn.Linear(8, 50)})
        model["decoder"].weight = model["encoder"].weight
        return model

    model = tied()
    path = stored(tmp_path / "a.safetensors", model.state_dict())
    assert path.stat().st_size < 1.5 * 50 * 8 * 4 + 800
    back = read_tensors(path)
    assert back["decoder.weight"] is back["encoder.weight"]
    other = tied()
    other.load_state_dict(back)
    assert same(dict(other.state_dict()), dict(model.state_dict()))


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"__metadata__": torch.ones(1)}, "other than '__metadata__'"),
        ({"\ud800": torch.ones(1)}, r"got '\\ud800'"),
        ({3: torch.ones(1)}, "must be strings .*, got 3"),
        ({"a": [1.0]}, "a must be a tensor, got list"),
        ({"a": torch.eye(2).to_sparse()}, "dense tensor .*sparse_coo"),
        ({"a": torch.ones(1, dtype=torch.complex64)}, "got .*complex64"),
        ({"a": torch.ones(1, device="meta")}, "on meta"),
    ],
)
def test_what_cannot_be_stored_is_named(tensors, message):
    with pytest.raises(ValueError, match=message):
        serialize_tensors(tensors)


@pytest.mark.parametrize("ties", ["3", '{"b": 1}', '{"b": "c"}', '{"a": "a"}', "{", "[" * 10**5])
def test_bad_ties_are_refused(tmp_path, ties):
    path = tmp_path / "a.safetensors"
    save_file({"a": torch.ones(1)}, path, metadata={"widemax.ties": ties})
    with pytest.raises(ValueError, match=r"a\.safetensors"):
        read_tensors(path)


def trained(make, *, dtype=torch.float32):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)).to(dtype)
    optimizer = make(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(5, 4, dtype=dtype)).square().mean().backward()
        optimizer.step()
    return model, optimizer


OPTIMIZERS = {
    "adam": lambda p: torch.optim.Adam(p, lr=0.1),
    "amsgrad": lambda p: torch.optim.AdamW(p, amsgrad=True),
    "adam, tensor lr": lambda p: torch.optim.Adam(p, lr=torch.tensor(0.1)),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "plain sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "rprop": lambda p: torch.optim.Rprop(p),
    "radam": lambda p: torch.optim.RAdam(p),
}


def through_files(path, state):
    tensors, rest = flatten_state(state)
    text = json.dumps(rest, allow_nan=False)
    return unflatten_state(read_tensors(stored(path / "s.safetensors", tensors)), json.loads(text))


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_optimizer_state_comes_back_to_the_bit(tmp_path, name, dtype):
    _, optimizer = trained(OPTIMIZERS[name], dtype=dtype)
    state = optimizer.state_dict()
    back = through_files(tmp_path, state)
    assert same(back, state)
    _, fresh = trained(OPTIMIZERS[name], dtype=dtype)
    fresh.load_state_dict(back)
    assert same(fresh.state_dict(), state)


def schedulers():
    from torch.optim import lr_scheduler as s

    return {
        "lambda": lambda o: s.LambdaLR(o, lambda step: 0.5**step),
        "milestones": lambda o: s.MultiStepLR(o, [2, 4, 4]),
        "cosine": lambda o: s.CosineAnnealingLR(o, 10),
        "restarts": lambda o: s.CosineAnnealingWarmRestarts(o, 3),
        "one cycle": lambda o: s.OneCycleLR(o, 0.1, 20),
        "plateau": lambda o: s.ReduceLROnPlateau(o),
        "sequence": lambda o: s.SequentialLR(
            o, [s.ConstantLR(o, 0.1), s.ExponentialLR(o, 0.9)], [3]
        ),
    }


@pytest.mark.parametrize("name", schedulers())
def test_scheduler_state_comes_back(tmp_path, name):
    _, optimizer = trained(OPTIMIZERS["sgd"])
    state = schedulers()[name](optimizer).state_dict()
    assert same(through_files(tmp_path, state), state)
    assert name != "plateau" or state["best"] == float("inf")
    assert name != "milestones" or type(state["milestones"]) is Counter


def test_same_path_twice_and_marked_keys_are_kept_apart(tmp_path):
    one, two = torch.tensor(1), torch.tensor(2)
    state = {
        "a.b": one,
        "a": {"b": two, "0": one, 0: two},
        "$tensor": "a",
        "$": {"$$tuple": {"$float": "inf"}},
        "shared": [two, two],
        "deep": OrderedDict(x=(1, ((), [None, True, 1, 1.0, -0.0, float("nan"), 2**200]))),
    }
    back = through_files(tmp_path, state)
    assert same(back, state)
    assert back["shared"][0] is back["shared"][1]


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"groups": [{"lr": {1, 2}}]}, r"got builtins\.set at groups\.0\.lr"),
        ({"a": {"f": print}}, r"builtin_function_or_method at a\.f"),
        ({"size": torch.Size([1])}, r"torch\.Size at size"),
        ({"a": b"bytes"}, r"bytes at a"),
        ({"a": {(1, 2): 3}}, r"whole numbers, got \(1, 2\) at a"),
        ({True: 3}, "whole numbers, got True at the top"),
        ({"a": torch.float32}, r"torch\.dtype at a"),
        ([1], "state must be a mapping, got list"),
    ],
)
def test_anything_else_is_refused_with_its_path(state, message):
    with pytest.raises(ValueError, match=message):
        flatten_state(state)


def test_endless_and_deep_nesting_is_refused():
    endless = {}
    endless["self"] = endless
    with pytest.raises(ValueError, match=f"at most {MAX_DEPTH} deep, got self"):
        flatten_state(endless)
    deep = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ValueError, match=f"at most {MAX_DEPTH} deep"):
        unflatten_state({}, {"a": deep})
    while deep:  # freeing it level by level spares the interpreter's stack
        deep = deep.pop()


@pytest.mark.parametrize(
    "rest",
    [
        {"$tensor": "absent"},
        {"$tensor": 3},
        {"$float": "1.5"},
        {"$float": []},
        {"$tuple": 3},
        {"$dict": [[1]]},
        {"$dict": [[[], 1]]},
        {"$python": "print()"},
        {"$tuple": []},
        [],
        3,
    ],
)
def test_state_that_was_never_flattened_is_refused(rest):
    with pytest.raises(ValueError, match="state"):
        unflatten_state({}, rest)


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
TREES = st.recursive(
    LEAVES | st.sampled_from([torch.tensor(1.5), torch.empty(0, 2), torch.ones(2).bool()]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.integers() | st.text("$a.", max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


@FUZZ
@given(st.dictionaries(st.text("$a.", max_size=3) | st.integers(), TREES, max_size=4))
def test_any_nested_state_comes_back(state):
    tensors, rest = flatten_state(state)
    text = json.dumps(rest, allow_nan=False)
    assert same(unflatten_state(tensors, json.loads(text)), state)
