"""Bad input and failing disks: a ValueError that names the place, and nothing saved is lost."""

import json
import pickle
import signal
import sys

import numpy as np
import polars as pl
import pytest
import torch

from tests import forked
from widemax.storage.files import atomic_write
from widemax.vocabulary import Vocabulary


def test_fault_05_missing_count_file_names_the_path(tmp_path):
    path = tmp_path / "absent.txt"
    with pytest.raises(ValueError, match=r"absent\.txt cannot be read: No such file"):
        Vocabulary.read_counts(path)
    with pytest.raises(ValueError, match=r"absent\.txt cannot be read: No such file"):
        Vocabulary.load(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\t3\nb\tmany\n", r"line 2: .* whole number of at least 0, got 'b\\tmany'"),
        ("a\t3\nb\t\n", "line 2: .*whole number"),
        ("a\t3\n\nb\t1\n", "line 2: .*whole number"),
        ("a\t3\n7\n", "line 2: the last of two or more columns"),
        ("a\tnan\n", "line 1: .*whole number"),
        ("a\t1\nb\tinf\n", "line 2: .*whole number"),
        ("a\t2.5\n", "line 1: .*whole number"),
        ("a\t99999999999999999999\n", "line 1: .*whole number"),
        ("a\t3\nb\t-1\n", "line 2: count must be at least 0, got -1"),
        ("a\t3\nb\t1\na\t2\n", "line 3: key 'a' appears twice"),
        ("a\t9000000000000000000\n", "line 1: the counts add up to more than"),
        ("", "is empty"),
    ],
)
def test_fault_05_bad_count_file_names_the_line(tmp_path, text, message):
    path = tmp_path / "counts.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"counts\.txt.*{message}"):
        Vocabulary.read_counts(path)


def test_fault_05_bad_utf8_names_the_line(tmp_path):
    path = tmp_path / "counts.txt"
    path.write_bytes(b"a\t3\nb\xff\t1\n")
    with pytest.raises(ValueError, match="line 2: not UTF-8"):
        Vocabulary.read_counts(path)
    path.write_text("a 3")
    with pytest.raises(ValueError, match="separator must be at least one character"):
        Vocabulary.read_counts(path, separator="")
    with pytest.raises(ValueError, match="cannot be read: Is a directory"):
        Vocabulary.read_counts(tmp_path)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["a", None], r"keys\[1\] is null"),
        ([None], r"keys\[0\] is null"),
        (pl.Series([1, 2, None]), r"keys\[2\] is null"),
        ([1.5, 2.0], "keys must hold strings or whole numbers, got Float64"),
        (np.array([1.0, np.nan]), "got Float64"),
        (torch.tensor([1.0]), "got Float32"),
        (torch.tensor([1.0], dtype=torch.bfloat16), "keys must all be of one type"),
        (torch.tensor([True]), "got Boolean"),
        (torch.tensor([[1, 2]]), "got Array"),
        ([b"a"], "got Binary"),
        ([1, "a"], "keys must all be of one type"),
        (np.array(["a", np.nan], dtype=object), "keys must all be of one type"),
        (["\ud800"], "keys must all be of one type"),
        ([1, 2**63], r"keys\[1\] must lie within int64, got 9223372036854775808"),
        ("text", "keys must be a polars Series, NumPy array, tensor or list, got str"),
        ([], "there are no keys"),
    ],
)
def test_bad_keys(keys, message):
    with pytest.raises(ValueError, match=message):
        Vocabulary.count(keys)


