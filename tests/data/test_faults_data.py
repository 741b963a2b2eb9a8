"""Bad raw records: a ValueError that names file, column and row, never a crash, never nonsense."""

import gzip
import tracemalloc
from datetime import time, timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzzing import FUZZ
from widemax.data.reading import codes as codes_module
from widemax.data.reading.files import decoded
from widemax.data.reading.source import read_source
from widemax.data.reading.tables import format_of, formats, recognise
from widemax.data.reading.text import encode_text, read_corpus

EPOCH = 1_700_000_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("user,thing\n1,2\n", "no column that looks like the item: there are 'user', 'thing'"),
        ("who,item\n1,2\n", "no column that looks like the user: there are 'who', 'item'"),
        (
            "who,what\n1,2\n",
            "the user or the item: there are 'who', 'what'; name them with user_column and "
            r"item_column \(--user-column NAME --item-column NAME\)",
        ),
        ("user,item\n1,2\n,3\n", "column user, row 2: the id is missing"),
        ("user,item\n1,2\n1\n", "column item, row 2: the id is missing"),
        ('user,item\n1,2\n1,""\n', "column item, row 2: the id is missing"),
        ("user,item\n1,2\n\n1,3\n", "column user, row 2: the id is missing"),
        ("user,item\n1,2\n1,3.0\n", "column item, row 2: an id must be a whole number.*got 3.0"),
        ("user,item\n1,2\n1,nan\n", "column item, row 2: an id must be a whole number.*got nan"),
        ("user,item\n1,2\n1,9223372036854775808\n", "item, row 2: an id must lie within int64"),
        ("user,item\n1,2\n1,2,3\n", "row 2: 3 fields, but 2 in the first line"),
        ("1,2\n1,2\n1,2,3\n", "row 3: 3 fields, but 2 in the first line"),
        ("user,item\n", "is empty: it has the columns 'user', 'item', but no row"),
        ("user,item\n1,\0\n", "line 2: holds a NUL byte"),
        ("user,item\n1,2\n1,\xff\n", "line 3: not UTF-8"),
        ("user\n1\n", "line 1: no tab, comma or semicolon in 'user'"),
        ("", "is empty"),
        ("\n \n", "is empty"),
    ],
)
def test_fault_21_bad_csv_names_the_place(tmp_path, text, message):
    path = tmp_path / "log.csv"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=rf"log\.csv.*{message}"):
        read_source(path, kind="csv")


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ([EPOCH, None], "row 2: the time is missing"),
        ([EPOCH, EPOCH * 1000], "row 2: the time 1700000000000 looks like milliseconds"),
        ([EPOCH * 10**9, 3, EPOCH], "row 3: the time 1700000000 looks like seconds"),
        ([EPOCH * 10**3, EPOCH * 10**6], "looks like microseconds where others .* milliseconds"),
        ([1.5, float("nan")], "row 2: a time must be finite, got nan"),
        ([float("inf")], "row 1: a time must be finite, got inf"),
        (["2024-01-01", "1700000000"], "row 2: the time is '1700000000', but the first is '2024"),
        (["1700000000", "2024-01-01"], "row 2: the time is '2024-01-01', but the first is '17"),
        (["2024-01-01", "2024-13-01"], "row 2: the time is '2024-13-01'"),
        (["31/01/2024"], "row 1: a time must be a number, a date or text such as .*, got '31/01"),
        (["soon"], "row 1: a time must be a number"),
        ([timedelta(1)], "row 1: a time must be a number, .* got Duration"),
        ([time(1)], "row 1: a time must be a number, .* got Time"),
        (np.array([2**63], dtype=np.uint64), "row 1: a time must lie within int64"),
    ],
)
def test_fault_21_bad_times_name_the_row(tmp_path, times, message):
    path = tmp_path / "log"
    times = pl.Series(times)
    pl.DataFrame({"user": [1] * len(times), "item": 5, "ts": times}).write_parquet(path)
    with pytest.raises(ValueError, match=rf"log, column ts, .*{message}"):
        read_source(path)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (pl.Series([1, None]), "row 2: the id is missing"),
        (pl.Series(["a", ""]), "row 2: the id is missing"),
        (
            pl.Series([1.0, 2.0]),
            r"row 1: an id must be a whole number or a string, got 1.0 \(Float",
        ),
        (pl.Series([True]), "row 1: an id must be a whole number or a string, got True"),
        (pl.Series([[1], [2]]), r"row 1: .* got a List\(Int64\); a row is to have one user"),
        (pl.Series([b"a"]), "row 1: an id must be"),
        (pl.Series([1, 2**63], dtype=pl.UInt64), "row 2: an id must lie within int64, got 9223"),
    ],
)
def test_fault_21_bad_ids_of_parquet(tmp_path, items, message):
    path = tmp_path / "log"
    pl.DataFrame({"user": [1] * len(items), "item": items}).write_parquet(path)
    with pytest.raises(ValueError, match=rf"log, column item, {message}"):
        read_source(path)


