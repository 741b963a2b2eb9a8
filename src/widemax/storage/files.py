"""Files: writing that no failure can tear, reading that names the file it refuses."""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
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
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name a file to write")
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
        # A full disk names no file, and what is not whole has a name that nobody knows.
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):
            raise OSError(error.errno, error.strerror or str(error), str(path)) from error
        raise
    sync_folder(path.parent)


def make_folder(folder: str | Path, *, parents: bool = True) -> Path:
    """Return a folder, made if it does not exist, with its ``parents``; a link to one stays.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "file"
    >>> file.touch()
    >>> make_folder(file)
    Traceback (most recent call last):
    ValueError: ...file is no folder: name another one
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=parents, exist_ok=True)
    except FileExistsError as error:
        raise ValueError(f"{folder} is no folder: name another one") from error
    except OSError as error:
        raise ValueError(f"{folder} cannot be made: {error.strerror or error}") from error
    return folder


def check_regular(path: str | Path) -> None:
    """Raise if there is something that is neither a file nor a folder, such as a device or a pipe.

    To read one may never end, and to replace one may harm the system.
    """
    try:
        mode = Path(path).stat().st_mode
    except (OSError, ValueError):
        return  # whoever opens it says what is wrong
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise ValueError(f"{path} is no regular file: a device, a pipe or a socket")


@contextmanager
def atomic_pair(folder: str | Path, names: tuple[str, str]) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Yield two files that take their names in ``folder`` only once both are whole and on disk.

    The folder is made if it does not exist. The two names are taken one right after the other: a
    process killed exactly between them leaves one new file and one old, and nothing less can.
    """
    folder = Path(folder)
    make_folder(folder, parents=False)
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


MOST_TEXT = 2**31
"""Bytes of a file that is read as one text, such as the keys of a vocabulary."""


def read_text(path: str | Path, *, most: int = MOST_TEXT) -> str:
    """Return the text of a UTF-8 file of at most so many bytes, without its byte order mark."""
    with open_to_read(path) as file:
        size = os.fstat(file.fileno()).st_size
        # Before anything is read: a sparse file has a size that no memory holds.
        if size > most:
            raise ValueError(f"{path} may have {most:,} bytes, and it has {size:,}")
        data = file.read(most)
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
    # Here and not above: most files are no tables, and a run answers without polars.
    import polars as pl

    try:
        # An open file, because polars reads patterns and partitions into a path.
        with open_to_read(path) as file:
            fields = pl.read_parquet_metadata(file)
            file.seek(0)
            return pl.read_parquet(file), fields
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise ValueError(f"{path} is not a whole Parquet file: {error}") from error
