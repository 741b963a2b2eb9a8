"""Keys in a text file of their own, one a line, beside the file of their vectors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import polars as pl

from widemax.storage.files import atomic_write, read_text


@contextmanager
def atomic_pair(folder: str | Path, names: tuple[str, str]) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Yield two files that take their names in ``folder`` only once both are whole and on disk.

    The folder is made if it is not there. The two names are taken one right after the other: a
    process killed exactly between leaves one new file and one old, and nothing less can.
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


def write_keys(file: BinaryIO, keys: pl.Series) -> None:
    """Write one key a line; a key must hold no line break."""
    pl.DataFrame(keys).write_csv(file, include_header=False, quote_style="never")


def read_keys(path: Path) -> pl.Series:
    """Return the lines of a file, of which there must be at least one."""
    text = read_text(path)
    if not text:
        raise ValueError(f"{path} is empty: there must be at least one key")
    lines = pl.Series("key", [text.removesuffix("\n")]).str.split("\n").explode()
    return lines.str.strip_suffix("\r")
