"""A text that is read while the program starts."""

import threading

import pytest

from widemax.data.reading import ahead
from widemax.data.reading.ahead import reading_ahead
from widemax.data.reading.text import read_corpus


@pytest.fixture
def readers(monkeypatch):
    """The threads that have read a text."""
    found, plain = [], ahead.read_codes

    def noted(*asked):
        found.append(threading.current_thread())
        return plain(*asked)

    monkeypatch.setattr(ahead, "read_codes", noted)
    return found


def test_what_was_read_ahead_is_not_read_again(readers, tmp_path):
    path = tmp_path / "text"
    path.write_text("rum and tea\nrum\n")
    with reading_ahead(path, None, None):
        sequences, vocabulary = read_corpus(str(path))
    assert sequences.values.tolist() == [0, 1, 2, 0]
    assert vocabulary.keys.to_list() == ["rum", "and", "tea"]
    assert len(readers) == 1
    assert readers[0] is not threading.current_thread()
    assert not ahead._begun


def test_what_was_not_asked_for_is_forgotten(readers, tmp_path):
    path = tmp_path / "text"
    path.write_text("rum\n")
    with reading_ahead(path, None, None):
        read_corpus(path, end="<eos>")
    path.write_text("gin\n")
    assert read_corpus(path)[1].keys.to_list() == ["gin"]
    assert readers[-1] is threading.current_thread()


def test_what_is_wrong_with_a_text_is_said_where_it_is_asked_for(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"rum\n\0")
    with (
        reading_ahead(path, None, None),
        pytest.raises(ValueError, match=r"text, line 2: holds a NUL byte"),
    ):
        read_corpus(path)
