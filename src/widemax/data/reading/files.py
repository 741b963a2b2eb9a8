"""Where raw records come from: a file, a folder or a pattern, plain or compressed (gzip, zstd)."""

from __future__ import annotations

import glob
import gzip
import sys
import zlib
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import unquote

from widemax.storage.files import open_to_read
from widemax.stores.addresses import is_address, place_of

HEAD_BYTES = 2**16
"""How much of a file is looked at to recognise what it holds."""

MAX_EXPANSION = 100
"""How many times its size a packed file may unpack to; text and logs take 3 to 30."""

BOM = b"\xef\xbb\xbf"

_BLANK = bytes.maketrans(b"\t\v\f\r", b"    ")
_GZIP = b"\x1f\x8b"
_MISSING = "__HIVE_DEFAULT_PARTITION__"
_ZIP = b"PK\x03\x04"
_ZSTD = b"\x28\xb5\x2f\xfd"
_ALWAYS_TAKEN = 2**24  # bytes: small files of a few words are packed more tightly
_BLOCK_BYTES = 2**24


def files_of(path: str | Path) -> list[Path]:
    """Return the files that ``path`` names, sorted: itself, those below it, or those it matches.

    Below a folder, names that begin with a dot or an underscore are skipped: systems leave notes
    to themselves there.
    """
    if is_address(path):
        raise ValueError(f"{place_of(path)} is a database, where files are wanted")
    if "\0" in str(path):
        raise ValueError(f"path must not hold a NUL, got {str(path)!r}")
    given = Path(path)
    try:
        if given.is_dir():
            below = (found.relative_to(given) for found in given.rglob("*") if found.is_file())
            files = [
                given / name
                for name in below
                if not any(part.startswith((".", "_")) for part in name.parts)
            ]
        elif given.exists() or not glob.has_magic(str(path)):
            return [given]
        else:
            # Path.glob takes no pattern that begins at the root.
            matches = map(Path, glob.glob(str(path), recursive=True))  # noqa: PTH207
            files = [match for match in matches if match.is_file()]
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
    if not files:
        raise ValueError(f"{path} holds no file to read: give a file, a folder or a pattern")
    return sorted(files)


