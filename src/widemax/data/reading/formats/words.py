"""Plain words: a user and an item a line, or a user and all their items."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from widemax.data.reading.files import read_all, with_blanks
from widemax.data.reading.formats.base import ITEM, USER, FileHead, TableFormat
from widemax.declarations import declare
from widemax.declarations.shared import UNORDERED

_FEWEST_LISTS = 3


@declare.file_format("lists", traits=[UNORDERED])
class ListsFormat(TableFormat):
    """Lists: whole numbers, a user and their items a line, each user in one line."""

    rank = 40
    named = False

    @staticmethod
    def recognises(head: FileHead) -> bool:
        """Return whether there are several lines of whole numbers, each user in one of them."""
        rows = [line.split() for line in head.lines]
        widths = {len(row) for row in rows}
        return (
            len(rows) > 1
            and max(widths) > 1
            and widths != {2}
            and all(word.isascii() and word.isdecimal() for row in rows for word in row)
            and len({row[0] for row in rows}) == len(rows)
        )

    @staticmethod
    def scan(path: Path) -> pl.LazyFrame:
        """Return a row for each word after the first of its line; a user without items has none."""
        words = _words_by_line(path)
        line, word = words["line"], words["word"]
        is_user = (line != line.shift()).fill_null(True)
        users = word.filter(is_user)
        row = is_user.cast(pl.Int64).cum_sum() - 1
        table = {USER: users.gather(row.filter(~is_user)), ITEM: word.filter(~is_user)}
        return pl.DataFrame(table).lazy()


def may_be_lists(head: FileHead) -> bool:
    """Return whether no word that begins a line stands elsewhere in one, as users do in lists.

    A text of a few lines may be like that, too.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "log"
    >>> _ = path.write_text("u0 i13 i42\\nu1 i13\\nu2 i42 i7\\nu0 i7\\n")
    >>> may_be_lists(FileHead(path))
    True
    """
    rows = [line.split() for line in head.lines]
    first = {row[0] for row in rows}
    return len(first) >= _FEWEST_LISTS and all(
        len(row) > 1 and first.isdisjoint(row[1:]) for row in rows
    )


@declare.file_format("pairs")
class PairsFormat(TableFormat):
    """Pairs: two words a line, each with a digit in it."""

    rank = 50
    named = False

    @staticmethod
    def recognises(head: FileHead) -> bool:
        """Return whether every line has two words, and every word holds a digit."""
        rows = [line.split() for line in head.lines]
        return all(
            len(row) == 2 and all(any(map(str.isdigit, word)) for word in row) for row in rows
        )

    @staticmethod
    def scan(path: Path) -> pl.LazyFrame:
        """Return a user and an item for each line."""
        words = _words_by_line(path)
        lengths = np.bincount(words["line"])
        wrong = np.flatnonzero((lengths != 2) & (lengths != 0))
        if len(wrong):
            raise ValueError(
                f"{path}, line {wrong[0] + 1:,}: a user and an item wanted, got "
                f'{lengths[wrong[0]]:,} words; kind="lists" reads a user and their items, '
                'kind="text" sentences'
            )
        word = words["word"]
        table = {USER: word.gather_every(2), ITEM: word.gather_every(2, 1)}
        return pl.DataFrame(table).lazy()


def _words_by_line(path: Path) -> pl.DataFrame:
    """Return the words of a file and the number of the line each stands in, from 0."""
    plain = with_blanks(read_all(path).rstrip("\r\n").encode()).decode()
    lines = pl.Series("word", [plain]).str.split("\n").explode().str.split(" ")
    return lines.to_frame().with_row_index("line").explode("word").filter(pl.col("word") != "")
