"""Keyed vectors, and every format that must give back what it was given."""

import json

import numpy as np
import polars as pl
import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from widemax.vectors import (
    KeyedVectors,
    read_numpy_vectors,
    read_projector_vectors,
    read_safetensors_vectors,
    read_word2vec_binary,
    read_word2vec_text,
    write_numpy_vectors,
    write_projector_vectors,
    write_safetensors_vectors,
    write_word2vec_binary,
    write_word2vec_text,
)

FORMATS = {
    "word2vec text": (read_word2vec_text, write_word2vec_text),
    "word2vec binary": (read_word2vec_binary, write_word2vec_binary),
    "numpy": (read_numpy_vectors, write_numpy_vectors),
    "safetensors": (read_safetensors_vectors, write_safetensors_vectors),
    "projector": (read_projector_vectors, write_projector_vectors),
}
# What each format cannot hold, in the words of its documentation.
UNWRITABLE = {
    "word2vec text": ["", "new york", "a\tb", "a\nb", "a\rb"],
    "word2vec binary": ["", "new york", "a\tb", "a\nb", "a\rb"],
    "numpy": ["a\nb", "a\r", "\ufeffa"],
    "safetensors": [],
    "projector": ["", "a\tb", "a\nb", "\r", "\ufeffa"],
}
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
WORDS = st.text(st.characters(exclude_categories=["Cs", "Zs", "Cc"], exclude_characters="\ufeff"))


@pytest.fixture(params=FORMATS)
def form(request):
    return request.param


def bits(vectors):
    return vectors.vectors.numpy().view(np.uint32)


def assert_returns(form, path, vectors):
    read, write = FORMATS[form]
    write(path, vectors)
    again = read(path)
    assert again == vectors
    np.testing.assert_array_equal(bits(again), bits(vectors))  # tells -0 from 0, too


def test_the_projector_is_given_titles_behind_keys_on_one_line_each(tmp_path):
    vectors = KeyedVectors(["key", "b", "c"], torch.eye(3))
    write_projector_vectors(tmp_path, vectors, ["Green\ttea", "two\r\nlines\x0b", ""])
    lines = (tmp_path / "metadata.tsv").read_text().split("\n")
    assert lines == ["key\ttitle", "key\tGreen tea", "b\ttwo lines", "c\t", ""]
    assert read_projector_vectors(tmp_path) == vectors
    with pytest.raises(ValueError, match="one for each of the 3 keys, got 1"):
        write_projector_vectors(tmp_path, vectors, ["one"])


