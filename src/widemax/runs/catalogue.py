"""The classes of a run as people name them: by key, by title, with what is shown of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from widemax.declarations.options import shortened, shown
from widemax.limits import check_whole
from widemax.runs.description import stored_titles, stored_vocabulary
from widemax.runs.lookup import ids_of_title, nearest_titles
from widemax.vocabulary import Vocabulary
from widemax.vocabulary.keys import Key, as_keys, key_like

KEY = "key"

_MOST_NAMED = 5
_TITLE_WORDS = ("title", "name", "label")
"""What the column that people know an item by is called, or has in its name."""


@dataclass(frozen=True, kw_only=True)
class Neighbour:
    """A key, how it scored, and what people know it by."""

    key: Key
    """The word, or the item of the log."""
    score: float
    """The cosine for ``similar``; the model's own score for ``recommend``."""
    title: str = ""
    """Its title, where the run has titles."""


class Catalogue:
    """Keys, titles and ids of the classes of a run, read without torch."""

    def __init__(self, folder: Path, vocabulary: Vocabulary | None = None) -> None:
        self.folder = folder
        self.vocabulary = stored_vocabulary(folder) if vocabulary is None else vocabulary

    @cached_property
    def shown(self) -> pl.DataFrame | None:
        """What the run shows of its items, a row for each class: titles, categories, prices."""
        return stored_titles(self.folder)

    @cached_property
    def titles(self) -> pl.Series | None:
        """The column that people know an item by."""
        if self.shown is None:
            return None
        named = [name for name in self.shown.columns if name != KEY]
        known = [name for word in _TITLE_WORDS for name in named if word in name.lower()]
        return self.shown[known[0]] if known else None

    def neighbours(self, ids: Sequence[int], scores: Iterable[float]) -> list[Neighbour]:
        """Return classes with their scores, as people know them."""
        keys = self.vocabulary.keys.gather(list(ids)).to_list()
        titles = [""] * len(keys) if self.titles is None else self.titles.gather(list(ids))
        return [
            Neighbour(key=key, score=score, title=title or "")
            for key, score, title in zip(keys, scores, titles, strict=True)
        ]

    def find(self, text: str, *, k: int = 10) -> list[Neighbour]:
        """Return at most ``k`` items that a text names, the most frequent first; scores are 0.

        A key names its item. Otherwise those are found whose titles, whatever the case of letters,
        are the text, else are it but for brackets at their end, else begin with it, else have it.
        """
        own = self._own_id(text)
        if own is not None:
            ids = [own]
        else:
            ids = [] if self.titles is None else ids_of_title(self.titles, text)
        ids = ids[: check_whole("k", k, 1, 2**31)]
        return self.neighbours(ids, [0.0] * len(ids))

    def ids(self, keys: Sequence[Key], *, strict: bool = False) -> pl.Series:
        """Return the ids of keys or titles; text from a command line may stand for whole numbers.

        With ``strict`` a key without a class is an error, even if there is an unknown key.
        """
        if isinstance(keys, str | bytes):
            raise ValueError(f"keys must be a list, got {shown(keys)}; a user is named by user=")
        if not len(keys):
            return pl.Series([], dtype=pl.Int64)
        given: Any = [self._named(key) for key in keys]
        values = as_keys(given)
        if self.vocabulary.keys.dtype == pl.Int64 and values.dtype == pl.String:
            plain = values.str.contains(r"^-?[0-9]{1,19}$").all()
            values = values.cast(pl.Int64, strict=False)
            if not plain or values.null_count():
                raise ValueError(f"keys must be whole numbers like those of the run, got {keys!r}")
        known = Vocabulary(self.vocabulary.table) if strict else self.vocabulary
        return known.ids_of(values)

    def _own_id(self, text: Key) -> int | None:
        """Return the class whose key a text is, which may be a whole number; None if it is none."""
        keys = self.vocabulary.keys
        key = key_like(text, keys.dtype)
        # A scan: a hash table of a large catalogue would cost more than the answer.
        return None if key is None else keys.index_of(key)

    def _named(self, text: Key) -> Key:
        """Return the key that a text names: as it is, or as the title of one item alone."""
        if self.titles is None or not isinstance(text, str):
            return text
        own = self._own_id(text)
        ids = ids_of_title(self.titles, text) if own is None else [own]
        if len(ids) == 1:
            key: Key = self.vocabulary.keys[ids[0]]
            return key
        wanted = shortened(repr(text))
        if not ids:
            near = " or ".join(repr(each) for each in nearest_titles(self.titles, text))
            hint = f"; did you mean {near}?" if near else ""
            raise ValueError(f"{wanted} is neither a key nor in a title of {self.folder}{hint}")
        some = ", ".join(f"{each.key} ({each.title})" for each in self.find(text, k=_MOST_NAMED))
        more = "" if len(ids) <= _MOST_NAMED else f" and {len(ids) - _MOST_NAMED:,} more"
        raise ValueError(f"{wanted} is in the titles of {len(ids):,} items: {some}{more}")
