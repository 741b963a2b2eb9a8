"""The classes of a run as people name them: by key, by title, with what is shown of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING

from widemax.declarations.options import shortened, shown
from widemax.limits import check_whole
from widemax.runs.folder.description import stored_keys, stored_titles, stored_vocabulary
from widemax.runs.folder.lookup import ids_of_title, nearest_titles
from widemax.vocabulary.spelling import (
    MOST_COMPARED,
    Key,
    UnknownNameError,
    key_like,
    near_or_some,
    nearest_spellings,
    quoted,
)
from widemax.vocabulary.stored_keys import StoredKeys

# Not loaded for the answers of a run that keeps its keys as arrays.
if TYPE_CHECKING:
    import polars as pl

    from widemax.runs.folder.item_columns import ItemColumns
    from widemax.vocabulary import Vocabulary

KEY = "key"

_MOST_NAMED = 5
_MOST_SHOWN = 3
_TITLE_WORDS = (
    *("title", "titel", "titre", "titolo", "título", "titulo", "标题"),
    *("name", "bezeichnung", "nombre", "名称", "label"),
)
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


@dataclass(frozen=True, kw_only=True)
class ScoredItem:
    """An item, how a model scores it, and how probable that is."""

    key: Key
    """The word, or the item of the log."""
    score: float
    """The model's own score, as of ``recommend``."""
    log_probability: float | None
    """log P over the whole catalogue; None where the model gives it no probability."""
    title: str = ""
    """Its title, where the run has titles."""


