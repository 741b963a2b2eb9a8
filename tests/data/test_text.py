"""Text against str.split, whatever the blocks it is read in."""

import contextlib
import gzip
import os
import re
import sys
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzzing import FUZZ
from widemax.data.reading import codes as codes_module
from widemax.data.reading import tokens as tokens_module
from widemax.data.reading.text import encode_corpus, encode_text, read_corpus
from widemax.data.sample_corpus import python_reference
from widemax.vocabulary import Vocabulary

DATA = Path(os.environ.get("WIDEMAX_DATA", Path(__file__).parents[3] / "shared" / "data"))

WORDS = st.text(alphabet="abé,", min_size=1, max_size=4)
SPACES = st.sampled_from([" ", "\t", "  ", " \v\f ", "\r"])
LINES = st.lists(st.lists(WORDS, max_size=5), min_size=1, max_size=8)


def sentences_of(sequences, vocabulary):
    return [vocabulary.decode(sequences.sequence(index)) for index in range(len(sequences))]


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(codes_module, "_BLOCK_BYTES", 5)


@settings(max_examples=150, deadline=None)
@given(LINES.filter(any), SPACES, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.data())
def test_any_block_size_reads_the_same_sentences(lines, space, end, last_end, data):
    text = end.join(space.join(["", *line]) for line in lines) + end * last_end
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codes_module, "_BLOCK_BYTES", data.draw(st.integers(1, 40)))
        sequences, vocabulary = encode_text(text)
    assert sentences_of(sequences, vocabulary) == [line for line in lines if line]
    counted = Counter(word for line in lines for word in line).most_common()
    assert list(vocabulary.table.iter_rows()) == counted


@pytest.mark.usefixtures("small_blocks")
def test_files_folders_patterns_and_gzip(tmp_path):
    (tmp_path / "b.txt").write_text("three four\n")
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone two")  # no end of line
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "c").write_bytes(gzip.compress(b"five one"))
    (tmp_path / "_SUCCESS").write_bytes(b"\0")
    (tmp_path / ".hidden").write_bytes(b"\0")
    expected = [["one", "two"], ["three", "four"], ["five", "one"]]
    assert sentences_of(*read_corpus(tmp_path)) == expected
    assert sentences_of(*read_corpus(tmp_path / "*.txt")) == expected[:2]
    assert sentences_of(*read_corpus(str(tmp_path / "**" / "c"))) == expected[2:]


def test_a_name_that_is_a_pattern_names_its_file_first(tmp_path):
    (tmp_path / "a[1].txt").write_text("this")
    (tmp_path / "a1.txt").write_text("other")
    assert sentences_of(*read_corpus(tmp_path / "a[1].txt")) == [["this"]]


def test_rare_words_and_short_lines_go(tmp_path):
    path = tmp_path / "corpus"
    path.write_text("rum tea rum\nrum gin\ntea\n")
    assert sentences_of(*read_corpus(path, min_count=2, min_length=2)) == [["rum", "tea", "rum"]]
    sequences, vocabulary = read_corpus(path, min_count=2, unknown="<unk>")
    assert sentences_of(sequences, vocabulary)[1] == ["rum", "<unk>"]
    assert vocabulary.unknown == "<unk>"
    assert vocabulary.total == 6
    assert len(read_corpus(path, max_size=1)[1]) == 1


@pytest.mark.usefixtures("small_blocks")
def test_a_line_may_be_longer_than_any_block(tmp_path):
    path = tmp_path / "long"
    path.write_text("one two three " * 50)
    sequences, _ = read_corpus(path)
    assert sequences.lengths.tolist() == [150]


def test_other_white_space_is_part_of_a_word(tmp_path):
    path = tmp_path / "corpus"
    path.write_bytes("a\u00a0b c\u2028d\x85e".encode())
    assert sentences_of(*read_corpus(path)) == [["a\u00a0b", "c\u2028d\x85e"]]


def test_python_reference_is_real_language():
    text = python_reference()
    words = text.split()
    assert 50_000 < sum(word.isalpha() for word in words) < 200_000
    assert text == text.lower()
    sequences, vocabulary = encode_text(text, min_count=3, unknown="<unk>")
    assert len(sequences) == text.count("\n")
    assert {"the", "of", ".", "class"} <= set(vocabulary.keys[:100])


@settings(max_examples=100, deadline=None)
@given(LINES.filter(any), st.booleans(), st.sampled_from([None, r"\S+"]), st.integers(1, 40))
def test_the_end_of_a_line_is_a_word_like_any_other(lines, last_end, tokens, block_bytes):
    text = "\n".join(" ".join(line) for line in lines)
    expected = [[*line, "b"] for line in (lines if lines[-1] else lines[:-1])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codes_module, "_BLOCK_BYTES", block_bytes)
        sequences, vocabulary = encode_text(
            text + "\n" * (last_end and bool(lines[-1])), end="b", tokens=tokens
        )
    assert sentences_of(sequences, vocabulary) == expected
    counted = Counter(word for line in expected for word in line).most_common()
    assert list(vocabulary.table.iter_rows()) == counted


