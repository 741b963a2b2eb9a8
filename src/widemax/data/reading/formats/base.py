"""What every format of a log is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from widemax.data.reading.files import decoded, head_of, unix_lines
from widemax.stores.addresses import Place

USER, ITEM, TIME = "user", "item", "time"
"""The names of columns in formats without a header."""

USUAL_NAMES = {
    USER: "userid user uid customerid customer memberid visitorid reviewerid sessionid session "
    "member visitor listener viewer reader clientid client accountid account",
    ITEM: "itemid item iid productid product parentasin asin movieid trackid songid artistid "
    "bookid isbn businessid articleid newsid videoid sku "
    "movie film filmid track song book article video",
    TIME: "timestamp time ts datetime date unixreviewtime eventtime createdat",
}
"""What columns are usually called, without case and punctuation, the likelier ones first."""


def plain_name(name: str) -> str:
    """Return the name of a column without case and punctuation.

    >>> plain_name(" User_ID")
    'userid'
    """
    return "".join(filter(str.isalnum, name.casefold()))


def names_a_log(fields: list[str]) -> bool:
    """Return whether a first line names a column of users and one of items, as no sentence does.

    >>> names_a_log(["userId", "rating", "movieId"]), names_a_log(["dear user", "item"])
    (True, False)
    """
    plain = {plain_name(field) for field in fields}
    return all(plain & set(USUAL_NAMES[role].split()) for role in (USER, ITEM))


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
        text = unix_lines(decoded(self.raw, self.path))
        lines = [line.rstrip("\r") for line in text.split("\n") if line.strip()]
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
    queried = False
    """Whether it is a database, of which a query says what is read."""

    @staticmethod
    @abstractmethod
    def recognises(head: FileHead) -> bool:
        """Return whether a file that begins like this is of this format."""

    @staticmethod
    @abstractmethod
    def scan(path: Path) -> pl.LazyFrame:
        """Return the table of a file, with a column for users and one for items at least."""


class QueriedFormat(TableFormat):
    """A database that answers a query of SQL; the answer is read batch by batch."""

    typed = True
    queried = True
    extra = ""
    """The extra of widemax that brings its driver."""

    @staticmethod
    def scan(path: Path) -> pl.LazyFrame:
        """Raise: a database has many tables."""
        raise ValueError(
            f"{path} is a database: say what to read with query "
            '(--query "select user_id, item_id, ts from clicks")'
        )

    @staticmethod
    @abstractmethod
    def answer(place: Place, query: str) -> AbstractContextManager[Any]:
        """Return the answer to a query while the database is open, a ``RecordBatchReader``.

        Nothing can be changed by the query. What it makes the database raise is a ValueError.
        """
