"""Files: writing that no failure can tear, reading that names the file it refuses."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import polars as pl

_TEMPORARY = re.compile(r"\.[0-9a-f]{16}\.part")


def temporary_name() -> str:
    """Return a name for what is not whole yet; a crash may leave it behind."""
    return f".{secrets.token_hex(8)}.part"


def is_temporary(path: Path) -> bool:
    """Return whether a path has such a name."""
    return _TEMPORARY.fullmatch(path.name) is not None


@contextmanager
def atomic_write(path: str | Path) -> Iterator[BinaryIO]:
    """Yield a file that takes the name ``path`` only once it is whole and on disk.

    Whatever stops the writing (an exception, a full disk, a killed process) leaves the old file
    as it was. A symbolic link stays, and what it points to is written; a device or a pipe is
    refused.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "count.txt"
    >>> with atomic_write(path) as file:
    ...     file.write(b"42")
    2
    >>> path.read_text()
    '42'
    """
    path = Path(path)
    if path.is_symlink():
        path = Path(os.path.realpath(path))
    if not path.parent.is_dir():
        raise ValueError(f"path must lie in an existing folder, got {str(path)!r}")
    check_regular(path)
    # A rename is atomic only within one file system, so the temporary file is a neighbour.
    temporary = path.with_name(temporary_name())
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and error.filename == str(temporary):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    sync_folder(path.parent)


def check_regular(path: str | Path) -> None:
    """Raise if there is something that is neither a file nor a folder, such as a device or a pipe.

    To read one may never end, and to replace one may harm the system.
    """
    path = Path(path)
    if path.exists() and not path.is_file() and not path.is_dir():
        raise ValueError(f"{path} is no regular file: a device, a pipe or a socket")


@contextmanager
def atomic_pair(folder: str | Path, names: tuple[str, str]) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Yield two files that take their names in ``folder`` only once both are whole and on disk.

    The folder is made if it does not exist. The two names are taken one right after the other: a
    process killed exactly between them leaves one new file and one old, and nothing less can.
    """
    folder = Path(folder)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise ValueError(f"{folder} cannot be made: {error.strerror or error}") from error
    with atomic_write(folder / names[0]) as first, atomic_write(folder / names[1]) as second:
        yield first, second
        # The second takes its name first: a disk that is full must show before that.
        first.flush()
        os.fsync(first.fileno())


def remove_torn_files(folder: Path) -> None:
    """Remove what a process that was killed in ``atomic_write`` left in a folder."""
    for path in folder.iterdir():
        if is_temporary(path) and path.is_file():
            path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Put the folder's entries, and so the new name, on disk."""
    if os.name != "posix":
        return  # elsewhere a folder cannot be opened, and the rename itself is on disk
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def open_to_read(path: str | Path) -> Iterator[BinaryIO]:
    """Yield the file at ``path``; what the system refuses is a ``ValueError`` that names it."""
    try:
        check_regular(path)
        with Path(path).open("rb") as file:
            yield file
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error


def read_text(path: str | Path) -> str:
    """Return the text of a UTF-8 file, without its byte order mark."""
    with open_to_read(path) as file:
        data = file.read()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line:,}: not UTF-8 ({error.reason})") from error


def write_table(path: str | Path, table: pl.DataFrame, fields: Mapping[str, str]) -> None:
    """Write a Parquet file that carries ``fields`` beside its columns."""
    with atomic_write(path) as file:
        table.write_parquet(file, metadata=dict(fields))


def read_table(path: str | Path) -> tuple[pl.DataFrame, dict[str, str]]:
    """Return the table of a Parquet file and the fields beside it."""
    try:
        # An open file, because polars reads patterns and partitions into a path.
        with open_to_read(path) as file:
            fields = pl.read_parquet_metadata(file)
            file.seek(0)
            return pl.read_parquet(file), fields
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise ValueError(f"{path} is not a whole Parquet file: {error}") from error
