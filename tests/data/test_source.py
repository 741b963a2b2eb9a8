"""What a file holds is told by its content, and can be overridden."""

import gzip

import pytest

from widemax.data.reading.source import read_source
from widemax.data.reading.tables import formats, recognise


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("user_id:token\titem_id:token\ttimestamp:float\n1\t2\t3\n", "atomic"),
        ("user_id:token\titem_list:token_seq\n", "atomic"),
        ("user_id:token\titem\n1\t2\n", "csv"),
        ("visitor;sku\n1;2\n", "csv"),
        ("listener\ttrack\n1\t2\n", "csv"),
        ("user,item\n1,2\n", "csv"),
        ("user;item;note\n1;2;a, b\n", "csv"),
        ('user,item\n1,"2, or 3"\n', "csv"),
        ("user\titem\r\n1\t2\r\n", "csv"),
        ("1,2,3\n4,5,6\n", "csv"),
        ("1,2,3\n4,5\n", "csv"),
        ("well, then\nhello, world\n", "text"),
        ("a,b\nno comma\n", "text"),
        ("1 2\n3 4\n", "pairs"),
        ("\n1  2\n\n3 4", "pairs"),
        ("u1 i2\nu1 i3\n", "pairs"),
        ("1\t2\n3\t4\n", "csv"),
        ("1 2\n3 4\n5 6 7\n", "lists"),
        ("1 2 3\r\n\r\n2\r\n3\t7 8 9\r\n", "lists"),
        ("1 2 3\n1 4\n", "text"),
        ("1 2 3\n2 x\n", "text"),
        ("1\n2\n3\n", "text"),
        ("good morning\ngood night\n", "text"),
        ("in 1984\n", "text"),
        ("1 2 3\n", "text"),
        ("word", "text"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_recognised_by_content(tmp_path, text, kind, packed):
    path = tmp_path / "file.parquet"  # the name is no evidence
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    assert recognise(path) == kind


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'[{"user": 7, "item": 31}]', r"log is a JSON array: write each object on a line"),
        (b'[{"user":7,"item":31},{"user":7,"item":32}]', r"log is a JSON array"),
        (b'\n[\n  {\n    "user": 7\n  }\n]\n', r"log is a JSON array"),
        (b"PK\x03\x04\x14\0\0\0", r"log is a zip archive, as a workbook of Excel is"),
    ],
)
def test_what_is_neither_a_log_nor_a_text_is_named(tmp_path, content, message):
    path = tmp_path / "log"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        recognise(path)


def test_only_whole_lines_of_the_head_are_looked_at(tmp_path):
    path = tmp_path / "log"
    path.write_text("12345 6789\n" * 20_000)
    assert recognise(path) == "pairs"
    path.write_text("é " * 100_000)  # one line, cut within a letter
    assert recognise(path) == "text"
    path.write_text("x" + "é " * 100_000)
    assert recognise(path) == "text"


def test_kind_overrides_the_content(tmp_path):
    path = tmp_path / "file"
    path.write_text("good morning\ngood night\n")
    assert read_source(path).vocabulary.keys.to_list() == ["good", "morning", "night"]
    source = read_source(path, kind="pairs")
    assert source.vocabulary.keys.to_list() == ["morning", "night"]
    assert source.sequences.names.to_list() == ["good"]


def test_bad_kind_and_columns_of_text(tmp_path):
    path = tmp_path / "file"
    path.write_text("good morning to you\n")
    with pytest.raises(ValueError, match=f"kind must be one of {', '.join(formats())}, got 'json'"):
        read_source(path, kind="json")
    with pytest.raises(ValueError, match="holds text, which has no column 'user'"):
        read_source(path, user_column="user")


def test_what_only_text_has(tmp_path):
    path = tmp_path / "file"
    path.write_text("Good morning!\nGood night.\n")
    source = read_source(path, tokens=r"\w+", end="<eos>", cache=True)
    assert source.vocabulary.keys.to_list() == ["Good", "<eos>", "morning", "night"]
    assert len(list(tmp_path.iterdir())) == 2
    again = read_source(path, tokens=r"\w+", end="<eos>", cache=True)
    assert again.sequences.values.tolist() == source.sequences.values.tolist()
    path.write_text("user,item\n1,2\n")
    for option in ({"tokens": r"\w+"}, {"end": "<eos>"}, {"cache": True}):
        with pytest.raises(ValueError, match=r'is for text, .* which is csv: kind="text" reads it'):
            read_source(path, **option)


def test_ids_of_a_typed_format_are_what_their_columns_say(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_text("user,item\n7,31\n")
    assert read_source(path).sequences.names.to_list() == [7]
    monkeypatch.setattr("widemax.data.reading.formats.csv_file.CsvFormat.typed", True)
    assert read_source(path).sequences.names.to_list() == ["7"]