def test_fault_21_missing_columns_say_which_are_there(tmp_path):
    path = tmp_path / "log"
    pl.DataFrame({"user": [1], "item": [2]}).write_parquet(path)
    for column in ("user_column", "item_column", "time_column"):
        with pytest.raises(ValueError, match="log has no column 'x': there are 'user', 'item'"):
            read_source(path, **{column: "x"})
    with pytest.raises(ValueError, match="user and item must be different columns, got 'item' for"):
        read_source(path, user_column="item")
    pl.DataFrame({"user": [], "item": []}).write_parquet(path)
    with pytest.raises(ValueError, match="log is empty: it has the columns 'user', 'item'"):
        read_source(path)


def test_fault_21_the_file_of_a_folder_is_named_with_its_own_row(tmp_path):
    (tmp_path / "a").write_text("user,item\n1,2\n1,3\n")
    (tmp_path / "b").write_text("user,item\n1,2\n1,\n")
    with pytest.raises(ValueError, match=r"b, column item, row 2: the id is missing"):
        read_source(tmp_path)
    (tmp_path / "b").write_text("item,other\n1,2\n")
    with pytest.raises(ValueError, match=r"b has no column 'user': there are 'item', 'other'"):
        read_source(tmp_path)


def test_fault_21_parts_of_different_types(tmp_path):
    for name, item in (("a", 1), ("b", "x")):
        pl.DataFrame({"user": [1], "item": [item]}).write_parquet(tmp_path / name)
    with pytest.raises(ValueError, match=r"b: the columns are .*'item' String, but .*'item' Int64"):
        read_source(tmp_path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty: it holds no word"),
        (b" \n\t\n", "is empty: it holds no word"),
        (b"\xef\xbb\xbf", "is empty: it holds no word"),
        (b"one\ntwo\xff\n", "line 2: not UTF-8"),
        (b"one\n\ntwo\0\n", "line 3: holds a NUL byte"),
        (b"\x7fELF\x02\x01\x01\0\0\0", "line 1: holds a NUL byte"),
        (b"one\n" + b"x" * 70_000, "line 2: a word of more than 65,536 bytes"),
        (b"\x28\xb5\x2f\xfd\0\0", "is not a whole zstd file"),
        (gzip.compress(b"one two", mtime=0)[:-9], "is not a whole gzip file"),
        (gzip.compress(b"one two", mtime=0)[:10] + b"\xff" * 20, "is not a whole gzip file"),
    ],
)
def test_bad_text_names_the_file_and_the_line(tmp_path, data, message):
    path = tmp_path / "corpus"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=f"corpus.*{message}"):
        read_corpus(path)


def test_a_line_without_end_is_never_whole_in_memory(tmp_path, monkeypatch):
    sizes = []

    def recording(data, *arguments, **options):
        sizes.append(len(data))
        return decoded(data, *arguments, **options)

    monkeypatch.setattr(codes_module, "_BLOCK_BYTES", 2**12)
    monkeypatch.setattr(codes_module, "decoded", recording)
    path = tmp_path / "corpus"
    path.write_bytes(b"a word and " * 2**15)
    sequences, _ = read_corpus(path)
    assert sequences.lengths.tolist() == [3 * 2**15]
    assert max(sizes) < 2 * 2**12


def test_a_word_without_end_stops_early(tmp_path):
    """Beyond a block there is no need to read on: memory stays bounded."""
    path = tmp_path / "corpus.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"fine\n")
        for _ in range(40):
            file.write(b"x" * 2**20)
    with pytest.raises(ValueError, match="line 2: a word of more than 65,536 bytes"):
        read_corpus(path)


@pytest.mark.parametrize("path", ["absent", "absent/*", "a\0b"])
def test_paths_that_lead_nowhere(tmp_path, path):
    for read in (recognise, read_corpus, read_source):
        with pytest.raises(
            ValueError, match=r"cannot be read|holds no file to read|must not hold a NUL"
        ):
            read(f"{tmp_path}/{path}")


def test_folder_without_files(tmp_path):
    with pytest.raises(ValueError, match="holds no file to read"):
        read_source(tmp_path)


