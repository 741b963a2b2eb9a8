"""Manifests: what they describe is whole and of a known version, or refused by name."""

import errno
import hashlib
import io
import json
import os
from pathlib import Path

import pytest

from widemax.storage.manifest import (
    DamagedFileError,
    HashingWriter,
    check_file,
    file_sha256,
    read_manifest,
    write_manifest,
)


@pytest.mark.parametrize("size", [0, 1, 2**22, 2**22 + 1])
def test_what_is_hashed_while_it_is_written_is_what_is_on_disk(tmp_path, size):
    content, path = os.urandom(size), tmp_path / "file"
    with path.open("wb") as file:
        writer = HashingWriter(file)
        assert writer.write(content) + writer.write(memoryview(b"end")) == size + 3
    assert path.read_bytes() == content + b"end"
    sha256 = hashlib.sha256(content + b"end").hexdigest()
    assert writer.record() == {"size": size + 3, "sha256": sha256}
    assert file_sha256(path) == sha256
    check_file(path, **writer.record())
    check_file(path, sha256=sha256)


def test_a_write_that_fails_is_not_counted():
    class Full(io.BytesIO):
        def write(self, data):
            raise OSError(errno.ENOSPC, "No space left on device")

    writer = HashingWriter(Full())
    with pytest.raises(OSError, match="No space left"):
        writer.write(b"tea")
    assert writer.record()["size"] == 0


def test_a_changed_or_lost_file_is_damaged(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"tea")
    sha256 = file_sha256(path)
    for record, problem in [
        ({"size": 4, "sha256": sha256}, "it has 3 bytes, not 4"),
        ({"size": 3, "sha256": "0" * 64}, "its sha256 is not the one recorded"),
        ({"size": None, "sha256": None}, "its sha256 is not the one recorded"),
    ]:
        with pytest.raises(DamagedFileError, match=f"{path} was changed: {problem}") as raised:
            check_file(path, **record)
        assert raised.value.path == path
    path.unlink()
    for size in (3, None):
        with pytest.raises(DamagedFileError, match="cannot be read: No such file"):
            check_file(path, size=size, sha256=sha256)


def test_a_file_that_only_we_cannot_read_is_not_damaged(tmp_path, monkeypatch):
    def refused(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    (tmp_path / "file").write_bytes(b"tea")
    monkeypatch.setattr(Path, "open", refused)
    for read in (file_sha256, lambda path: read_manifest(path, 1)):
        with pytest.raises(ValueError, match="cannot be read: Permission denied") as raised:
            read(tmp_path / "file")
        assert not isinstance(raised.value, DamagedFileError)


@pytest.mark.parametrize("field", ["format_version", "format"])
def test_another_version_is_named_and_is_not_damage(tmp_path, field):
    path = tmp_path / "manifest.json"
    for found, needed in ((1, "an older"), (3, "a newer")):
        write_manifest(path, found, {"kind": "x"}, version_field=field)
        expected = f"{path} has format version {found} and this widemax reads 2: {needed} widemax"
        with pytest.raises(ValueError, match=expected) as raised:
            read_manifest(path, 2, version_field=field)
        assert not isinstance(raised.value, DamagedFileError)
    write_manifest(path, 2, {"kind": "x"}, version_field=field)
    assert read_manifest(path, 2, version_field=field) == {field: 2, "kind": "x"}
    assert json.loads(path.read_text()) == {field: 2, "kind": "x"}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", "null", "NaN", "[" * 10**5]
    + [json.dumps({"format_version": version}) for version in (True, "1", 0, -1, 1.0, None)],
)  # fmt: skip
def test_a_manifest_that_is_none_is_damaged(tmp_path, text):
    path = tmp_path / "manifest.json"
    path.write_text(text)
    with pytest.raises(DamagedFileError, match=f"{path} is damaged: "):
        read_manifest(path, 1)
    path.unlink()
    with pytest.raises(DamagedFileError, match="cannot be read: No such file"):
        read_manifest(path, 1)


def test_what_json_has_not_is_never_written(tmp_path):
    path = tmp_path / "manifest.json"
    write_manifest(path, 1, {"recall": 0.5})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_manifest(path, 1, {"recall": float("nan")})
    assert read_manifest(path, 1)["recall"] == 0.5
