"""What every format of a log is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path

import polars as pl

from widemax.data.reading.files import decoded, head_of

USER, ITEM, TIME = "user", "item", "time"
"""The names of columns in formats without a header."""


class FileHead:
    """The first 64 KB of a file, by which its format is recognised.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "log"
    >>> _ = path.write_text("user,item\\n\\n7,31\\n")
    >>> FileHead(path).lines
    ['user,item', '7,31']
    """

    def __init__(self, path: Path) -> None:
        self.path, self.raw = path, head_of(path)

    @cached_property
    def lines(self) -> list[str]:
        """The lines that are not blank; a file without any, or that is no text, is an error."""
        lines = [
            line.rstrip("\r") for line in decoded(self.raw, self.path).split("\n") if line.strip()
        ]
        if not lines:
            raise ValueError(f"{self.path} is empty")
        return lines


class TableFormat(ABC):
    """A way in which a log lies in a file.

    Formats are asked in rising ``rank`` whether they recognise a file, the first that does reads
    it; a file that none recognises is a text.
    """

    rank = 0
    named = True
    """Whether its columns have names, or places that stand for them; else it is users and items."""
    typed = False
    """Whether its columns have types, and are read one by one; else all hold strings."""

    @staticmethod
    @abstractmethod
    def recognises(head: FileHead) -> bool:
        """Return whether a file that begins like this is of this format."""

    @staticmethod
    @abstractmethod
    def scan(path: Path) -> pl.LazyFrame:
        """Return the table of a file, with a column for users and one for items at least."""