def test_bad_limits(tmp_path):
    path = tmp_path / "corpus"
    path.write_text("one two\n")
    with pytest.raises(ValueError, match="min_length must be between 1"):
        read_source(path, min_length=0)
    with pytest.raises(ValueError, match="min_length = 3 leaves no sequence"):
        read_source(path, min_length=3)
    with pytest.raises(ValueError, match="min_count = 2 leaves no key"):
        read_source(path, min_count=2)
    with pytest.raises(ValueError, match="text must hold at least one word"):
        encode_text(" \n")


def test_wrong_kinds(tmp_path):
    path = tmp_path / "file"
    path.write_text("one two three\n")
    with pytest.raises(ValueError, match=r'line 1: a user and an item wanted, got 3 .*kind="text"'):
        read_source(path, kind="pairs")
    with pytest.raises(ValueError, match="line 1: an atomic file types its columns"):
        read_source(path, kind="atomic")
    with pytest.raises(ValueError, match="cannot be read as a table"):
        read_source(path, kind="parquet")


def check_well_formed(path, kind=None):
    """Read a file: either it is refused, or every part of what comes fits the others."""
    try:
        source = read_source(path, kind=kind)
    except ValueError:
        return
    values = source.sequences.values
    counts = np.bincount(values.numpy(), minlength=len(source.vocabulary))
    assert counts.tolist() == source.vocabulary.counts.tolist()
    assert source.sequences.lengths.min() >= 1
    times = source.sequences.times
    has_times = source.columns is not None and bool(source.columns.time)
    assert (times is not None) == has_times
    assert (source.sequences.names is None) == (source.kind == "text")


TABLES = st.lists(st.sampled_from([*'12a,;\t\n\n \r"é:.-', "user", "item", "time", "2024-01-01"]))
KIND = st.sampled_from([None, *formats()])
# Databases answer queries: they have tests of their own.
FILES = [kind for kind in formats() if kind == "text" or not format_of(kind).queried]


@FUZZ
@given(st.binary(max_size=200), KIND)
def test_any_bytes(tmp_path, data, kind):
    path = tmp_path / "file"
    path.write_bytes(data)
    check_well_formed(path, kind)


@FUZZ
@given(
    TABLES, st.sampled_from(["", "user,item\n", "user\titem\ttime\n", "user:token\titem:token\n"])
)
def test_anything_like_a_table(tmp_path, pieces, header):
    path = tmp_path / "file"
    path.write_bytes((header + "".join(pieces)).encode())
    for kind in (None, "csv", "atomic", "pairs", "lists", "text"):
        check_well_formed(path, kind)


def whole_files(folder):
    """Return a good file of each format, as bytes."""
    table = pl.DataFrame({"user": [7, 8, 7], "item": ["rum", "tea", "gin"], "time": [3, 2, 1]})
    table.write_parquet(folder / "parquet", statistics=True)
    table.write_csv(folder / "csv")
    table.write_ndjson(folder / "jsonl")
    table.rename({name: f"{name}:token" for name in table.columns}).write_csv(
        folder / "atomic", separator="\t"
    )
    (folder / "pairs").write_text("7 1\n8 2\n7 3\n")
    (folder / "lists").write_text("7 1 2\n8\n9 2 3 1\n")
    (folder / "text").write_bytes(gzip.compress(b"good morning\nto you\n"))
    return {kind: (folder / kind).read_bytes() for kind in FILES}


@pytest.mark.parametrize("kind", FILES)
@FUZZ
@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=4), st.floats(0, 2))
def test_files_with_bytes_changed_or_cut_off(tmp_path, kind, changes, length):
    (tmp_path / "whole").mkdir(exist_ok=True)
    data = bytearray(whole_files(tmp_path / "whole")[kind])
    for place, byte in changes:
        data[int(place * (len(data) - 1))] = byte
    path = tmp_path / "file"
    path.write_bytes(data[: int(length * len(data))])
    check_well_formed(path)
    check_well_formed(path, kind)


@pytest.mark.parametrize("text", [b"word " * 2**23, b"user,item\n" + b"u1,i1\n" * 2**22])
def test_fault_34_a_file_that_unpacks_a_hundredfold_is_refused_on_the_way(text, tmp_path):
    """What was unpacked until then is all that is in memory."""
    path = tmp_path / "packed.gz"
    path.write_bytes(gzip.compress(text))
    assert len(text) > 200 * path.stat().st_size
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"packed.gz unpacks to more than 16,777,216 bytes, 100"):
        read_source(path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 8 * 2**24


def test_fault_34_small_files_and_usual_ones_are_unpacked_whole(tmp_path):
    (tmp_path / "small.gz").write_bytes(gzip.compress(b"word " * 10**6))
    assert len(read_corpus(tmp_path / "small.gz")[0].values) == 10**6
