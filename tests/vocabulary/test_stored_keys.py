"""Keys and titles in arrays: found and shown as by the vocabulary, damage refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from widemax.storage.arrays import write_arrays
from widemax.vocabulary import Vocabulary
from widemax.vocabulary.stored_keys import StoredKeys, write_keys

WORDS = st.lists(st.text(st.characters(codec="utf-8"), max_size=6), min_size=1, unique=True)
NUMBERS = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, unique=True)


@settings(max_examples=60, deadline=None)
@given(st.one_of(WORDS, NUMBERS), st.data())
def test_keys_are_found_as_by_the_vocabulary(tmp_path_factory, keys, data):
    path = tmp_path_factory.mktemp("keys") / "keys.safetensors"
    write_keys(path, keys)
    stored, vocabulary = StoredKeys(path), Vocabulary.from_counts(keys, [1] * len(keys))
    assert (len(stored), stored.whole, stored.titles) == (len(keys), vocabulary.whole, None)
    ids = data.draw(st.lists(st.integers(0, len(keys) - 1), max_size=5))
    assert stored.keys_at(ids) == vocabulary.keys_at(ids) == [keys[row] for row in ids]
    others = ["", "a", "aa", "\u00e9"] if isinstance(keys[0], str) else [0, -1, 2**62]
    sought = [keys[row] for row in ids] + others
    assert stored.rows_of(sought) == vocabulary.rows_of(sought)


def test_titles_and_the_unknown_key_come_back(tmp_path):
    write_keys(tmp_path / "keys", ["b", "a"], titles=["Bread \u00fc", ""], unknown="a")
    stored = StoredKeys(tmp_path / "keys")
    assert stored.titles == ["Bread \u00fc", ""]
    assert stored.unknown == "a"


@pytest.mark.parametrize(
    ("arrays", "metadata"),
    [
        ({"other": np.arange(2)}, {}),
        ({"numbers": np.arange(2), "keys.ends": np.array([1])}, {}),
        ({"keys.bytes": np.zeros(2, np.uint8), "keys.ends": np.array([3])}, {}),
        ({"keys.bytes": np.zeros(2, np.uint8), "keys.ends": np.array([2, 1, 2])}, {}),
        ({"keys.bytes": np.zeros(2), "keys.ends": np.array([2])}, {}),
        ({"numbers": np.arange(2), "titles.ends": np.zeros(1, np.int64)}, {}),
        ({"numbers": np.arange(2)}, {"unknown": "[1]"}),
        ({"numbers": np.arange(2)}, {"unknown": "{"}),
    ],
)
def test_a_file_that_does_not_fit_is_refused(tmp_path, arrays, metadata):
    write_arrays(tmp_path / "keys", arrays, metadata)
    with pytest.raises(ValueError, match=r"must|not (a )?whole"):
        StoredKeys(tmp_path / "keys")


def test_no_safetensors_file(tmp_path):
    (tmp_path / "keys").write_bytes(b"PAR1" * 9)
    with pytest.raises(ValueError, match="keys is not a whole safetensors file"):
        StoredKeys(tmp_path / "keys")
