"""Tables in a file: what survives, what is shared, and what is refused."""

import copy
import shutil
import types

import numpy as np
import pytest
import torch
from torch import nn

from tests import forked
from widemax.heads import FullHead, SampledHead, as_table, class_vectors_of
from widemax.heads.exact import linear
from widemax.sampling import LogUniformSampler, UniformSampler
from widemax.scoring import TableScorer, mapped

V, D = 50, 4


@pytest.fixture
def path(tmp_path):
    return tmp_path / "vectors.npy"


def fill(scorer, seed=0):
    """Write numbers into a table, and return a table in memory that has the same."""
    generator = torch.Generator().manual_seed(seed)
    plain = TableScorer(
        scorer.num_classes,
        scorer.dimension,
        bias=scorer.bias is not None,
        similarity=scorer.similarity,
        temperature=scorer.temperature,
        sparse=True,
    )
    for parameter in plain.parameters():
        nn.init.normal_(parameter, generator=generator)
    scorer.load_state_dict(plain.state_dict())
    return plain


def on_disk(path):
    return path.stat().st_blocks * 512


def test_a_new_table_is_zeros_that_take_no_disk(path):
    scorer = TableScorer.mapped(path, 10**6, 64, bias=True)
    biases = path.with_name("vectors.bias.npy")
    assert sorted(path.parent.iterdir()) == [biases, path]
    assert path.stat().st_size > 10**6 * 64 * 4
    assert on_disk(path) + on_disk(biases) < 2**20
    ids = torch.tensor([0, 7, 10**6 - 1])
    assert scorer.class_vectors(ids).eq(0).all()
    assert scorer.class_biases(ids).eq(0).all()


def test_the_file_is_a_plain_numpy_array(path):
    scorer = TableScorer.mapped(path, V, D)
    plain = fill(scorer)
    scorer.flush()
    assert np.array_equal(np.load(path, allow_pickle=False), plain.weight.detach().numpy())
    # And one that NumPy wrote is a table.
    other = path.with_name("other.npy")
    np.save(other, plain.weight.detach().numpy())
    assert torch.equal(TableScorer.mapped(other, V, D).weight, plain.weight)


def test_normal_start_is_that_of_a_table_in_memory(path, monkeypatch):
    monkeypatch.setattr(mapped, "_BLOCK_VALUES", 999)  # many blocks, the last one smaller
    torch.manual_seed(0)
    scorer = TableScorer.mapped(path, 5_000, 8, initial="normal")
    assert scorer.weight.std().item() == pytest.approx(8**-0.5, rel=0.02)
    assert scorer.weight.mean().item() == pytest.approx(0, abs=0.01)
    assert scorer.weight[-1].ne(0).all()
    assert len(scorer.weight.unique(dim=0)) == 5_000
    torch.manual_seed(0)
    again = TableScorer.mapped(path.with_name("again.npy"), 5_000, 8, initial="normal")
    assert torch.equal(again.weight, scorer.weight)


def test_a_file_that_is_there_is_opened_as_it_is(path):
    plain = fill(TableScorer.mapped(path, V, D, bias=True))
    again = TableScorer.mapped(path, V, D, bias=True, initial="normal")
    assert torch.equal(again.weight, plain.weight)
    assert torch.equal(again.bias, plain.bias)


def test_two_scorers_of_one_file_see_each_others_updates(path):
    one, other = (TableScorer.mapped(path, V, D, bias=True) for _ in range(2))
    optimizer = torch.optim.SGD(one.parameters(), lr=0.1)
    one(torch.ones(2, D), torch.tensor([3, 5])).sum().backward()
    optimizer.step()
    assert other.weight[3].ne(0).all()
    assert other.bias[5].ne(0)
    assert torch.equal(one.weight, other.weight)
    assert torch.equal(one.bias, other.bias)