def test_lines_without_words_have_an_end_too(tmp_path):
    path = tmp_path / "corpus"
    path.write_text("one two\n\n \nthree")
    ended = [["one", "two", "."], ["."], ["."], ["three", "."]]
    assert sentences_of(*read_corpus(path, end=".")) == ended
    assert sentences_of(*read_corpus(path, end=".", min_length=2)) == [ended[0], ended[3]]
    path.write_text("\n\n")
    with pytest.raises(ValueError, match="is empty: it holds no word"):
        read_corpus(path, end=".")
    with pytest.raises(ValueError, match="must hold at least one word"):
        encode_text("\n\n", end=".")


@pytest.mark.parametrize("end", ["", " ", "a b", "a\n", "a\0", "\ud800", "x" * 70_000, 7])
def test_an_end_must_be_a_word(end):
    with pytest.raises(ValueError, match=r"end must be (one word|UTF-8|a string).*got"):
        encode_text("one two", end=end)


PATTERNS = [r"\S+", r"[a-zé]+", r"\w+|[^\w\s]", r"é*", r"a.*b", ","]


@settings(max_examples=60, deadline=None)
@given(
    LINES, SPACES, st.sampled_from(["\n", "\r\n"]), st.sampled_from(PATTERNS), st.integers(5, 40)
)
def test_words_by_regular_expression(lines, space, line_end, pattern, block_bytes):
    text = line_end.join(space.join(line) for line in lines)
    found = [re.findall(pattern, line.removesuffix("\r")) for line in text.split("\n")]
    expected = [words for line in found if (words := [word for word in line if word])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codes_module, "_BLOCK_BYTES", block_bytes)
        if not expected:
            with pytest.raises(ValueError, match="must hold at least one word"):
                encode_text(text, tokens=pattern)
            return
        sequences, vocabulary = encode_text(text, tokens=pattern)
    assert sentences_of(sequences, vocabulary) == expected


@pytest.mark.parametrize("tokens", ["(", "(?=a)", r"(a)\1", "(a{1000}){1000}", "", 5, "\ud800"])
def test_bad_regular_expressions_are_named(tokens):
    named = re.escape(repr(tokens))
    with pytest.raises(ValueError, match=f"tokens must be a regular expression.*got {named}"):
        encode_text("one two", tokens=tokens)


def test_what_is_too_long_for_a_regular_expression(tmp_path, monkeypatch):
    path = tmp_path / "corpus"
    path.write_text("one\n" + "x" * 70_000)
    with pytest.raises(ValueError, match="corpus, line 2: a word of more than 65,536 bytes"):
        read_corpus(path, tokens="x+")
    assert len(read_corpus(path, tokens="x")[0].values) == 70_000
    monkeypatch.setattr(tokens_module, "MAX_LINE_BYTES", 100)
    monkeypatch.setattr(codes_module, "_BLOCK_BYTES", 64)
    with pytest.raises(ValueError, match="corpus, line 2: a line of more than"):
        read_corpus(path, tokens="x")


def test_no_regular_expression_takes_more_than_linear_time():
    assert len(encode_text("a" * 50_000 + "c", tokens="(a|a)*b|c")[0].values) == 1


def test_more_text_with_the_same_classes(tmp_path):
    path = tmp_path / "valid"
    path.write_text("rum or tea\nor\n\ntea <unk>\n")
    words = ["tea", "tea", "rum", "."]
    sequences, unseen = encode_corpus(path, Vocabulary.count(words))
    assert sequences.values.tolist() == [1, 0, 0]
    assert (sequences.lengths.tolist(), unseen) == ([2, 1], 3)
    sequences, unseen = encode_corpus(path, Vocabulary.count(words), end=".", min_length=2)
    assert sequences.values.tolist() == [1, 0, 2, 0, 2]
    assert (sequences.lengths.tolist(), unseen) == ([3, 2], 3)
    with_unknown = Vocabulary.count([*words, "<unk>"], unknown="<unk>")
    sequences, unseen = encode_corpus(path, with_unknown, tokens=r"\S+")
    assert with_unknown.decode(sequences.values) == ["rum", "<unk>", "tea", "<unk>", "tea", "<unk>"]
    assert (sequences.lengths.tolist(), unseen) == ([3, 1, 2], 2)


