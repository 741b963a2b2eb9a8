"""The vocabulary: ids in falling count, whatever is counted, merged or grown."""

import time
from collections import Counter

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from widemax.vocabulary import Vocabulary

WORDS = st.text(alphabet="abcé ", max_size=3)
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)
PATIENT = settings(max_examples=60, deadline=None)  # a busy machine is no failure

KEY_LISTS = st.lists(WORDS, min_size=1) | st.lists(NUMBERS, min_size=1)


def as_pairs(vocabulary: Vocabulary) -> list[tuple[str | int, int]]:
    return list(vocabulary.table.iter_rows())


@PATIENT
@given(KEY_LISTS)
def test_counts_like_most_common(keys):
    vocabulary = Vocabulary.count(keys)
    assert as_pairs(vocabulary) == Counter(keys).most_common()
    assert vocabulary.counts.tolist() == [count for _, count in Counter(keys).most_common()]
    assert vocabulary.total == len(keys)
    assert vocabulary.ordered


@PATIENT
@given(KEY_LISTS, st.integers(0, 3), st.none() | st.integers(1, 4))
def test_trims_like_most_common(keys, min_count, max_size):
    kept = [pair for pair in Counter(keys).most_common() if pair[1] >= min_count][:max_size]
    if kept:
        vocabulary = Vocabulary.count(keys, min_count=min_count, max_size=max_size)
        assert as_pairs(vocabulary) == kept
    else:
        with pytest.raises(ValueError, match=r"min_count = .* leaves no key"):
            Vocabulary.count(keys, min_count=min_count, max_size=max_size)


@PATIENT
@given(st.lists(WORDS, min_size=1), st.integers(0, 3), st.none() | st.integers(1, 4))
def test_unknown_key_takes_what_is_dropped(keys, min_count, max_size):
    vocabulary = Vocabulary.count(keys, min_count=min_count, max_size=max_size, unknown="a")
    others = [pair for pair in Counter(keys).most_common() if pair[0] != "a"]
    kept = [pair for pair in others if pair[1] >= min_count]
    kept = kept if max_size is None else kept[: max_size - 1]
    rest = len(keys) - sum(count for _, count in kept)
    assert as_pairs(vocabulary) == sorted([*kept, ("a", rest)], key=lambda pair: -pair[1])
    assert vocabulary.total == len(keys)
    by_hand = [vocabulary.id_of(key if key in dict(kept) else "a") for key in keys]
    assert vocabulary.encode(keys).tolist() == by_hand


def test_unknown_key_is_there_even_with_count_zero():
    vocabulary = Vocabulary.count(["a", "b", "a"], unknown="<unk>")
    assert as_pairs(vocabulary) == [("a", 2), ("b", 1), ("<unk>", 0)]
    assert vocabulary.id_of("never seen") == 2
    assert "never seen" not in vocabulary


@PATIENT
@given(KEY_LISTS)
def test_decode_undoes_encode(keys):
    vocabulary = Vocabulary.count(keys)
    ids = vocabulary.encode(keys)
    assert ids.dtype == torch.int64
    assert vocabulary.decode(ids) == keys
    assert [vocabulary.id_of(key) for key in keys] == ids.tolist()
    assert torch.bincount(ids).tolist() == vocabulary.counts.tolist()


def test_containers_agree():
    keys = [7, -1, 7, 3]
    expected = Vocabulary.count(keys)
    for same in (tuple(keys), np.array(keys, dtype=np.int16), torch.tensor(keys), pl.Series(keys)):
        assert Vocabulary.count(same) == expected
        assert expected.encode(same).tolist() == [0, 1, 0, 2]
    words = ["x", "y", "x"]
    for same in (
        np.array(words),
        np.array(words, dtype=object),
        pl.Series(words, dtype=pl.Enum(["y", "x"])),
    ):
        assert Vocabulary.count(same) == Vocabulary.count(words)


def test_few_and_many_keys_are_found_alike():
    vocabulary = Vocabulary.count([f"k{number}" for number in range(50)])
    few = ["k3", "none", "k49"]
    assert vocabulary.encode(few, missing="mark").tolist() == [3, -1, 49]
    assert vocabulary.encode(few * 40, missing="mark").tolist() == [3, -1, 49] * 40
    assert vocabulary.encode(["none"], missing="mark").tolist() == [-1]
    assert vocabulary.encode([]).tolist() == []
    assert vocabulary.decode([]) == []


def test_from_counts_sorts_and_keeps_classes_never_seen():
    vocabulary = Vocabulary.from_counts(["a", "b", "c"], torch.tensor([0, 5, 5]))
    assert as_pairs(vocabulary) == [("b", 5), ("c", 5), ("a", 0)]


def test_counts_cannot_be_changed_from_outside():
    vocabulary = Vocabulary.count(["a", "a", "b"])
    vocabulary.counts.zero_()
    assert vocabulary.counts.tolist() == [2, 1]