def test_keys_and_rows_belong_together():
    vectors = KeyedVectors(["a", "b"], torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert (len(vectors), vectors.dimension) == (2, 2)
    assert vectors.vector("b").tolist() == [3.0, 4.0]
    assert "a" in vectors
    assert "c" not in vectors
    assert vectors.keys.to_list() == ["a", "b"]
    assert vectors == KeyedVectors(pl.Series(["a", "b"]), vectors.vectors.double())
    assert vectors != KeyedVectors(["b", "a"], vectors.vectors)
    assert vectors != KeyedVectors(["a", "b"], -vectors.vectors)
    assert vectors != "a"


def test_a_parameter_on_its_way_to_a_file_is_neither_copied_nor_tracked():
    weight = torch.nn.Parameter(torch.randn(3, 2))
    vectors = KeyedVectors([10, 20, 30], weight)
    assert vectors.vectors.data_ptr() == weight.data_ptr()
    assert not vectors.vectors.requires_grad
    assert vectors.vector("20").tolist() == weight[1].tolist()
    with pytest.raises(AttributeError):
        vectors.vectors = weight


@pytest.mark.parametrize(
    ("keys", "vectors", "message"),
    [
        (["a"], torch.ones(2, 1), "one row for each of the 1 keys, got 2"),
        (["a", "b", "a"], torch.ones(3, 1), r"keys\[2\] is 'a', which appears twice"),
        (["a", "b"], torch.tensor([[1.0], [torch.nan]]), r"NaN or inf in row 1 \(key 'b'\)"),
        (["a"], torch.tensor([[1e39]], dtype=torch.float64), r"NaN or inf in row 0 \(key 'a'\)"),
        ([], torch.ones(0, 3), r"at least one row and one column, got \[0, 3\]"),
        (["a"], torch.ones(1, 0), r"at least one row and one column, got \[1, 0\]"),
        (["a"], torch.ones(1), r"shape \[V, D\] .*got \[1\]"),
        (["a"], torch.ones(1, 1, dtype=torch.int64), r"floating point, got dtype torch\.int64"),
        (["a"], [[1.0]], "vectors must be a tensor, got list"),
        (["a", None], torch.ones(2, 1), r"keys\[1\] is null"),
        ("ab", torch.ones(2, 1), "keys must be a polars Series"),
    ],
)
def test_bad_arguments(keys, vectors, message):
    with pytest.raises(ValueError, match=message):
        KeyedVectors(keys, vectors)


def test_a_missing_key_is_named_with_near_spellings():
    vectors = KeyedVectors(["apple", "pear"], torch.ones(2, 1))
    with pytest.raises(ValueError, match=r"is 'aple', which is not among the 2 .*: 'apple'"):
        vectors.vector("aple")
    with pytest.raises(ValueError, match=r"key is 3, which is not among the 2 keys$"):
        vectors.vector(3)


def test_repr_is_short_and_escapes():
    text = repr(KeyedVectors(["\x1b[31m" + "x" * 1000, "b", "c", "d"], torch.ones(4, 2)))
    assert len(text) < 200
    assert "\x1b" not in text


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_every_format_returns_every_bit(form, tmp_path, data):
    words = WORDS.filter(bool) if form != "safetensors" else st.text(st.characters(codec="utf-8"))
    keys = data.draw(st.lists(words, min_size=1, max_size=5, unique=True))
    dimension = data.draw(st.integers(1, 4))
    row = st.lists(FLOATS, min_size=dimension, max_size=dimension)
    rows = data.draw(st.lists(row, min_size=len(keys), max_size=len(keys)))
    assert_returns(form, tmp_path / "file", KeyedVectors(keys, torch.tensor(rows)))


def test_formats_return_numbers_that_are_hard_to_round(form, tmp_path):
    """Through float64, 7.038531e-26 becomes its neighbour: the decimals lie next to the middle."""
    patterns = np.array([0x15AE43FD, 0, 1 << 31, 1, 0x7F7FFFFF, 0x00800000, 0x007FFFFF], np.uint32)
    generator = np.random.default_rng(0)
    patterns = np.append(patterns, generator.integers(0, 0x7F800000, 93, dtype=np.uint32))
    vectors = KeyedVectors(["a"], torch.from_numpy(patterns.view(np.float32)[None]))
    assert_returns(form, tmp_path / "file", vectors)


def test_formats_return_more_than_one_block(form, tmp_path):
    """Rows of some 4 kB and more of them than a block of 1 MB holds, keys of many lengths."""
    keys = [f"é{'x' * (number % 50)}{number}" for number in range(700)]
    vectors = KeyedVectors(keys, torch.randn(700, 1000, generator=torch.manual_seed(0)))
    assert_returns(form, tmp_path / "file", vectors)


def test_formats_replace_what_was_there(form, tmp_path):
    assert_returns(form, tmp_path / "file", KeyedVectors(["a", "b"], torch.ones(2, 3)))
    assert_returns(form, tmp_path / "file", KeyedVectors(["c"], torch.zeros(1, 1)))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("form", "key"), [(form, key) for form in FORMATS for key in UNWRITABLE[form]]
)
def test_keys_that_a_format_cannot_hold_are_refused(form, key, tmp_path):
    vectors = KeyedVectors(["fine", key], torch.ones(2, 1))
    with pytest.raises(ValueError, match=r"keys\[1\] must .*, got ") as raised:
        FORMATS[form][1](tmp_path / "file", vectors)
    assert repr(key) in str(raised.value)
    assert not list(tmp_path.iterdir())


def test_safetensors_library_reads_and_writes_the_same_bytes(tmp_path):
    for rows in range(1, 9):  # padding of every length
        path = tmp_path / "vectors.safetensors"
        keys = [f"ключ {'x' * row}\n" for row in range(rows)]
        vectors = KeyedVectors(keys, torch.randn(rows, 3))
        write_safetensors_vectors(path, vectors)
        tensors = safetensors.torch.load_file(path)
        assert torch.equal(tensors["vectors"], vectors.vectors)
        assert json.loads(bytes(tensors["keys"].tolist())) == keys
        safetensors.torch.save_file(tensors, tmp_path / "theirs", {"widemax.vectors.version": "1"})
        assert (tmp_path / "theirs").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("dtype", ["<f2", "<f4", ">f4", "<f8", ">f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_numpy_files_of_every_float_and_order(tmp_path, dtype, order):
    matrix = np.arange(6).reshape(3, 2).astype(dtype, order=order)
    np.save(tmp_path / "vectors.npy", matrix)
    (tmp_path / "keys.txt").write_bytes("\ufeffa\r\nb c\r\né".encode())
    vectors = read_numpy_vectors(tmp_path)
    assert vectors.keys.to_list() == ["a", "b c", "é"]
    assert vectors.vectors.tolist() == matrix.tolist()


def test_numpy_reads_what_we_write(tmp_path):
    vectors = KeyedVectors(["a", "b"], torch.randn(2, 3))
    write_numpy_vectors(tmp_path, vectors)
    mapped = np.load(tmp_path / "vectors.npy", mmap_mode="r", allow_pickle=False)
    assert mapped.tolist() == vectors.vectors.tolist()
    assert (tmp_path / "keys.txt").read_bytes() == b"a\nb\n"