@pytest.mark.parametrize(
    ("keys", "counts", "message"),
    [
        (["a", "b"], [1, -2], "row 1: count must be at least 0, got -2"),
        (["a", "a"], [1, 2], "row 1: key 'a' appears twice"),
        (["a", "b"], [1], "counts must have 2 entries like keys, got 1"),
        (["a"], [float("nan")], "counts must hold whole numbers, got Float64"),
        (["a", "b"], [1, None], r"counts\[1\] is null"),
        (["a", "b"], [2**62, 1], "row 0: the counts add up to more than"),
        ([], [], "there are no keys"),
    ],
)
def test_bad_counts(keys, counts, message):
    with pytest.raises(ValueError, match=message):
        Vocabulary.from_counts(keys, counts)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"min_count": -1}, "min_count must be between 0 and .*, got -1"),
        ({"min_count": 1.5}, "min_count must be"),
        ({"min_count": 2}, "min_count = 2 leaves no key: the largest count is 1"),
        ({"max_size": 0}, "max_size must be between 1 and .*, got 0"),
        ({"max_size": True}, "max_size must be"),
        ({"unknown": 3}, "unknown must hold strings like the vocabulary, got whole numbers"),
        ({"unknown": 0.5}, "unknown must hold strings or whole numbers"),
    ],
)
def test_bad_limits(arguments, message):
    with pytest.raises(ValueError, match=message):
        Vocabulary.count(["a", "b"], **arguments)


def test_missing_key_is_named_with_near_spellings():
    vocabulary = Vocabulary.count(["apple", "pear", "pear", "apply"])
    message = r"is 'aple', which is not among the 3 keys; nearest: 'apple', 'apply'"
    with pytest.raises(ValueError, match=r"keys\[1\] " + message):
        vocabulary.encode(["pear", "aple", "zzz"])
    with pytest.raises(ValueError, match="key " + message):
        vocabulary.id_of("aple")
    with pytest.raises(ValueError, match="keys must hold strings like the vocabulary"):
        vocabulary.encode([1])
    with pytest.raises(ValueError, match="missing must be 'error' or 'mark', got 'skip'"):
        vocabulary.encode(["pear"], missing="skip")
    with pytest.raises(ValueError, match=r"key is 5, which is not among the 1 keys$"):
        Vocabulary.count([1]).id_of(5)


def test_long_keys_do_not_flood_the_message():
    vocabulary = Vocabulary.count(["x" * 1_000_000])
    with pytest.raises(ValueError, match="not among") as raised:
        vocabulary.encode(["y" * 1_000_000])
    assert len(str(raised.value)) < 200


@pytest.mark.parametrize(
    "ids",
    [
        [0, 3],
        [-1],
        torch.tensor([[0]]),
        torch.tensor([0.0]),
        torch.tensor(0),
        0,
        None,
        [None],
        ["a"],
        [[0], [1, 2]],
        [2**70],
    ],
)
def test_bad_ids(ids):
    with pytest.raises(ValueError, match="ids must"):
        Vocabulary.count(["a", "b", "c"]).decode(ids)


def test_unsigned_ids_are_decoded():
    assert Vocabulary.count(["a", "b"]).decode(np.array([1, 0], dtype=np.uint32)) == ["b", "a"]


def write(path, table, version="1", unknown=None):
    fields = {
        "widemax.vocabulary.version": version,
        "widemax.vocabulary.unknown": json.dumps(unknown),
    }
    pl.DataFrame(table).write_parquet(path, metadata=fields)


@pytest.mark.parametrize(
    ("table", "fields", "message"),
    [
        ({"word": ["a"], "n": [1]}, {}, r"columns key and count, got \['word', 'n'\]"),
        ({"key": ["a", None], "count": [1, 2]}, {}, "row 1: key is null"),
        ({"key": ["a", "b"], "count": [1, None]}, {}, "row 1: count is null"),
        ({"key": ["a", "b"], "count": [1, -5]}, {}, "row 1: count must be at least 0, got -5"),
        ({"key": ["a", "a"], "count": [1, 5]}, {}, "row 1: key 'a' appears twice"),
        ({"key": [0.5], "count": [1]}, {}, "column key must be String or Int64, got Float64"),
        ({"key": ["a"], "count": [1.0]}, {}, "column count must be Int64, got Float64"),
        ({"key": ["a"][:0], "count": [1][:0]}, {}, "there are no keys"),
        ({"key": ["a"], "count": [1]}, {"version": "2"}, "version 2 .*a newer widemax is needed"),
        ({"key": ["a"], "count": [1]}, {"version": "x"}, "version must be a whole number, got 'x'"),
        (
            {"key": ["a"], "count": [1]},
            {"unknown": "b"},
            "unknown must be one of the keys, got 'b'",
        ),
        ({"key": ["a"], "count": [1]}, {"unknown": 5}, "unknown must hold strings"),
        ({"key": [1], "count": [1]}, {"unknown": True}, "unknown must hold strings or whole"),
        ({"key": ["a"], "count": [1]}, {"unknown": ["a"]}, "unknown must be a key or null"),
    ],
)
def test_bad_saved_vocabulary_names_path_and_field(tmp_path, table, fields, message):
    path = tmp_path / "vocabulary.parquet"
    write(path, table, **fields)
    with pytest.raises(ValueError, match=rf"vocabulary\.parquet.*{message}"):
        Vocabulary.load(path)


