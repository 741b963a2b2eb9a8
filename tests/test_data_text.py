"""Text against str.split, whatever the blocks it is read in."""

import gzip
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from widemax.data import text as text_module
from widemax.data.python_reference import python_reference
from widemax.data.text import encode_text, read_corpus

WORDS = st.text(alphabet="abé,", min_size=1, max_size=4)
SPACES = st.sampled_from([" ", "\t", "  ", " \v\f ", "\r"])
LINES = st.lists(st.lists(WORDS, max_size=5), min_size=1, max_size=8)


def sentences_of(sequences, vocabulary):
    return [vocabulary.decode(sequences.sequence(index)) for index in range(len(sequences))]


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(text_module, "_BLOCK_BYTES", 5)


@settings(max_examples=150, deadline=None)
@given(LINES.filter(any), SPACES, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.data())
def test_any_block_size_reads_the_same_sentences(lines, space, end, last_end, data):
    text = end.join(space.join(["", *line]) for line in lines) + end * last_end
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_module, "_BLOCK_BYTES", data.draw(st.integers(1, 40)))
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
