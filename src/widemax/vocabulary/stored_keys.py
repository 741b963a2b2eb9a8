"""The keys and titles of a run as arrays in a file: to name a few classes without polars."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from widemax.storage.arrays import Array, map_arrays, write_arrays
from widemax.storage.json_text import parse_json
from widemax.vocabulary.spelling import Key

_NUMBERS, _KEYS, _TITLES = "numbers", "keys", "titles"
_UNKNOWN = "unknown"


@dataclass(frozen=True, eq=False)
class Texts:
    """Many texts in one array of bytes.

    >>> texts = Texts.of(["tea", "", "rum"])
    >>> texts.at([2, 0]), texts.find("rum"), texts.find("ru"), len(texts)
    (['rum', 'tea'], 2, None, 3)
    """

    data: NDArray[np.uint8]
    """The UTF-8 of all of them, one behind the other."""
    ends: NDArray[np.int64]
    """Where each ends."""

    @classmethod
    def of(cls, texts: Sequence[str]) -> Texts:
        """Put texts together."""
        encoded = [text.encode() for text in texts]
        ends = np.cumsum([len(each) for each in encoded], dtype=np.int64)
        return cls(np.frombuffer(b"".join(encoded), np.uint8), ends)

    def __len__(self) -> int:
        return len(self.ends)

    def at(self, rows: Iterable[int]) -> list[str]:
        """Return the texts of some rows."""
        return [bytes(self.data[self._start(row) : self.ends[row]]).decode() for row in rows]

    def all(self) -> list[str]:
        """Return every text."""
        data, ends = self.data.tobytes(), self.ends.tolist()
        return [data[start:end].decode() for start, end in zip([0, *ends], ends, strict=False)]

    def find(self, text: str) -> int | None:
        """Return the first row of a text; None if there is none."""
        try:
            wanted = np.frombuffer(text.encode(), np.uint8)
        except UnicodeEncodeError:  # half a character, as from a file name: no file holds it
            return None
        rows = np.flatnonzero(np.diff(self.ends, prepend=0) == len(wanted))
        # From the end, where keys that begin alike differ.
        for place, byte in enumerate(wanted[::-1], 1):
            rows = rows[self.data[self.ends[rows] - place] == byte]
        return int(rows[0]) if len(rows) else None

    def _start(self, row: int) -> int:
        return int(self.ends[row - 1]) if row else 0


class StoredKeys:
    """The keys of a run, with titles where there are any: what ``write_keys`` wrote.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "keys.safetensors"
    >>> write_keys(path, [7, 3], titles=["Tea", ""])
    >>> keys = StoredKeys(path)
    >>> keys.whole, keys.keys_at([1, 0]), keys.rows_of([3, 5]), keys.titles
    (True, [3, 7], [1, None], ['Tea', ''])
    """

    def __init__(self, path: str | Path) -> None:
        arrays, metadata = map_arrays(path)
        self._numbers = arrays.get(_NUMBERS)
        texts, self._titles = (_texts(name, arrays) for name in (_KEYS, _TITLES))
        if (self._numbers is None) == (texts is None):
            raise ValueError(f"{path} must hold keys, either as numbers or as texts")
        self._texts = Texts.of([]) if texts is None else texts
        if self._titles is not None and len(self._titles) != len(self):
            raise ValueError(f"{path} must hold as many titles as keys")
        unknown = parse_json(f"{path}: {_UNKNOWN}", metadata.get(_UNKNOWN, "null").encode())
        if unknown is not None and not isinstance(unknown, str | int):
            raise ValueError(f"{path} must hold an unknown key or null")
        self.unknown: Key | None = unknown

    def __len__(self) -> int:
        return len(self._texts) if self._numbers is None else len(self._numbers)

    @property
    def whole(self) -> bool:
        """Whether the keys are whole numbers."""
        return self._numbers is not None

    @property
    def titles(self) -> list[str] | None:
        """What people know each class by, empty where there is nothing; None: none has a title."""
        return None if self._titles is None else self._titles.all()

    def keys_at(self, ids: Sequence[int]) -> list[Key]:
        """Return the keys of some classes."""
        if self._numbers is None:
            return list(self._texts.at(ids))
        return [int(each) for each in self._numbers[list(ids)]]

    def rows_of(self, keys: Sequence[Key]) -> list[int | None]:
        """Return the class of each key, which must be of the type of the others; None: no class."""
        return [self._row_of(key) for key in keys]

    def _row_of(self, key: Key) -> int | None:
        if self._numbers is None:
            return self._texts.find(str(key))
        rows = np.flatnonzero(self._numbers == key)
        return int(rows[0]) if len(rows) else None


def write_keys(
    path: str | Path,
    keys: Sequence[Key],
    *,
    titles: Sequence[str] | None = None,
    unknown: Key | None = None,
) -> None:
    """Write keys, all text or all whole numbers, in the order of their ids, and their titles."""
    arrays: dict[str, Array] = {}
    if keys and not isinstance(keys[0], str):
        arrays[_NUMBERS] = np.array(keys, np.int64)
    else:
        arrays |= _arrays(_KEYS, [str(key) for key in keys])
    if titles is not None:
        arrays |= _arrays(_TITLES, titles)
    write_arrays(path, arrays, {_UNKNOWN: json.dumps(unknown)})


def _arrays(name: str, texts: Sequence[str]) -> dict[str, Array]:
    together = Texts.of(texts)
    return {f"{name}.bytes": together.data, f"{name}.ends": together.ends}


def _texts(name: str, arrays: dict[str, Array]) -> Texts | None:
    if f"{name}.ends" not in arrays:
        return None
    data, ends = arrays.get(f"{name}.bytes", np.empty(0, np.uint8)), arrays[f"{name}.ends"]
    whole = (data.ndim, ends.ndim, data.dtype.str, ends.dtype.kind) == (1, 1, "|u1", "i")
    lengths = np.diff(ends, prepend=0) if whole else ends[:0]
    if not whole or (lengths < 0).any() or lengths.sum() != len(data):
        raise ValueError(f"the {name} must be bytes with the end of each text")
    return Texts(data, ends)