def test_a_field_nested_without_end_is_refused(tmp_path):
    path = tmp_path / "vocabulary.parquet"
    fields = {"widemax.vocabulary.version": "1", "widemax.vocabulary.unknown": "[" * 100_000}
    pl.DataFrame({"key": ["a"], "count": [1]}).write_parquet(path, metadata=fields)
    with pytest.raises(ValueError, match="unknown must be a key or null"):
        Vocabulary.load(path)


def test_foreign_parquet_is_refused_with_its_columns(tmp_path):
    path = tmp_path / "foreign.parquet"
    pl.DataFrame({"item": [1]}).write_parquet(path)
    with pytest.raises(ValueError, match=r"vocabulary.version must be .*columns \['item'\]"):
        Vocabulary.load(path)


def test_pickle_and_other_files_are_refused(tmp_path):
    path = tmp_path / "vocabulary.parquet"
    for data in (b"", b"PAR1", pickle.dumps({"key": ["a"]}), b"PAR1" + b"\xff" * 100 + b"PAR1"):
        path.write_bytes(data)
        with pytest.raises(ValueError, match="is not a whole Parquet file"):
            Vocabulary.load(path)


def test_damaged_file_loads_or_is_refused(tmp_path):
    """Every byte flipped in turn, and every truncation: an answer or a ValueError, no crash."""
    path = tmp_path / "vocabulary.parquet"
    Vocabulary.count(["a", "b", "a"]).save(path)
    whole = path.read_bytes()
    damaged = [whole[:end] for end in range(0, len(whole), 7)]
    for place in range(len(whole)):
        damaged.append(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
    refused = 0
    for data in damaged:
        path.write_bytes(data)
        try:
            Vocabulary.load(path)
        except ValueError:
            refused += 1
    assert refused > len(damaged) / 3


def test_interrupted_write_keeps_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail() -> None:
        with atomic_write(path) as file:
            file.write(b"half of the n")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(ValueError, match=r"existing folder, got .*nowhere"):
        Vocabulary.count(["a"]).save(tmp_path / "nowhere" / "file")


def test_killed_write_keeps_the_old_file(tmp_path):
    path = tmp_path / "vocabulary.parquet"
    old = Vocabulary.count(["a"])
    old.save(path)
    program = (
        "import os, signal, sys; from widemax.storage.files import atomic_write\n"
        "with atomic_write(sys.argv[1]) as file:\n"
        "    file.write(b'half'); file.flush(); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = forked.run(["-c", program, path])
    assert killed.returncode == -signal.SIGKILL
    assert Vocabulary.load(path) == old


@pytest.mark.skipif(sys.platform != "linux", reason="the limit stands in for a full disk")
def test_full_disk_keeps_the_old_file(tmp_path):
    path = tmp_path / "vocabulary.parquet"
    old = Vocabulary.count(["a"])
    old.save(path)
    program = (
        "import resource, signal, sys; from widemax.vocabulary import Vocabulary\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "Vocabulary.count(list(range(100_000))).save(sys.argv[1])\n"
    )
    failed = forked.run(["-c", program, path])
    assert failed.returncode == 1
    assert "File too large" in failed.stderr
    assert Vocabulary.load(path) == old
    assert list(tmp_path.iterdir()) == [path]