@pytest.mark.parametrize(
    "options",
    [{}, {"bias": True}, {"bias": True, "similarity": "cosine", "temperature": 0.5}],
    ids=str,
)
def test_training_is_that_of_a_table_in_memory(path, options):
    on_file = TableScorer.mapped(path, V, D, initial="normal", **options)
    plain = fill(on_file)
    before = plain.weight.detach().clone()
    generator = torch.Generator().manual_seed(1)
    hidden, targets = torch.randn(6, D, generator=generator), torch.arange(6)
    for scorer in (on_file, plain):
        head = SampledHead(scorer, UniformSampler(V), num_samples=5)
        optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
        draws = torch.Generator().manual_seed(2)
        for _ in range(3):
            optimizer.zero_grad()
            head(hidden, targets, generator=draws).mean().backward()
            assert all(each.grad.is_sparse for each in scorer.parameters())
            optimizer.step()
    assert not torch.equal(plain.weight, before)
    for one, other in zip(on_file.parameters(), plain.parameters(), strict=True):
        assert torch.equal(one, other)
    assert torch.equal(TableScorer.mapped(path, V, D, **options).weight, plain.weight)


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_evaluation_over_all_classes_is_that_of_a_table_in_memory(path, similarity, monkeypatch):
    monkeypatch.setattr(linear, "_TILE_SCORES", 21)
    monkeypatch.setattr(linear, "_TOPK_TILE_SCORES", 21)
    scorer = TableScorer.mapped(path, V, D, bias=True, similarity=similarity, initial="normal")
    plain = fill(scorer)
    hidden, targets = torch.randn(6, D), torch.arange(6)
    one, other = FullHead(scorer), FullHead(plain)
    assert torch.equal(one(hidden, targets), other(hidden, targets))
    assert torch.equal(one.log_prob(hidden), other.log_prob(hidden))
    assert torch.equal(one.topk(hidden, 7).ids, other.topk(hidden, 7).ids)
    assert torch.equal(class_vectors_of(scorer), class_vectors_of(plain))
    if similarity == "dot":
        # The dense gradient of a loss over all classes is in memory, and right.
        for head in (one, other):
            head(hidden, targets).sum().backward()
        torch.testing.assert_close(scorer.weight.grad, plain.weight.grad)


def test_the_file_is_the_state(path):
    model = nn.ModuleDict({"encoder": nn.Linear(D, D), "head": nn.Module()})
    model["head"].scorer = scorer = TableScorer.mapped(path, V, D, bias=True)
    plain = fill(scorer)
    state = model.state_dict()
    assert set(state) == {"encoder.weight", "encoder.bias"}
    model.load_state_dict(state)  # strict: nothing is missing
    assert torch.equal(scorer.weight, plain.weight)
    with pytest.raises(RuntimeError, match=r"encoder\.bias"):
        model.load_state_dict({"encoder.weight": state["encoder.weight"]})
    with pytest.raises(RuntimeError, match="size mismatch for weight"):
        scorer.load_state_dict(TableScorer(V + 1, D, bias=True).state_dict())


@pytest.mark.parametrize("assign", [False, True])
def test_a_state_with_vectors_is_copied_into_the_file(path, assign):
    scorer, plain = TableScorer.mapped(path, V, D, bias=True), TableScorer(V, D, bias=True)
    nn.init.normal_(plain.bias)
    scorer.load_state_dict(plain.state_dict(), assign=assign)
    again = TableScorer.mapped(path, V, D, bias=True)
    assert torch.equal(again.weight, plain.weight)
    assert torch.equal(again.bias, plain.bias)


def test_copies_casts_and_moves_are_refused(path):
    scorer = TableScorer.mapped(path, V, D)
    plain, head = fill(scorer), FullHead(scorer)
    with pytest.raises(ValueError, match=r"not deep-copied.*copy the file .*vectors\.npy"):
        copy.deepcopy(head)
    for change in (head.double, head.bfloat16, lambda: head.to("meta")):
        with pytest.raises(ValueError, match=r"stays torch\.float32 on the CPU, in its file"):
            change()
    place = scorer.weight.data_ptr()
    head.float().cpu().to("cpu", torch.float32).share_memory()
    assert scorer.weight.data_ptr() == place
    assert torch.equal(as_table(scorer).double().weight, plain.weight.double())


