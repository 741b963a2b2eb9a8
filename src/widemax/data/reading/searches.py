"""What users typed before they chose: each word becomes an event of its own before the item.

A log with searches is then a log like any other. It is split, kept, continued and asked as it is;
the last event of a row is its item. The model says which classes are words, by their keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from widemax.data.reading.logs import Log

PREFIX = "search:"
"""Of the keys of words, which tells them from items."""

_WORD = r"[\p{L}\p{N}]+"


def words_of(texts: pl.Series) -> pl.Series:
    """Return the keys of the words of each text, a list each: lower case, in their order.

    >>> words_of(pl.Series(["Red shoes, red!", None])).to_list()
    [['search:red', 'search:shoes', 'search:red'], []]
    """
    words = texts.cast(pl.String).str.to_lowercase().str.extract_all(_WORD)
    return words.list.eval(pl.lit(PREFIX) + pl.element()).fill_null([])


class SearchedLog:
    """A log with a row for each word of what was typed before the row that it led to.

    Items become strings.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from widemax.data.reading.logs import Columns, scan_log
    >>> path = Path(tempfile.mkdtemp()) / "log"
    >>> _ = path.write_text("user,item,query\\n7,31,red shoes\\n7,12,\\n")
    >>> SearchedLog(scan_log([path], "csv", Columns("", "", search="query"))).items().to_list()
    ['search:red', 'search:shoes', '31', '12']
    """

    def __init__(self, log: Log) -> None:
        self.columns = log.columns
        searches = log.searches()
        assert searches is not None
        items = log.items().cast(pl.String)
        if bool(are_words(items).any()):
            raise ValueError(f"keys of items must not begin with {PREFIX!r}, as those of words do")
        rows = pl.DataFrame({"user": log.users(), "word": words_of(searches), "item": items})
        times = log.times()
        self._per_second = None if times is None else times[1]
        if times is not None:
            rows = rows.with_columns(times[0].alias("time"))
        weights = log.weights()
        if weights is not None:
            rows = rows.with_columns(weights.alias("weight"))
        self._rows = rows.with_columns(pl.concat_list("word", "item").alias("item")).explode("item")

    def users(self) -> pl.Series:
        """Return who chose or typed."""
        return self._rows["user"]

    def items(self) -> pl.Series:
        """Return what was chosen, or a word, strings."""
        return self._rows["item"]

    def times(self) -> tuple[pl.Series, float] | None:
        """Return when, as numbers, and how many of them make a second; None without times."""
        return None if self._per_second is None else (self._rows["time"], self._per_second)

    def weights(self) -> pl.Series | None:
        """Return how much each row counts, words as the choice they led to; None: all alike."""
        return self._rows["weight"] if "weight" in self._rows.columns else None

    def goals(self) -> None:
        """Return that no column says where a goal was reached."""
        return


def are_words(keys: pl.Series) -> pl.Series:
    """Return which keys are words of searches, as booleans.

    >>> are_words(pl.Series(["31", "search:red"])).to_list(), are_words(pl.Series([31])).to_list()
    ([False, True], [False])
    """
    return keys.cast(pl.String).str.starts_with(PREFIX)