class Catalogue:
    """Keys, titles and ids of the classes of a run, read without torch.

    They come from the arrays that a run keeps of them, or from its vocabulary.
    """

    def __init__(self, folder: Path, vocabulary: Vocabulary | None = None) -> None:
        self.folder = folder
        self.keys: StoredKeys | Vocabulary = (
            vocabulary or stored_keys(folder) or stored_vocabulary(folder)
        )
        self._whole = self.keys.whole
        self._listed: list[Key] | None = None
        self._rows: dict[Key, int] | None = None

    @cached_property
    def shown(self) -> pl.DataFrame | None:
        """What the run shows of its items, a row for each class: titles, categories, prices."""
        return stored_titles(self.folder)

    def prepare(self) -> None:
        """Make a hash table of the keys, for whoever asks often: it costs more than one answer."""
        self._listed = self.keys.keys_at(range(len(self.keys)))
        self._rows = {key: row for row, key in enumerate(self._listed)}
        _ = self.titles, self._lowered, self._rows_of_title

    def rows_of(self, keys: Sequence[Key]) -> list[int | None]:
        """Return the class of each key, which must be of the type of the others; None: no class."""
        if self._rows is None:
            return self.keys.rows_of(keys)
        return [self._rows.get(key) for key in keys]

    @cached_property
    def columns(self) -> ItemColumns:
        """What is known of the items beside their titles, to be shown and to choose by."""
        from widemax.runs.folder.item_columns import ItemColumns

        return ItemColumns.open(self.folder, self.shown)

    @cached_property
    def titles(self) -> list[str] | None:
        """What people know each item by, empty where there is nothing; None: none has a title."""
        if isinstance(self.keys, StoredKeys):
            return self.keys.titles
        return None if self.shown is None else titles_of(self.shown)

    @cached_property
    def _lowered(self) -> list[str]:
        return [title.lower() for title in self.titles or []]

    @cached_property
    def _rows_of_title(self) -> dict[str, list[int]]:
        """The classes of each whole title, in small letters, for a catalogue that is prepared."""
        found: dict[str, list[int]] = {}
        for row, title in enumerate(self._lowered):
            found.setdefault(title, []).append(row)
        return found

    def _titled(self, text: str) -> list[int]:
        """Return the classes whose titles a text names, as ``ids_of_title`` has it."""
        wanted = text.strip().lower()
        if self._rows is not None and wanted and wanted in self._rows_of_title:
            return self._rows_of_title[wanted]
        return ids_of_title(self._lowered, text)

    def neighbours(self, ids: Sequence[int], scores: Iterable[float]) -> list[Neighbour]:
        """Return classes with their scores, as people know them."""
        keys, known = self._keys_at(ids), self.titles
        titles = [""] * len(keys) if known is None else [known[row] for row in ids]
        return [
            Neighbour(key=key, score=score, title=title)
            for key, score, title in zip(keys, scores, titles, strict=True)
        ]

    def _keys_at(self, ids: Sequence[int]) -> list[Key]:
        listed = self._listed
        return self.keys.keys_at(ids) if listed is None else [listed[row] for row in ids]

    def find(self, text: str, *, k: int = 10) -> list[Neighbour]:
        """Return at most ``k`` items that a text names, the most frequent first; scores are 0.

        A key names its item. Otherwise those are found whose titles, whatever the case of letters,
        are the text, else are it but for brackets at their end, else begin with it, else have it.
        """
        own = self._own_id(text)
        ids = self._titled(text) if own is None else [own]
        ids = ids[: check_whole("k", k, 1, 2**31)]
        return self.neighbours(ids, [0.0] * len(ids))

    def nearest(self, text: str) -> list[str]:
        """Return the titles, or else the keys, that are spelt most like a text."""
        near = nearest_titles(self.titles or [], text)
        return near or nearest_spellings(text, self._most_frequent())

    def _most_frequent(self) -> list[Key]:
        """Return the keys that a misspelt one is compared with."""
        return self.keys.keys_at(range(min(len(self.keys), MOST_COMPARED)))

    def ids(self, keys: Sequence[Key], *, strict: bool = False) -> list[int]:
        """Return the ids of keys or titles; text from a command line may stand for whole numbers.

        With ``strict`` a key without a class is an error, even if there is an unknown key.
        """
        if isinstance(keys, str | bytes):
            raise ValueError(f"keys must be a list, got {shown(keys)}; a user is named by user=")
        listed = self._listed_rows(keys)
        if listed is not None:
            return listed
        given = [self._like_own(self._named(key), keys) for key in keys]
        unknown = None if strict or self.keys.unknown is None else self._own_id(self.keys.unknown)
        found = [unknown if row is None else row for row in self.rows_of(given)]
        for key, row in zip(given, found, strict=True):
            if row is None:
                raise self._unknown(key)
        return [row for row in found if row is not None]

    def _unknown(self, key: Key) -> UnknownNameError:
        """Return the error about a key that the run does not have, with keys that it has."""
        total = len(self.keys)
        first = self._most_frequent()
        near = nearest_spellings(key, first)
        return UnknownNameError(
            f"{quoted(key)} is not among the {total:,} keys of {self.folder}"
            f"{near_or_some(near, first)}",
            near,
        )

    def _listed_rows(self, keys: Sequence[Key]) -> list[int] | None:
        """Return the classes of keys that stand as they are in the hash table; None: not all do."""
        rows = self._rows
        if rows is None:
            return None
        found = []
        for key in keys:
            if type(key) is str:
                # Titles, signs and longer numbers are looked at more closely.
                plain = not self._whole or (key.isascii() and key.isdigit() and len(key) < 19)
                row = rows.get(int(key) if self._whole else key) if plain else None
            else:
                row = rows.get(key) if self._whole and type(key) is int else None
            if row is None:
                return None
            found.append(row)
        return found

    def _like_own(self, key: Key, keys: Sequence[Key]) -> Key:
        """Return a key as those of the run are; raise if it cannot be one."""
        if isinstance(key, bool) or not isinstance(key, str | Integral):
            raise ValueError(f"keys must hold strings or whole numbers, got {shown(key)}")
        if not self._whole and not isinstance(key, str):
            raise ValueError("keys must hold strings like the vocabulary, got whole numbers")
        own = key_like(key, whole=self._whole)
        if own is None:
            raise ValueError(f"keys must be whole numbers like those of the run, got {keys!r}")
        return own

    def _own_id(self, text: Key) -> int | None:
        """Return the class whose key a text is, which may be a whole number; None if it is none."""
        key = key_like(text, whole=self._whole)
        return None if key is None else self.rows_of([key])[0]

    def _named(self, text: Key) -> Key:
        """Return the key that a text names: as it is, or as the title of one item alone."""
        if self.titles is None or not isinstance(text, str):
            return text
        own = self._own_id(text)
        ids = self._titled(text) if own is None else [own]
        if len(ids) == 1:
            return self._keys_at(ids)[0]
        wanted = shortened(repr(text))
        if not ids:
            near = self.nearest(text)
            hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
            raise UnknownNameError(
                f"{wanted} is neither a key nor in a title of {self.folder}{hint}", near
            )
        keys = [str(each) for each in self.keys.keys_at(ids[:_MOST_NAMED])]
        some = ", ".join(f"{each.key} ({each.title})" for each in self.find(text, k=_MOST_NAMED))
        more = "" if len(ids) <= _MOST_NAMED else f" and {len(ids) - _MOST_NAMED:,} more"
        raise UnknownNameError(
            f"{wanted} is in the titles of {len(ids):,} items: {some}{more}; the key of one names "
            f"it alone, such as {keys[0]}",
            keys,
        )


def title_column(shown: pl.DataFrame) -> str | None:
    """Return which column of a table people know an item by; None if none is like that."""
    named = [name for name in shown.columns if name != KEY]
    known = [name for word in _TITLE_WORDS for name in named if word in name.lower()]
    return known[0] if known else None


def titles_of(shown: pl.DataFrame) -> list[str] | None:
    """Return what people know each item by; None if the table has no column of that."""
    name = title_column(shown)
    return None if name is None else ["" if title is None else str(title) for title in shown[name]]