@PATIENT
@given(st.lists(WORDS, min_size=1), st.lists(WORDS, min_size=1))
def test_merge_adds_counts_in_either_order(left, right):
    one, other = Vocabulary.count(left), Vocabulary.count(right)
    merged = one.merge(other)
    assert dict(as_pairs(merged)) == dict(as_pairs(other.merge(one))) == Counter(left + right)
    assert merged.ordered


def test_merge_joins_unknown_keys():
    plain = Vocabulary.count(["a", "?"])
    marked = Vocabulary.count(["b", "c"], max_size=1, unknown="?")
    merged = plain.merge(marked)
    assert merged == marked.merge(plain).trimmed()
    assert merged.unknown == "?"
    assert as_pairs(merged) == [("?", 3), ("a", 1)]
    with pytest.raises(ValueError, match=r"same unknown key '\?' or none, got '!'"):
        marked.merge(Vocabulary.count(["b"], unknown="!"))
    with pytest.raises(ValueError, match="other must hold strings"):
        plain.merge(Vocabulary.count([1]))


@PATIENT
@given(st.lists(WORDS, min_size=1), st.lists(WORDS), st.integers(0, 3))
def test_growth_keeps_old_ids(first, later, min_count):
    old = Vocabulary.count(first)
    new = old.grow(later, min_count=min_count)
    assert new.keys[: len(old)].to_list() == old.keys.to_list()
    added = [pair for pair in Counter(later).most_common() if pair[0] not in old]
    assert as_pairs(new)[len(old) :] == [pair for pair in added if pair[1] >= min_count]
    both = Counter(first) + Counter(later)
    assert all(both[key] == count for key, count in as_pairs(new))


def test_growth_counts_rare_new_keys_as_unknown():
    old = Vocabulary.count(["a", "a", "b"], unknown="?")
    new = old.grow(["c", "c", "d", "b", "?"], min_count=2)
    assert as_pairs(new) == [("a", 2), ("b", 2), ("?", 2), ("c", 2)]


def test_reordered_maps_old_ids_to_new():
    grown = Vocabulary.count(["a", "a", "b"]).grow(["c"] * 5 + ["b"])
    assert not grown.ordered
    fresh, new_ids = grown.reordered()
    assert fresh.ordered
    assert as_pairs(fresh) == [("c", 5), ("a", 2), ("b", 2)]
    assert new_ids.tolist() == [1, 2, 0]
    assert fresh.encode(grown.keys).tolist() == new_ids.tolist()


@settings(max_examples=20, deadline=None)
@given(keys=KEY_LISTS, with_unknown=st.booleans())
def test_load_gives_back_what_was_saved(tmp_path_factory, keys, with_unknown):
    path = tmp_path_factory.mktemp("vocabulary") / "vocabulary.parquet"
    vocabulary = Vocabulary.count(keys, unknown=keys[0] if with_unknown else None)
    vocabulary.save(path)
    assert Vocabulary.load(path) == vocabulary
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_path_with_pattern_characters(tmp_path):
    folder = tmp_path / "key=1"
    folder.mkdir()
    vocabulary = Vocabulary.count(["a"])
    vocabulary.save(folder / "v[1]*.parquet")
    assert Vocabulary.load(folder / "v[1]*.parquet") == vocabulary


def test_read_counts(tmp_path):
    path = tmp_path / "counts.txt"
    path.write_bytes("\ufeffrare\tnoun\t1\r\nfrequent\t 30 \r\nné\t2".encode())
    vocabulary = Vocabulary.read_counts(path, min_count=2, unknown="?")
    assert as_pairs(vocabulary) == [("frequent", 30), ("né", 2), ("?", 1)]
    path.write_text("a b 3\nc  4\n")
    assert as_pairs(Vocabulary.read_counts(path, separator=" ")) == [("c", 4), ("a", 3)]


def test_repr_is_short_and_escapes():
    text = repr(Vocabulary.count(["\x1b[31m" + "x" * 1000, "b", "b", "c", "d"]))
    assert len(text) < 200
    assert "\x1b" not in text
    assert text.startswith("Vocabulary(4 keys, total 5: 'b' 2, ")


def test_equality():
    vocabulary = Vocabulary.count(["a", "b"])
    assert vocabulary == Vocabulary.from_counts(["a", "b"], [1, 1])
    assert vocabulary != Vocabulary.count(["b", "a"])
    assert vocabulary != Vocabulary.count(["a"], unknown="b")
    assert vocabulary != "a"


def test_counting_is_not_slower_than_python():
    """One million words, best of three each, so that a busy machine disturbs both alike."""
    generator = np.random.default_rng(0)
    words = pl.Series([f"word{number}" for number in generator.zipf(1.3, 1_000_000) % 100_000])
    as_list = words.to_list()
    seconds = {"polars": [], "python": []}
    for _ in range(3):
        start = time.perf_counter()
        vocabulary = Vocabulary.count(words)
        seconds["polars"].append(time.perf_counter() - start)
        start = time.perf_counter()
        expected = Counter(as_list).most_common()
        seconds["python"].append(time.perf_counter() - start)
    assert as_pairs(vocabulary) == expected
    assert min(seconds["polars"]) < 2 * min(seconds["python"])