def partitions_of(path: str | Path, files: list[Path]) -> list[dict[str, str | None]]:
    """Return the columns that the names of folders between ``path`` and each file hold.

    Spark, Hive, Dask and DuckDB write them as ``name=value``, with %-codes for special characters
    and ``__HIVE_DEFAULT_PARTITION__`` for a missing value. All files must have the same.

    >>> partitions_of("log", [Path("log/day=2026-01-31/part-0.parquet")])
    [{'day': '2026-01-31'}]
    """
    given = Path(path)
    found: list[dict[str, str | None]] = []
    for file in files:
        below = file.relative_to(given).parts[:-1] if file.is_relative_to(given) else ()
        pairs = [part.partition("=") for part in below if "=" in part]
        values = {unquote(name): unquote(value) for name, _, value in pairs if name}
        found.append({name: None if each == _MISSING else each for name, each in values.items()})
        if found[-1].keys() != found[0].keys():
            raise ValueError(
                f"{file} lies in folders of {', '.join(found[-1]) or 'no column'}, but {files[0]} "
                f"in those of {', '.join(found[0]) or 'none'}: all files must have the same"
            )
    return found


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Yield the bytes of a file, decompressed; what fails is a ValueError that names the file.

    gzip (RFC 1952) and zstd (RFC 8878) are recognised by their first bytes, whatever the name. One
    that unpacks to more than 16 MB and more than ``MAX_EXPANSION`` times its size is refused when
    it gets there: a file of 2 MB must not fill the memory.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "words"
    >>> _ = path.write_bytes(gzip.compress(b"rum and tea"))
    >>> with opened(path) as file:
    ...     len(file.read())
    11
    """
    unpack: Any
    errors: tuple[type[Exception], ...]
    with open_to_read(path) as raw:
        magic = raw.read(len(_ZSTD))
        raw.seek(0)
        if magic == _ZSTD:
            zstd = _zstd(path)
            name, unpack, errors = "zstd", zstd.ZstdFile, (EOFError, zstd.ZstdError)
        elif magic.startswith(_GZIP):
            errors = (EOFError, zlib.error, gzip.BadGzipFile)
            name, unpack = "gzip", gzip.open
        else:
            yield raw
            return
        try:
            with unpack(raw) as unpacked:
                yield cast("BinaryIO", _BoundedReader(unpacked, path))
        except errors as error:
            raise ValueError(f"{path} is not a whole {name} file: {error}") from error


class _BoundedReader:
    """Reads what is unpacked, as far as it is no more than the packed file can honestly hold."""

    def __init__(self, unpacked: BinaryIO, path: Path) -> None:
        self._unpacked, self._path, self._seen = unpacked, path, 0
        self._most = max(_ALWAYS_TAKEN, MAX_EXPANSION * path.stat().st_size)

    def read(self, size: int = -1) -> bytes:
        """Return that many bytes, fewer at the end; all that is left if ``size`` is below 0."""
        if size < 0:
            return b"".join(iter(lambda: self.read(_BLOCK_BYTES), b""))
        data = self._unpacked.read(size)
        self._seen += len(data)
        if self._seen > self._most:
            raise ValueError(
                f"{self._path} unpacks to more than {self._most:,} bytes, {MAX_EXPANSION} times "
                "its size: unpack it first if it is meant to be so"
            )
        return data


def _zstd(path: Path) -> Any:
    try:
        return import_module(
            "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
        )
    except ImportError as error:
        raise ValueError(
            f"{path} is packed with zstd: unpack it, or pack it with gzip, or "
            "pip install backports.zstd"
        ) from error


def read_ahead(file: BinaryIO, size: int) -> Generator[bytes]:
    """Yield ``size`` bytes at a time; the next are read and unpacked while the last are in use.

    Close it before the file, so that no thread continues to read: ``contextlib.closing`` does.
    """
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(file.read, size)
        while data := coming.result():
            coming = reader.submit(file.read, size)
            yield data


def decoded(data: bytes, path: Path, *, first_line: int = 1) -> str:
    """Return ``data`` as text; a NUL or a broken character is a ValueError that names its line."""
    if first_line == 1 and data.startswith(_ZIP):
        raise ValueError(
            f"{path} is a zip archive, as a workbook of Excel is: unpack it, or save the sheet "
            "as CSV"
        )
    nul = data.find(b"\0")
    try:
        if nul < 0:
            return data.decode()
    except UnicodeDecodeError as error:
        line = first_line + data.count(b"\n", 0, error.start)
        raise ValueError(f"{path}, line {line:,}: not UTF-8 ({error.reason})") from error
    line = first_line + data.count(b"\n", 0, nul)
    raise ValueError(f"{path}, line {line:,}: holds a NUL byte, so this is not text")


def head_of(path: Path) -> bytes:
    """Return the first whole lines of a file, or its whole words, without a byte order mark."""
    with opened(path) as file:
        # gzip may give less than was asked for, but only at the end.
        head = file.read(HEAD_BYTES).removeprefix(BOM)
    if len(head) < HEAD_BYTES - len(BOM):
        return head
    cut = head.rfind(b"\n") + 1 or with_blanks(head).rfind(b" ") + 1
    return head[:cut] if cut else head


def with_blanks(data: bytes) -> bytes:
    """Return ``data`` with a blank for every ASCII white space but the end of a line."""
    return data.translate(_BLANK)


def unix_lines(text: str) -> str:
    r"""Return a text whose lines all end in a carriage return with newlines instead.

    >>> unix_lines("rum\rtea"), unix_lines("rum\r\ntea")
    ('rum\ntea', 'rum\r\ntea')
    """
    return text if "\n" in text else text.replace("\r", "\n")


def read_all(path: Path) -> str:
    """Return the text of a whole file, without a byte order mark; an empty one is a ValueError.

    Lines end in a newline, whatever they end in in the file.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "words"
    >>> _ = path.write_bytes(BOM + b"rum and tea")
    >>> read_all(path)
    'rum and tea'
    """
    with opened(path) as file:
        text = unix_lines(decoded(file.read().removeprefix(BOM), path))
    if not text.strip():
        raise ValueError(f"{path} is empty")
    return text