def test_biases_are_neither_dropped_nor_mistaken(path):
    plain = fill(TableScorer.mapped(path, V, D, bias=True))
    with pytest.raises(
        ValueError, match=r"bias is False, but .*vectors\.bias\.npy: pass bias=True"
    ):
        TableScorer.mapped(path, V, D)
    # A table without biases may get some.
    (path.with_name("vectors.bias.npy")).unlink()
    assert torch.equal(TableScorer.mapped(path, V, D).weight, plain.weight)
    assert TableScorer.mapped(path, V, D, bias=True).bias.eq(0).all()


def save(path, array):
    with path.open("wb") as file:  # np.save would append .npy to some names
        np.save(file, array)


def cut(path):
    save(path, np.zeros((V, D), np.float32))
    path.write_bytes(path.read_bytes()[:-1])


FOREIGN = {
    "other classes": (
        lambda path: save(path, np.zeros((V + 1, D), np.float32)),
        r"holds float32 \[51, 4\], but float32 \[50, 4\] was asked for",
    ),
    "other dimension": (
        lambda path: save(path, np.zeros((V, D + 1), np.float32)),
        r"holds float32 \[50, 5\], but float32 \[50, 4\] was asked for",
    ),
    "biases": (
        lambda path: save(path, np.zeros(V, np.float32)),
        r"holds float32 \[50\], but float32 \[50, 4\] was asked for",
    ),
    "other dtype": (
        lambda path: save(path, np.zeros((V, D), np.float64)),
        r"holds float64 \[50, 4\], but float32 \[50, 4\] was asked for",
    ),
    "other bytes": (
        lambda path: save(path, np.zeros((V, D), ">f4")),
        r"holds >f4 \[50, 4\], but float32 \[50, 4\] was asked for",
    ),
    "by columns": (
        lambda path: save(path, np.zeros((V, D), np.float32, order="F")),
        r"holds float32 \[50, 4\] by columns, but float32 \[50, 4\] was asked for",
    ),
    "objects": (
        lambda path: save(path, np.array([{}])),
        r"holds object \[1\], but float32 \[50, 4\] was asked for",
    ),
    "truncated": (cut, "is damaged: it has 927 bytes instead of 928"),
    "only a header": (
        lambda path: (cut(path), path.write_bytes(path.read_bytes()[:128])),
        "is damaged: it has 128 bytes instead of 928",
    ),
    "half a header": (
        lambda path: (cut(path), path.write_bytes(path.read_bytes()[:60])),
        "is not a NumPy file",
    ),
    "longer": (
        lambda path: (cut(path), path.write_bytes(path.read_bytes() + b"12")),
        "is damaged: it has 929 bytes instead of 928",
    ),
    "empty": (lambda path: path.touch(), "is not a NumPy file"),
    "text": (lambda path: path.write_text("some text\n" * 100), "is not a NumPy file"),
    "a broken header": (
        lambda path: (cut(path), path.write_bytes(path.read_bytes().replace(b"}", b"{"))),
        "is not a NumPy file",
    ),
    "a header that is code": (
        lambda path: path.write_bytes(b"\x93NUMPY\x01\x00\x10\x00print('danger')\n"),
        "is not a NumPy file",
    ),
}


@pytest.mark.parametrize(("make", "message"), FOREIGN.values(), ids=FOREIGN)
def test_another_file_is_refused_and_left_alone(path, make, message, capsys):
    make(path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=rf"vectors\.npy {message}"):
        TableScorer.mapped(path, V, D, initial="normal")
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
    assert capsys.readouterr().out == ""


def test_what_cannot_be_opened_or_created_is_named(tmp_path, path):
    with pytest.raises(ValueError, match="cannot be opened for writing: Is a directory"):
        TableScorer.mapped(tmp_path, V, D)
    with pytest.raises(ValueError, match="path must lie in an existing folder"):
        TableScorer.mapped(tmp_path / "absent" / "vectors.npy", V, D)
    path.symlink_to(tmp_path / "gone.npy")
    with pytest.raises(ValueError, match="cannot be opened for writing: No such file"):
        TableScorer.mapped(path, V, D)
    with pytest.raises(ValueError, match="cannot be opened for writing: File name too long"):
        TableScorer.mapped(tmp_path / ("x" * 300), V, D)


