"""What was read once is read from beside the source, and never trusted blindly."""

import gzip
import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from tests.fuzzing import FUZZ
from widemax.data.reading import corpus_cache, text
from widemax.data.reading.text import read_corpus

TEXT = "rum and tea\n\nand then more tea and rum\nérable\n"


@pytest.fixture
def readings(monkeypatch):
    """Count how often text is read, and not taken from the cache."""
    calls = []

    def counted(*arguments, **options):
        calls.append(arguments)
        return plain(*arguments, **options)

    plain = text.codes_of
    monkeypatch.setattr(text, "codes_of", counted)
    return calls


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text(TEXT)
    return path


def same(one, other):
    return (
        one[0].values.tolist() == other[0].values.tolist()
        and one[0].offsets.tolist() == other[0].offsets.tolist()
        and one[1] == other[1]
    )


def kept_files(folder):
    return sorted(folder.glob(".*.corpus"))


@pytest.mark.parametrize(
    "options", [{}, {"min_count": 2}, {"unknown": "a\nb", "max_size": 2}, {"end": "<eos>"}]
)
def test_the_second_reading_is_the_first(path, readings, options):
    plain = read_corpus(path, **options)
    first, second = (read_corpus(path, cache=True, **options) for _ in range(2))
    assert len(readings) == 2
    assert same(first, plain)
    assert same(second, plain)
    assert second[0].values.dtype == plain[0].values.dtype


def test_without_being_asked_nothing_is_written(path):
    read_corpus(path)
    assert list(path.parent.iterdir()) == [path]


def test_other_content_and_other_options_are_read_anew(path, readings):
    read_corpus(path, cache=True)
    read_corpus(path, cache=True, min_length=2)
    read_corpus(path, cache=True)
    assert len(readings) == 2
    path.write_text(TEXT.replace("rum", "gin"))
    assert "gin" in read_corpus(path, cache=True)[1]
    assert len(readings) == 3
    assert len(kept_files(path.parent)) == 2  # the old content's file was replaced


def test_another_version_is_read_anew(path, readings, monkeypatch):
    read_corpus(path, cache=True)
    monkeypatch.setattr(corpus_cache, "FORMAT_VERSION", corpus_cache.FORMAT_VERSION + 1)
    read_corpus(path, cache=True)
    assert len(readings) == 2


def test_a_source_that_changes_while_it_is_read_is_not_kept(path, monkeypatch):
    plain = text.codes_of

    def changing(*arguments, **options):
        corpus = plain(*arguments, **options)
        path.write_text("something else")
        return corpus

    monkeypatch.setattr(text, "codes_of", changing)
    read_corpus(path, cache=True)
    assert kept_files(path.parent) == []


def test_folders_and_patterns(tmp_path, readings):
    (tmp_path / "a.txt").write_text("one two")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"three"))
    first, second = (read_corpus(tmp_path, cache=True) for _ in range(2))
    assert len(readings) == 1
    assert same(first, second)
    assert len(second[1]) == 3
    for _ in range(2):
        assert len(read_corpus(tmp_path / "*.txt", cache=True)[1]) == 2
        assert len(read_corpus(tmp_path / "*", cache=True)[1]) == 3
    assert len(readings) == 3
    # Words that move from one file to the other are other content.
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "b.txt.gz").write_bytes(b"two three")
    assert len(read_corpus(tmp_path, cache=True)[0]) == 2
    assert len(readings) == 4


@FUZZ
@given(st.floats(0, 1), st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=4))
def test_a_damaged_file_is_noted_and_written_anew(tmp_path, length, changes):
    path = tmp_path / "corpus.txt"
    path.write_text(TEXT)
    expected = read_corpus(path, cache=True)
    (kept,) = kept_files(tmp_path)
    whole = kept.read_bytes()
    data = bytearray(whole[: int(length * len(whole))] if length < 0.5 else whole)
    for place, byte in changes if data else ():
        data[int(place * (len(data) - 1))] = byte
    kept.write_bytes(data)
    for _ in range(2):
        assert same(read_corpus(path, cache=True), expected)
    if not data:
        assert kept.read_bytes() == whole


def test_the_note_names_the_file(path, caplog):
    read_corpus(path, cache=True)
    (kept,) = kept_files(path.parent)
    kept.write_bytes(b"nonsense")
    with caplog.at_level(logging.WARNING):
        read_corpus(path, cache=True)
    assert f"{kept} is damaged, and is written again" in caplog.text


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("values", lambda values: values + 100),
        ("values", lambda values: -values),
        ("values", lambda values: values[::-1].copy() * 0),
        ("values", lambda values: values.astype(np.float32)),
        ("offsets", lambda offsets: offsets[::-1].copy()),
        ("offsets", lambda offsets: offsets + 1),
        ("counts", lambda counts: counts + 1),
        ("counts", lambda counts: counts[:-1]),
        ("key_ends", lambda ends: ends[:-1]),
        ("key_ends", lambda ends: ends * 0),
        ("keys", lambda keys: keys * 0 + 255),
    ],
)
def test_a_forged_file_with_the_right_checksum_is_not_trusted(path, name, change, caplog):
    expected = read_corpus(path, cache=True)
    (kept,) = kept_files(path.parent)
    arrays = load_file(kept)
    arrays[name] = change(arrays[name])
    fields = {"source": corpus_cache._digest([path]), "unknown": None}
    fields["crc32"] = corpus_cache._checksum(arrays)
    save_file(arrays, kept, {corpus_cache._FIELD: corpus_cache.json.dumps(fields)})
    with caplog.at_level(logging.WARNING):
        assert same(read_corpus(path, cache=True), expected)
    assert "is damaged" in caplog.text


def test_a_folder_that_cannot_be_written_to(path, monkeypatch, caplog, readings):
    def refused(_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(corpus_cache, "atomic_write", refused)
    with caplog.at_level(logging.WARNING):
        corpora = [read_corpus(path, cache=True) for _ in range(2)]
    assert same(*corpora)
    assert len(readings) == 2
    assert "is not kept: Permission denied" in caplog.text


def test_a_folder_in_the_place_of_the_file(path, readings):
    read_corpus(path, cache=True)
    (kept,) = kept_files(path.parent)
    kept.unlink()
    kept.mkdir()
    read_corpus(path, cache=True)
    assert len(readings) == 2


def test_missing_sources_are_named(tmp_path):
    with pytest.raises(ValueError, match="absent cannot be read: No such file"):
        read_corpus(tmp_path / "absent", cache=True)