def test_more_text_that_cannot_be(tmp_path):
    path = tmp_path / "valid"
    path.write_text("rum or tea\n")
    with pytest.raises(ValueError, match="vocabulary must hold words, got whole numbers"):
        encode_corpus(path, Vocabulary.count([1, 2]))
    with pytest.raises(ValueError, match="end must be one of the 1 keys, got '<eos>'"):
        encode_corpus(path, Vocabulary.count(["rum"]), end="<eos>")
    with pytest.raises(ValueError, match="valid has no line with 1 of the 1 keys in it"):
        encode_corpus(path, Vocabulary.count(["gin"]))
    with pytest.raises(ValueError, match="min_length must be between 1"):
        encode_corpus(path, Vocabulary.count(["rum"]), min_length=0)


def test_the_reader_ends_before_its_file(tmp_path, monkeypatch):
    """An error in the first block leaves no thread that goes on with the next."""
    monkeypatch.setattr(codes_module, "_BLOCK_BYTES", 2**16)
    path = tmp_path / "corpus.gz"
    path.write_bytes(gzip.compress(b"a\0 " + b"word " * 2**20))
    before = threading.active_count()
    with pytest.raises(ValueError, match="line 1: holds a NUL byte"):
        read_corpus(path)
    assert threading.active_count() == before


def zstd():
    name = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
    return pytest.importorskip(name, reason="zstd needs Python 3.14 or backports.zstd")


def test_zstd_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(codes_module, "_BLOCK_BYTES", 1000)
    compress = zstd().compress
    path = tmp_path / "corpus"
    path.write_bytes(compress(b"one two\n" * 999) + compress(b"three"))  # two frames, as pzstd
    sequences, vocabulary = read_corpus(path)
    assert len(sequences) == 1000
    assert vocabulary.keys.to_list() == ["one", "two", "three"]


@FUZZ
@given(st.floats(0, 1), st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=3))
def test_zstd_with_bytes_changed_or_cut_off(tmp_path, length, changes):
    rng = np.random.default_rng(0)
    whole = zstd().compress(" ".join(map(str, rng.integers(0, 10**6, 300))).encode())
    data = bytearray(whole)
    for place, byte in changes:
        data[4 + int(place * (len(data) - 5))] = byte  # what is recognised stays
    path = tmp_path / "corpus"
    path.write_bytes(data[: max(4, int(length * len(data)))])
    if len(path.read_bytes()) < len(whole):
        with pytest.raises(ValueError, match="corpus is not a whole zstd file"):
            read_corpus(path)
        return
    # With bytes changed only, it may be broken or may not; any other error than this fails.
    with contextlib.suppress(ValueError):
        read_corpus(path)


def test_zstd_without_its_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "backports.zstd", None)
    monkeypatch.setitem(sys.modules, "compression.zstd", None)
    path = tmp_path / "corpus"
    path.write_bytes(b"\x28\xb5\x2f\xfd\0\0")
    with pytest.raises(ValueError, match=r"corpus is packed with zstd: .*pip install"):
        read_corpus(path)


@pytest.mark.skipif(not (DATA / "ptb").is_dir(), reason="no Penn Treebank in WIDEMAX_DATA")
def test_penn_treebank_has_its_published_counts():
    train, vocabulary = read_corpus(DATA / "ptb" / "ptb.train.txt", end="<eos>")
    assert (len(vocabulary), len(train.values)) == (10_000, 929_589)
    for name, count in (("valid", 73_760), ("test", 82_430)):
        path = DATA / "ptb" / f"ptb.{name}.txt"
        sequences, unseen = encode_corpus(path, vocabulary, end="<eos>")
        assert (len(sequences.values), unseen) == (count, 0)


@pytest.mark.skipif(not (DATA / "wikitext-2").is_dir(), reason="no WikiText-2 in WIDEMAX_DATA")
def test_wikitext_has_its_published_counts():
    """Lines without words are counted there: each is the end of one."""
    train, vocabulary = read_corpus(DATA / "wikitext-2" / "train.txt", end="<eos>")
    assert (len(vocabulary), len(train.values)) == (33_278, 2_088_628)
    test, unseen = encode_corpus(DATA / "wikitext-2" / "test.txt", vocabulary, end="<eos>")
    assert (len(test.values), unseen) == (245_569, 0)


def test_codes_are_joined_over_the_ends_of_pieces(tmp_path, monkeypatch):
    words = [f"w{number * number % 97}" for number in range(500)]
    path = tmp_path / "corpus"
    path.write_text("\n".join(" ".join(words[start : start + 7]) for start in range(0, 500, 7)))
    whole, vocabulary = read_corpus(path)
    monkeypatch.setattr(codes_module, "_FIRST_PIECE", 3)
    monkeypatch.setattr(codes_module, "_LARGEST_PIECE", 24)
    monkeypatch.setattr(codes_module, "_BLOCK_BYTES", 50)
    in_pieces, same = read_corpus(path)
    assert vocabulary.decode(in_pieces.values) == words
    assert same.keys.equals(vocabulary.keys)
    assert in_pieces.offsets.equal(whole.offsets)
