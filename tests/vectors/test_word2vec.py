"""word2vec files: what gensim writes and reads, and what no bytes may do to the readers."""

import tracemalloc
import warnings
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from tests.fuzzing import FUZZ
from widemax.vectors import (
    KeyedVectors,
    read_word2vec_binary,
    read_word2vec_text,
    write_word2vec_binary,
    write_word2vec_text,
)

FORMATS = {
    "text": (read_word2vec_text, write_word2vec_text),
    "binary": (read_word2vec_binary, write_word2vec_binary),
}
KEYS = ["the", "</s>", "naïve", "東京", "a\u00a0b", '"', "#", "1.5", "new_york"]
# One block of 1 MB, its line in a second copy, and room for polars' Python side.
MOST_MEMORY = 2**23


@pytest.fixture(params=FORMATS)
def form(request):
    return request.param


@pytest.fixture
def vectors():
    return KeyedVectors(KEYS, torch.randn(len(KEYS), 7, generator=torch.manual_seed(0)))


def nearest_float32(text):
    """The plain reference: of the neighbours of a first guess the nearest, in exact arithmetic."""
    guess = np.float32(float(text))  # first, because it ends a tie at the even one
    near = [guess, *(np.nextafter(guess, np.float32(end)) for end in (-np.inf, np.inf))]
    return min(near, key=lambda value: abs(Fraction(float(value)) - Fraction(text)))


def plain_reader(text):
    header, *lines = text.removesuffix("\n").split("\n")
    rows = [line.split(" ") for line in lines]
    assert header.split() == [str(len(rows)), str(len(rows[0]) - 1)]
    return {key: [nearest_float32(number) for number in numbers] for key, *numbers in rows}


def test_gensim_reads_ours(form, tmp_path, vectors):
    gensim = pytest.importorskip("gensim.models")
    FORMATS[form][1](tmp_path / "file", vectors)
    theirs = gensim.KeyedVectors.load_word2vec_format(tmp_path / "file", binary=form == "binary")
    assert theirs.index_to_key == KEYS
    np.testing.assert_array_equal(theirs.vectors, vectors.vectors.numpy())


def test_we_read_gensims(form, tmp_path, vectors):
    gensim = pytest.importorskip("gensim.models")
    theirs = gensim.KeyedVectors(vectors.dimension)
    theirs.add_vectors(KEYS, vectors.vectors.numpy())
    theirs.save_word2vec_format(tmp_path / "file", binary=form == "binary")
    assert FORMATS[form][0](tmp_path / "file") == vectors


def test_text_agrees_with_a_plain_reader(tmp_path):
    """Numbers of every length and exponent, as no writer of ours makes them."""
    generator = np.random.default_rng(1)
    rows = []
    for row in range(40):
        values = generator.standard_normal(8) * 10.0 ** generator.integers(-30, 30, 8)
        digits = generator.integers(1, 25, 8)
        numbers = (f"{v:.{d}{'eg'[d % 2]}}" for v, d in zip(values, digits, strict=True))
        rows.append(f"k{row} {' '.join(numbers)}")
    rows.append("hard 7.038531e-26 -.5 5. +3 1E-3 007 1e-60 16777217.0000000001")
    text = f"{len(rows)} 8\n" + "\n".join(rows) + "\n"
    (tmp_path / "file").write_text(text)
    ours = read_word2vec_text(tmp_path / "file")
    expected = plain_reader(text)
    assert ours.keys.to_list() == list(expected)
    np.testing.assert_array_equal(ours.vectors.numpy(), np.array(list(expected.values())))


def test_text_with_the_line_ends_of_other_tools(tmp_path):
    """The original tool leaves a space at the end of a line; Windows a carriage return."""
    (tmp_path / "file").write_bytes(b"2 2\r\na 1 2 \r\nb 3 4 \n")
    assert read_word2vec_text(tmp_path / "file").vectors.tolist() == [[1, 2], [3, 4]]


def test_binary_with_and_without_newlines(tmp_path):
    rows = [b"a " + np.array([1, 2], "<f4").tobytes(), b"b " + np.array([3, 4], "<f4").tobytes()]
    for end in (b"", b"\n"):
        (tmp_path / "file").write_bytes(b"2 2\n" + rows[0] + end + rows[1] + end)
        vectors = read_word2vec_binary(tmp_path / "file")
        assert vectors.keys.to_list() == ["a", "b"]
        assert vectors.vectors.tolist() == [[1, 2], [3, 4]]


def test_binary_numbers_may_look_like_text(tmp_path):
    """Spaces and newlines inside of numbers are neither ends of keys nor of rows."""
    matrix = np.frombuffer(b"    \n\n\n\na b \n c\n", "<f4").reshape(2, 2)
    vectors = KeyedVectors(["a", "b"], torch.from_numpy(matrix.copy()))
    write_word2vec_binary(tmp_path / "file", vectors)
    assert read_word2vec_binary(tmp_path / "file") == vectors


def check_reader(read, path, data):
    """Assert that a file gives sound vectors or a ValueError, within bounded memory."""
    path.write_bytes(data)
    tracemalloc.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for bad_rows in ("error", "skip"):
                vectors = None
                try:
                    vectors = read(path, bad_rows=bad_rows)
                except ValueError as error:
                    assert str(path) in str(error)  # noqa: PT017
                if vectors is not None:
                    assert vectors.vectors.shape == (len(vectors.keys), vectors.dimension)
                    assert 4 * vectors.vectors.numel() <= 2 * len(data)
        assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY
    finally:
        tracemalloc.stop()


NUMBERS = st.sampled_from(["0", "1.5", "-2e-3", "nan", "inf", "1e99", "x", "", "١", "1_0", "0x1"])
LINES = st.lists(st.lists(NUMBERS | st.text(max_size=3), max_size=4).map(" ".join), max_size=5)
HEADERS = st.builds(
    "{} {}\n".format,
    st.integers(0, 5) | st.integers(0, 10**20),
    st.integers(0, 4) | st.integers(0, 10**20),
)


@FUZZ
@given(data=st.binary(max_size=300))
@example(b"")
@example(b"\n")
@example(b"1 1")
def test_random_bytes_are_vectors_or_a_value_error(form, tmp_path, data):
    check_reader(FORMATS[form][0], tmp_path / "file", data)


@FUZZ
@given(header=HEADERS, data=st.binary(max_size=100) | LINES.map("\n".join).map(str.encode))
@example(header="1 1\n", data=b"a 0x1\n")
@example(header="1 1\n", data=b"\xff 1\n")
def test_random_rows_are_vectors_or_a_value_error(form, tmp_path, header, data):
    check_reader(FORMATS[form][0], tmp_path / "file", header.encode() + data + b"\n")


@FUZZ
@given(data=st.data())
def test_damaged_files_are_vectors_or_a_value_error(form, tmp_path, vectors, data):
    FORMATS[form][1](tmp_path / "file", vectors)
    damaged = bytearray((tmp_path / "file").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(damaged)))
        length = data.draw(st.integers(0, 8))
        damaged[place : place + length] = data.draw(st.binary(max_size=8))
    check_reader(FORMATS[form][0], tmp_path / "file", bytes(damaged))
