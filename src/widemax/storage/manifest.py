"""Manifests: a small JSON file that says what lies beside it, and proves it by size and sha256."""

from __future__ import annotations

import errno
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypedDict

from widemax.storage.files import atomic_write, check_regular
from widemax.storage.json_text import parse_json

VERSION_FIELD = "format_version"

_MAX_MANIFEST_BYTES = 2**20
_SLICE = 2**22


class FileRecord(TypedDict):
    """What a manifest keeps of a file."""

    size: int
    """Its length in bytes."""
    sha256: str
    """Its sha256, as hexadecimal digits."""


class DamagedFileError(ValueError):
    """A file is missing, cut short or changed: not the one that was written."""

    def __init__(self, path: Path, problem: str, advice: str = "") -> None:
        super().__init__(f"{path} {problem}" + (f"; {advice}" if advice else ""))
        self.path = path
        """The file."""
        self.problem = problem
        """What is wrong with it, as the rest of a sentence that begins with its name."""


class HashingWriter:
    """Passes bytes on to an open file and keeps their number and sha256.

    >>> import io
    >>> writer = HashingWriter(io.BytesIO())
    >>> writer.write(b"tea")
    3
    >>> writer.record()["size"], writer.record()["sha256"][:8]
    (3, 'a9f74d1e')
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._size, self._digest = file, 0, hashlib.sha256()

    def write(self, data: bytes | memoryview) -> int:
        """Write bytes and return how many; a memoryview must be one of bytes."""
        view = memoryview(data)
        # In slices, so that what is hashed is still in the cache when it is written.
        for start in range(0, len(view), _SLICE):
            self._digest.update(view[start : start + _SLICE])
            self._file.write(view[start : start + _SLICE])
        self._size += len(view)
        return len(view)

    def record(self) -> FileRecord:
        """Return what a manifest keeps of the bytes written so far."""
        return {"size": self._size, "sha256": self._digest.hexdigest()}


def file_sha256(path: str | Path) -> str:
    """Return the sha256 of a file; one that is lost is a ``DamagedFileError``.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "words.txt"
    >>> _ = path.write_bytes(b"tea")
    >>> file_sha256(path)[:8]
    'a9f74d1e'
    """
    path = Path(path)
    with reading(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_file(path: str | Path, *, sha256: object, size: object = None) -> None:
    """Raise ``DamagedFileError`` if a file has not this sha256 and, if it is given, this size.

    To be called before anything parses the file: what a parser makes of a changed one is anybody's
    guess.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "words.txt"
    >>> _ = path.write_bytes(b"tea")
    >>> check_file(path, size=4, sha256=file_sha256(path))
    Traceback (most recent call last):
    widemax.storage.manifest.DamagedFileError: ...words.txt was changed: it has 3 bytes, not 4
    """
    path = Path(path)
    if size is not None:
        with reading(path):
            found = path.stat().st_size
        # The size first: a file that was cut or grown need not be read.
        if found != size:
            raise DamagedFileError(path, f"was changed: it has {found:,} bytes, not {size}")
    if file_sha256(path) != sha256:
        raise DamagedFileError(path, "was changed: its sha256 is not the one recorded")


def write_manifest(
    path: str | Path, version: int, fields: Mapping[str, Any], *, version_field: str = VERSION_FIELD
) -> None:
    """Write a JSON object of the format version and ``fields``, atomically.

    Written last, after all the files that it describes: a folder with a manifest is whole.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "manifest.json"
    >>> write_manifest(path, 1, {"kind": "exact"})
    >>> read_manifest(path, 1)
    {'format_version': 1, 'kind': 'exact'}
    """
    content = json.dumps({version_field: version, **fields}, allow_nan=False, indent=1)
    with atomic_write(path) as file:
        file.write(content.encode() + b"\n")


def read_manifest(
    path: str | Path, version: int, *, version_field: str = VERSION_FIELD, if_older: str = ""
) -> dict[str, Any]:
    """Return the object that ``write_manifest`` wrote, its version included.

    One that is lost or is no such object is a ``DamagedFileError``; one of another version is a
    plain ``ValueError`` that names both: it is whole, and another widemax reads it.
    """
    path = Path(path)
    with reading(path), path.open("rb") as file:
        data = file.read(_MAX_MANIFEST_BYTES + 1)
    if len(data) > _MAX_MANIFEST_BYTES:
        raise DamagedFileError(path, f"is damaged: it has more than {_MAX_MANIFEST_BYTES:,} bytes")
    try:
        manifest = parse_json("it", data)
    except ValueError as error:
        raise DamagedFileError(path, f"is damaged: {error}") from error
    found = manifest.get(version_field) if isinstance(manifest, dict) else None
    if type(found) is not int or found < 1:
        raise DamagedFileError(
            path, f"is damaged: its {version_field} must be a whole number above 0, got {found!r}"
        )
    check_version(str(path), found, version, if_older)
    return dict(manifest)


def check_version(name: str, found: int, readable: int, if_older: str = "") -> None:
    """Raise if a file has another format version than the one that this widemax reads.

    ``if_older`` says what else can be done about an older one.

    >>> check_version("index.json", 3, 2)
    Traceback (most recent call last):
    ValueError: index.json has format version 3 and this widemax reads 2: a newer widemax is needed
    """
    if found != readable:
        needed = "a newer widemax is needed"
        if found < readable:
            needed = "an older widemax is needed" + (f", or {if_older}" if if_older else "")
        raise ValueError(
            f"{name} has format version {found} and this widemax reads {readable}: {needed}"
        )


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Name the file of an ``OSError``, and raise ``DamagedFileError`` if the file is lost.

    One that only this process cannot read, such as without permission, is a plain ``ValueError``.
    """
    try:
        check_regular(path)
        yield
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EIO):
            raise DamagedFileError(path, f"cannot be read: {error.strerror}") from error
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
