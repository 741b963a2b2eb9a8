"""Damaged, foreign and hostile files of vectors: an error that names the place, nothing run."""

import json
import os
import pickle
import struct
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch

from tests import forked
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

VECTORS = KeyedVectors(["one", "two", "three"], torch.arange(12.0).reshape(3, 4))


class Payload:
    """Leaves a file behind if it is ever unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file"


def safetensors_bytes(header, data=b"", length=None):
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def header_of(path):
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def test_fault_17_absurd_header_lengths(path):
    for length in (0, 2**63, 2**64 - 1, 100_000_001, 5000):
        path.write_bytes(safetensors_bytes(b"{}", b"\0" * 6000, length))
        with pytest.raises(ValueError, match=r"file .*header must have between .* bytes, got "):
            read_safetensors_vectors(path)
    path.write_bytes(b"\0\0\0")
    with pytest.raises(ValueError, match="header must have"):
        read_safetensors_vectors(path)


def test_fault_17_header_over_100_mb_is_not_even_read(path):
    with path.open("wb") as file:
        file.write(struct.pack("<Q", 150_000_000))
        file.truncate(150_000_100)  # a sparse file
    tracemalloc.start()
    with pytest.raises(ValueError, match="between 1 and 4,096 bytes, got 150,000,000"):
        read_safetensors_vectors(path)
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("keys", "data_offsets", [0, 21]),
        ("keys", "data_offsets", [40, 61]),
        ("keys", "data_offsets", [52, 73]),
        ("vectors", "data_offsets", [0, 2**62]),
        ("vectors", "data_offsets", [48, 0]),
        ("vectors", "shape", [3, 5]),
        ("vectors", "shape", [2**40, 2**40]),
        ("vectors", "shape", [-3, -4]),
        ("vectors", "shape", [3.0, 4]),
        ("vectors", "shape", [[0], 10**9]),
        ("vectors", "shape", [12]),
        ("vectors", "dtype", "I32"),
        ("keys", "dtype", "I8"),
        ("keys", "shape", None),
        ("__metadata__", "widemax.vectors.version", "one"),
        ("__metadata__", "more", "fields"),
    ],
)
def test_fault_17_overlapping_offsets_and_wrong_shapes(path, name, field, value):
    write_safetensors_vectors(path, VECTORS)
    header, data = header_of(path)
    header[name][field] = value
    path.write_bytes(safetensors_bytes(header, data))
    with pytest.raises(ValueError, match="file holds no vectors of widemax: "):
        read_safetensors_vectors(path)


def test_fault_17_every_flipped_header_byte(path):
    """Each byte of length and header, and white space to other white space."""
    write_safetensors_vectors(path, KeyedVectors(["padded"], torch.ones(1, 10)))
    whole = path.read_bytes()
    end = 8 + int.from_bytes(whole[:8], "little")
    assert whole[end - 1 : end] == b" "
    tried = 0
    for place in range(end):
        flips = {whole[place] ^ flip for flip in (0x01, 0x10, 0x20, 0xFF)}
        for flipped in flips | ({9, 10, 13} if whole[place] == ord(" ") else set()):
            path.write_bytes(whole[:place] + bytes([flipped]) + whole[place + 1 :])
            with pytest.raises(ValueError, match="file holds no vectors of widemax"):
                read_safetensors_vectors(path)
            tried += 1
    assert tried > 4 * end


def test_fault_17_truncated_and_longer_files(path):
    write_safetensors_vectors(path, VECTORS)
    whole = path.read_bytes()
    for data in [*(whole[:end] for end in range(len(whole))), whole + b"\0"]:
        path.write_bytes(data)
        with pytest.raises(ValueError, match="file holds no vectors of widemax"):
            read_safetensors_vectors(path)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (b'["a","a"]', "appears twice"),
        (b'["a"]', "each of the 1 keys, got 2"),
        (b'{"a":1}', "JSON list of strings"),
        (b'["a",1]', "JSON list of strings"),
        (b'["a","\xff"]', "the list of its keys is not whole JSON"),
        (b'["a","\\ud800"]', "keys must all be of one type"),
        (b"[" * 100_000, "the list of its keys is not whole JSON"),
    ],
)
def test_fault_17_bad_keys(path, keys, message):
    header = {
        "__metadata__": {"widemax.vectors.version": "1"},
        "vectors": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]},
        "keys": {"dtype": "U8", "shape": [len(keys)], "data_offsets": [8, 8 + len(keys)]},
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(safetensors_bytes(text, b"\0" * 8 + keys))
    with pytest.raises(ValueError, match=f"file holds no vectors of widemax: .*{message}"):
        read_safetensors_vectors(path)


def test_fault_22_newer_format_says_which_version(path):
    path.write_bytes(safetensors_bytes({"__metadata__": {"widemax.vectors.version": "2"}}))
    with pytest.raises(ValueError, match=r"version 2 .* reads 1: a newer widemax is needed"):
        read_safetensors_vectors(path)


def test_fault_18_pickles_are_refused_and_never_run(tmp_path):
    mark, path = tmp_path / "mark", tmp_path / "file"
    payload = pickle.dumps(Payload(mark))
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        path.write_bytes(pickle.dumps(Payload(mark), protocol))
        for read in (read_safetensors_vectors, read_word2vec_text, read_word2vec_binary):
            with pytest.raises(ValueError, match="file"):
                read(path)
    (tmp_path / "keys.txt").write_text("one\n")
    (tmp_path / "vectors.npy").write_bytes(payload)
    with pytest.raises(ValueError, match=r"vectors\.npy is not a NumPy file"):
        read_numpy_vectors(tmp_path)
    assert not mark.exists()
    pickle.loads(payload)
    assert mark.exists()  # it would have run


def test_fault_18_object_arrays_are_refused_and_never_run(tmp_path):
    mark = tmp_path / "mark"
    np.save(tmp_path / "vectors.npy", np.array([[Payload(mark)]], dtype=object))
    (tmp_path / "keys.txt").write_text("one\n")
    with pytest.raises(ValueError, match="must hold float16, float32 or float64, got object"):
        read_numpy_vectors(tmp_path)
    assert not mark.exists()


def npy_bytes(header, data=b"", version=b"\x01\x00"):
    return b"\x93NUMPY" + version + struct.pack("<H", len(header)) + header + data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is not a NumPy file"),
        (npy_bytes(b"{'descr': '<f4'}\n"), "is not a NumPy file"),
        (npy_bytes(b"__import__('os')\n"), "is not a NumPy file"),
        (npy_bytes(b"(" * 5000 + b"\n"), "is not a NumPy file"),
        (npy_bytes(b"{}\n", version=b"\x03\x00"), r"version \(3, 0\) is not known"),
        (
            npy_bytes(b"{'descr':'<f4','fortran_order':False,'shape':(999999999999,300)}\n"),
            "takes 1,199,999,999,998,800 bytes, but 0 follow",
        ),
        (
            npy_bytes(b"{'descr':'<f4','fortran_order':False,'shape':(1,1)}\n", b"\0" * 5),
            "takes 4 bytes, but 5 follow",
        ),
        (npy_bytes(b"{'descr':'<f4','fortran_order':False,'shape':(1,)}\n", b"\0" * 4), "shape"),
        (npy_bytes(b"{'descr':'<f4','fortran_order':False,'shape':(-1,-1)}\n", b"\0" * 4), "shape"),
        (npy_bytes(b"{'descr':'<i4','fortran_order':False,'shape':(1,1)}\n", b"\0" * 4), "int32"),
        (
            npy_bytes(b"{'descr':'<f4','fortran_order':False,'shape':(1,1)}\n", b"\0\0\xc0\x7f"),
            "NaN",
        ),
    ],
)
def test_bad_numpy_files(tmp_path, data, message):
    (tmp_path / "keys.txt").write_text("one\n")
    (tmp_path / "vectors.npy").write_bytes(data)
    with pytest.raises(ValueError, match=message):
        read_numpy_vectors(tmp_path)


def test_damaged_numpy_headers_are_vectors_or_a_value_error(tmp_path):
    write_numpy_vectors(tmp_path, VECTORS)
    whole = (tmp_path / "vectors.npy").read_bytes()
    refused = 0
    for place in range(128):
        for flipped in {whole[place] ^ 1 << bit for bit in range(8)}:
            damaged = whole[:place] + bytes([flipped]) + whole[place + 1 :]
            (tmp_path / "vectors.npy").write_bytes(damaged)
            try:
                read_numpy_vectors(tmp_path)
            except ValueError:
                refused += 1
    assert refused > 300


def test_keys_and_vectors_that_do_not_belong_together(tmp_path):
    write_numpy_vectors(tmp_path, VECTORS)
    for keys, message in (
        (b"one\ntwo\n", "each of the 2 keys, got 3"),
        (b"one\ntwo\ntwo\n", "appears twice"),
        (b"one\n\xff\ntwo\n", r"keys\.txt, line 2: not UTF-8"),
        (b"", r"keys\.txt is empty"),
    ):
        (tmp_path / "keys.txt").write_bytes(keys)
        with pytest.raises(ValueError, match=message):
            read_numpy_vectors(tmp_path)
    (tmp_path / "keys.txt").unlink()
    with pytest.raises(ValueError, match=r"keys\.txt cannot be read: No such file"):
        read_numpy_vectors(tmp_path)


TEXT_FAULTS = {
    "count too small": (b"1 2\na 1 2\nb 3 4\n", "line 3: more than the 1 rows stated"),
    "count too large": (b"3 1\nalpha 1\nbeta 3\n", "line 4: the file ends after 2 of 3 rows"),
    "count absurd": (
        b"999999999999 300\n" + b"a 1 2\n" * 170,
        "999,999,999,999 rows of 300 numbers take at least",
    ),
    "dimension absurd": (b"1 999999999999\na 1\n", "1 rows of 999,999,999,999 numbers"),
    "both beyond int64": (b"9" * 30 + b" 3\na 1 2 3\n", "line 1: must hold the number of rows"),
    "no rows": (b"0 3\n", "at least one row and one column, got 0 3"),
    "no columns": (b"1 0\na\n", "at least one row and one column, got 1 0"),
    "cut in a word": (b"2 2\nalpha 1 2\nbe", "file ends"),
    "cut in a number": (b"2 2\na 1 2\nbeta 3 4.2", "line 3: the file ends within the line"),
    "no header": (b"a 1 2\nb 3 4\n", "line 1: must hold the number of rows .*got 'a 1 2'; .*GloVe"),
    "empty": (b"", "line 1: must hold the number of rows"),
    "key with a space": (b"2 2\na 1 2\nnew york 3 4\n", "line 3: must hold numbers .*got 'york'"),
    "key like a number": (b"1 2\na 5 3 4\n", "line 2: must hold a key and 2 numbers, got 3 num"),
    "bad UTF-8": (b"2 2\na 1 2\nb\xff 3 4\n", "line 3: not UTF-8"),
    "NaN": (b"2 2\na 1 2\nb 3 nan\n", "line 3: must hold numbers that are finite .*got 'nan'"),
    "infinity": (b"2 2\na 1 2\nb -inf 1\n", "line 3: .*got '-inf'"),
    "beyond float32": (b"1 2\na 1e39 1\n", "line 2: .*got '1e39'"),
    "duplicate": (b"3 1\na 1\nbb 2\na 3\n", "line 4: key 'a' appears twice"),
    "short row": (b"2 2\naaa 1 2\nb 3\n", "line 3: must hold a key and 2 numbers, got 1 numbers"),
    "blank row": (b"2 1\naaaa 1\n\n", "line 3: the key is empty"),
    "empty key": (b"1 2\n 1 2\n", "line 2: the key is empty"),
    "double space": (b"1 2\na 1  2\n", "line 2: must hold numbers .*got ''"),
    "NUL": (b"1 2\na 1 \x002\n", r"line 2: must hold numbers .*got '\\x002'"),
}


@pytest.mark.parametrize("fault", TEXT_FAULTS)
def test_fault_19_word2vec_text(path, fault):
    data, message = TEXT_FAULTS[fault]
    path.write_bytes(data)
    with pytest.raises(ValueError, match=f"file.*{message}"):
        read_word2vec_text(path)


def row(key, *numbers):
    return key + b" " + np.array(numbers, "<f4").tobytes()


BINARY_FAULTS = {
    "count too small": (b"1 1\n" + row(b"a", 1) + row(b"b", 2), "byte 10: more rows than"),
    "count too large": (b"2 1\n" + row(b"alphabet", 1), "byte 17: no whole row starts here, and 1"),
    "count absurd": (b"999999999999 300\n" + b"a" * 1000, "999,999,999,999 rows of 300 numbers"),
    "dimension absurd": (b"1 999999999999\n" + b"a" * 1000, "1 rows of 999,999,999,999 numbers"),
    "no header": (row(b"a", 1) + row(b"b", 2), "line 1: must hold the number of rows"),
    "cut in a word": (b"2 1\n" + row(b"alphabet", 1) + b"be", "byte 17: no whole row starts here"),
    "cut in a number": (b"2 1\n" + row(b"alpha", 1) + row(b"b", 2)[:-1], "byte 14: no whole row"),
    "key with a space": (b"1 1\n" + row(b"new york", 1), "byte 12: more rows than"),
    "bad UTF-8": (b"2 1\n" + row(b"a", 1) + row(b"b\xff", 1), "byte 10: key .* is not UTF-8"),
    "NaN": (b"2 1\n" + row(b"a", 1) + row(b"b", np.nan), "byte 10: key 'b' has .* not finite"),
    "infinity": (
        b"1 2\n" + row(b"a", 1, np.inf),
        "byte 4: key 'a' has a number that is not finite",
    ),
    "duplicate": (b"2 1\n" + row(b"a", 1) + row(b"a", 2), "byte 10: key 'a' appears twice"),
    "short row": (b"2 2\n" + row(b"aaaaaa", 1) + row(b"b", 2, 3), "byte"),
    "empty key": (b"2 1\n" + row(b"aa", 1) + row(b"", 2), "byte 11: the key is empty"),
}


@pytest.mark.parametrize("fault", BINARY_FAULTS)
def test_fault_19_word2vec_binary(path, fault):
    data, message = BINARY_FAULTS[fault]
    path.write_bytes(data)
    with pytest.raises(ValueError, match=f"file.*{message}"):
        read_word2vec_binary(path)


@pytest.mark.parametrize("read", [read_word2vec_text, read_word2vec_binary])
def test_fault_19_memory_is_bounded_by_the_file(path, read):
    tracemalloc.start()
    for header in (b"999999999999 300\n", b"1 999999999999\n", b"400 1000000\n"):
        path.write_bytes(header + b"a" * 1000)
        with pytest.raises(ValueError, match="take at least"):
            read(path)
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def test_fault_19_text_skips_are_counted(path):
    path.write_bytes(b"8 2\na 1 2\nb 3\nnew york 3 4\n\xff 1 2\n 1 2\nc nan 2\na 5 6\nd 7 8\n")
    with pytest.warns(UserWarning, match=r"^6 of 8 rows skipped; the first: .*file, line 3: "):
        vectors = read_word2vec_text(path, bad_rows="skip")
    assert vectors == KeyedVectors(["a", "d"], torch.tensor([[1.0, 2.0], [7.0, 8.0]]))


def test_fault_19_binary_skips_are_counted(path):
    rows = [row(b"a", 1), row(b"b", np.nan), row(b"\xff", 3), row(b"a", 4), row(b"d", 5)]
    path.write_bytes(b"5 1\n" + b"\n".join(rows))
    with pytest.warns(UserWarning, match=r"^3 of 5 rows skipped; the first: .*file, byte 10: "):
        vectors = read_word2vec_binary(path, bad_rows="skip")
    assert vectors == KeyedVectors(["a", "d"], torch.tensor([[1.0], [5.0]]))


def test_fault_19_nothing_is_left_when_all_is_skipped(path):
    path.write_bytes(b"2 1\na x\nb y\n")
    with pytest.raises(ValueError, match=r"no row is sound; the first: .*file, line 2: .*'x'"):
        read_word2vec_text(path, bad_rows="skip")
    with pytest.raises(ValueError, match="bad_rows must be 'error' or 'skip', got 'ignore'"):
        read_word2vec_text(path, bad_rows="ignore")


def test_missing_files_and_folders_are_named(tmp_path):
    for read in (read_word2vec_text, read_word2vec_binary, read_safetensors_vectors):
        with pytest.raises(ValueError, match="absent cannot be read: No such file"):
            read(tmp_path / "absent")
        with pytest.raises(ValueError, match="cannot be read: Is a directory"):
            read(tmp_path)
    for write in (write_word2vec_text, write_word2vec_binary, write_safetensors_vectors):
        with pytest.raises(ValueError, match="must lie in an existing folder"):
            write(tmp_path / "no" / "where", VECTORS)
    for write in (write_numpy_vectors, write_projector_vectors):
        with pytest.raises(ValueError, match="where cannot be made: No such file"):
            write(tmp_path / "no" / "where", VECTORS)


@pytest.mark.parametrize(
    ("numbers", "labels", "message"),
    [
        ("1\t2\n3\n", "a\nb\n", r"vectors\.tsv, line 2: must hold 2 numbers, got 1 numbers"),
        ("1\t2\n3\tx\n", "a\nb\n", r"vectors\.tsv, line 2: .*got 'x'"),
        ("1\t2\n3\t4\n", "a\n", r"vectors\.tsv, line 2: more than the 1 rows stated"),
        ("1\t22\n3\t44\n", "a\nb\nc\n", r"vectors\.tsv, line 3: the file ends after 2 of 3"),
        ("1\t2\n3\t4\n", "a\na\n", r"vectors\.tsv, line 2: key 'a' appears twice"),
        ("1\t2\n", "word\tcount\n", r"metadata\.tsv, line 1: must have one column"),
        ("", "a\n", r"vectors\.tsv, line 1: the file ends after 0 of 1 rows"),
    ],
)
def test_bad_projector_files(tmp_path, numbers, labels, message):
    (tmp_path / "vectors.tsv").write_text(numbers)
    (tmp_path / "metadata.tsv").write_text(labels)
    with pytest.raises(ValueError, match=message):
        read_projector_vectors(tmp_path)


WRITERS = {
    write_word2vec_text: read_word2vec_text,
    write_word2vec_binary: read_word2vec_binary,
    write_safetensors_vectors: read_safetensors_vectors,
    write_numpy_vectors: read_numpy_vectors,
    write_projector_vectors: read_projector_vectors,
}


@pytest.mark.skipif(sys.platform != "linux", reason="the limit stands in for a full disk")
def test_fault_16_full_disk_keeps_the_old_vectors(tmp_path):
    for write in WRITERS:
        write(tmp_path / write.__name__, VECTORS)
    before = sorted(tmp_path.rglob("*"))
    program = (
        "import resource, signal, sys, torch, widemax.vectors as wv\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "vectors = wv.KeyedVectors(list(range(3000)), torch.ones(3000, 4))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))\n"
        "for name in sys.argv[2:]:\n"
        "    try:\n"
        "        getattr(wv, name)(f'{sys.argv[1]}/{name}', vectors)\n"
        "    except OSError:\n"
        "        print('refused')\n"
    )
    names = [write.__name__ for write in WRITERS]
    failed = forked.run(["-c", program, tmp_path, *names])
    assert failed.stdout == "refused\n" * len(WRITERS), failed.stderr
    assert sorted(tmp_path.rglob("*")) == before
    for write, read in WRITERS.items():
        assert read(tmp_path / write.__name__) == VECTORS


@pytest.mark.parametrize("write", [write_numpy_vectors, write_projector_vectors])
def test_fault_16_a_pair_is_replaced_whole_or_not_at_all(tmp_path, write, monkeypatch):
    """The disk is full at the very last moment, when both files are written but not yet synced."""
    write(tmp_path, VECTORS)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}

    def full(descriptor):
        raise OSError(28, "No space left on device")

    for failing_call in (1, 2):
        calls = iter([os.fsync] * (failing_call - 1) + [full] * 9)
        monkeypatch.setattr("os.fsync", lambda descriptor, calls=calls: next(calls)(descriptor))
        with pytest.raises(OSError, match="No space left"):
            write(tmp_path, KeyedVectors(["new"], torch.ones(1, 4)))
        monkeypatch.undo()
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