def test_a_read_only_file_is_named(path):
    TableScorer.mapped(path, V, D)
    path.chmod(0o444)
    try:
        path.open("r+b").close()
    except PermissionError:
        with pytest.raises(ValueError, match="cannot be opened for writing: Permission denied"):
            TableScorer.mapped(path, V, D)
    else:
        pytest.skip("this user may write any file")


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((2**38, 2), {}, "dimension must be between 1 and 1, got 2"),
        ((2**38 + 1, 1), {}, "num_classes must be between"),
        ((0, D), {}, "num_classes must be between"),
        ((V, 0), {}, "dimension must be between"),
        ((V, D), {"initial": "ones"}, "initial must be 'zeros' or 'normal', got 'ones'"),
        ((V, D), {"similarity": "cosine"}, "initial must be 'normal' where .* cosine"),
        ((V, D), {"similarity": "l2"}, "similarity must be"),
        ((V, D), {"temperature": 0.0}, "temperature must be"),
    ],
)
def test_wrong_arguments_create_nothing(path, arguments, options, message):
    with pytest.raises(ValueError, match=message):
        TableScorer.mapped(path, *arguments, **options)
    assert not list(path.parent.iterdir())


def test_a_table_larger_than_the_free_disk_is_not_created(path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: types.SimpleNamespace(free=V * D * 4 - 1))
    with pytest.raises(ValueError, match="needs 800 bytes, but only 799 are free"):
        TableScorer.mapped(path, V, D)
    assert not list(path.parent.iterdir())


def test_reserved_room_is_taken_at_once_and_nothing_is_lost(path):
    plain = fill(TableScorer.mapped(path, V, D))
    large = path.with_name("large.npy")
    TableScorer.mapped(large, 10**5, 64)
    assert on_disk(large) < 2**20
    TableScorer.mapped(large, 10**5, 64, reserve=True)
    assert on_disk(large) >= 10**5 * 64 * 4
    assert torch.equal(TableScorer.mapped(path, V, D, reserve=True).weight, plain.weight)


def test_a_failure_while_creating_leaves_nothing_behind(path, monkeypatch):
    def no_space(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(mapped.os, "fsync", no_space)
    with pytest.raises(ValueError, match="cannot be created: No space left on device"):
        TableScorer.mapped(path, V, D)
    assert not list(path.parent.iterdir())


def test_a_file_that_appears_meanwhile_is_not_replaced(path, monkeypatch):
    plain = fill(TableScorer.mapped(path, V, D))
    monkeypatch.setattr(mapped, "_is_missing", lambda _: True)  # as if looked for just before
    assert torch.equal(TableScorer.mapped(path, V, D).weight, plain.weight)
    assert list(path.parent.iterdir()) == [path]


SECOND_PROCESS = """
import os, sys, torch
from widemax.scoring import TableScorer
path, expected = sys.argv[1:]
scorer = TableScorer.mapped(path, 100_000, 8, bias=True)
ids, vectors, biases = torch.load(expected, weights_only=True)
assert torch.equal(scorer.weight[ids], vectors) and torch.equal(scorer.bias[ids], biases)
with torch.no_grad():
    scorer.weight[7] = 42
print(int(scorer.weight.ne(0).any(1).sum()), flush=True)
os._exit(0)  # no flush, no clean end: what was written is the kernel's already
"""


def test_a_second_process_finds_exactly_what_was_learned(path, tmp_path):
    scorer = TableScorer.mapped(path, 100_000, 8, bias=True)
    sampler = LogUniformSampler(100_000)
    head = SampledHead(scorer, sampler, num_samples=64)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(0)
    touched = set()
    for _ in range(5):
        targets = sampler.draw((32,), generator=generator)
        optimizer.zero_grad()
        head(
            torch.randn(32, 8, generator=generator), targets, generator=generator
        ).mean().backward()
        touched.update(scorer.weight.grad._indices()[0].tolist())
        optimizer.step()
    scorer.flush()
    ids = torch.tensor(sorted(touched - {7}))
    expected = tmp_path / "expected.pt"
    torch.save((ids, scorer.weight[ids].detach(), scorer.bias[ids].detach()), expected)
    done = forked.run(["-c", SECOND_PROCESS, path, expected])
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == len(ids) + 1
    assert scorer.weight[7].eq(42).all()
