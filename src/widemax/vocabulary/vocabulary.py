"""Raw keys (words, items) and the class ids the rest of the library works with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from widemax.limits import ABSENT, check_whole
from widemax.storage.files import read_table, write_table
from widemax.storage.manifest import check_version
from widemax.vocabulary.keys import (
    MAX_TOTAL,
    Counts,
    Keys,
    as_keys,
    as_whole_numbers,
    first_problem,
    first_row,
    read_count_lines,
)
from widemax.vocabulary.spelling import MOST_COMPARED, Key, not_among, quoted

# torch is loaded by what returns tensors: a run is asked for its words without it.
if TYPE_CHECKING:
    from torch import Tensor

FORMAT_VERSION = 1
_VERSION_FIELD = "widemax.vocabulary.version"
_UNKNOWN_FIELD = "widemax.vocabulary.unknown"

_COLUMNS = {"key": (pl.String(), pl.Int64()), "count": (pl.Int64(),)}


@dataclass(frozen=True, eq=False, repr=False)
class Vocabulary:
    """Keys and their class ids: the most frequent key is class 0, the next class 1, and so on.

    Of keys with the same count the one that came first has the smaller id. A vocabulary never
    changes: every method that seems to change it returns a new one. Counting or encoding ten
    million keys takes about a second. ``LogUniformSampler`` and the adaptive head rely on ids in
    falling frequency.

    >>> vocabulary = Vocabulary.count(["tea", "rum", "tea", "gin"], max_size=2, unknown="?")
    >>> vocabulary
    Vocabulary(2 keys, total 4, unknown '?': 'tea' 2, '?' 2)
    >>> vocabulary.encode(["rum", "tea"]).tolist(), vocabulary.total
    ([1, 0], 4)
    """

    table: pl.DataFrame
    """One row per class, in the order of the ids: ``key`` (string or int64) and ``count``."""
    unknown: Key | None = None
    """The key, a class like any other, that stands for every key without a class."""

    def __post_init__(self) -> None:
        _check_columns(self.table)
        problem = first_problem(self.table)
        if problem is not None:
            raise ValueError("row {}: {}".format(*problem))
        if self.unknown is not None and self._unknown_id is None:
            raise ValueError(f"unknown must be one of the keys, got {quoted(self.unknown)}")

    @classmethod
    def count(
        cls,
        keys: Keys,
        *,
        min_count: int = 1,
        max_size: int | None = None,
        unknown: Key | None = None,
    ) -> Vocabulary:
        """Count ``keys``; see ``trimmed`` for what is kept. Ties go to the key seen first."""
        _check_limits(min_count, max_size)
        counted = cls(_counted(as_keys(keys)))
        return counted.trimmed(min_count=min_count, max_size=max_size, unknown=unknown)

    @classmethod
    def from_counts(
        cls,
        keys: Keys,
        counts: Counts,
        *,
        min_count: int = 0,
        max_size: int | None = None,
        unknown: Key | None = None,
    ) -> Vocabulary:
        """Take keys that are counted already, in any order; see ``trimmed`` for what is kept."""
        _check_limits(min_count, max_size)
        key, count = as_keys(keys), as_whole_numbers("counts", counts)
        if len(key) != len(count):
            raise ValueError(f"counts must have {len(key):,} entries like keys, got {len(count):,}")
        given = cls(pl.DataFrame({"key": key, "count": count}))
        return given.trimmed(min_count=min_count, max_size=max_size, unknown=unknown)

    @classmethod
    def read_counts(
        cls,
        path: str | Path,
        *,
        separator: str = "\t",
        min_count: int = 0,
        max_size: int | None = None,
        unknown: str | None = None,
    ) -> Vocabulary:
        """Read a text file with the key in the first and the count in the last column.

        The lines may be in any order; see ``trimmed`` for what is kept.
        """
        _check_limits(min_count, max_size)
        given = cls(read_count_lines(Path(path), separator))
        return given.trimmed(min_count=min_count, max_size=max_size, unknown=unknown)

    @property
    def keys(self) -> pl.Series:
        """The keys in the order of their ids."""
        return self.table["key"]

    @property
    def counts(self) -> Tensor:
        """How often each class was counted, int64 [V]."""
        return self.table["count"].to_torch()

    @property
    def total(self) -> int:
        """The sum of all counts."""
        return int(self.table["count"].sum())

    @property
    def whole(self) -> bool:
        """Whether the keys are whole numbers; otherwise they are strings."""
        return self.keys.dtype == pl.Int64

    @property
    def ordered(self) -> bool:
        """Whether the ids are in falling count; after ``grow`` they may not be."""
        return self.table["count"].is_sorted(descending=True)

    @cached_property
    def numbering(self) -> str:
        """A hash of the keys in their order: where it is equal, ids mean the same keys.

        >>> one, other = Vocabulary.count(["tea", "tea", "rum"]), Vocabulary.count(["rum", "tea"])
        >>> one.numbering == other.numbering, one.numbering == one.trimmed().numbering
        (False, True)
        """
        texts = self.keys.cast(pl.String)
        # With their lengths, so that no two lists of keys look alike.
        parts = (texts.str.len_bytes().to_numpy().tobytes(), "".join(texts.to_list()).encode())
        return sha256(str(self.keys.dtype).encode() + b"".join(parts)).hexdigest()

    def __len__(self) -> int:
        return self.table.height

    def __contains__(self, key: object) -> bool:
        return key in self._id_by_key

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return NotImplemented
        return self.unknown == other.unknown and self.table.equals(other.table)

    __hash__ = None  # type: ignore[assignment]  # a hash would have to read every key

    def __repr__(self) -> str:
        first = ", ".join(f"{quoted(key)} {count}" for key, count in self.table.head(3).iter_rows())
        unknown = "" if self.unknown is None else f", unknown {quoted(self.unknown)}"
        more = ", …" if len(self) > 3 else ""
        return f"Vocabulary({len(self):,} keys, total {self.total:,}{unknown}: {first}{more})"

    def id_of(self, key: Key) -> int:
        """Return the id of one key; for many keys ``encode`` is the quick way."""
        found = self._id_by_key.get(key, self._unknown_id)
        if found is None:
            raise ValueError(f"key {self._not_among(key)}")
        return found

    def encode(self, keys: Keys, *, missing: Literal["error", "mark"] = "error") -> Tensor:
        """Return the ids of ``keys``, int64 [N].

        A key without a class gets the id of the unknown key. If the vocabulary has none, it is an
        error, or -1 with ``missing="mark"``.
        """
        return self.ids_of(keys, missing=missing).to_torch()

    def ids_of(self, keys: Keys, *, missing: Literal["error", "mark"] = "error") -> pl.Series:
        """Return what ``encode`` does, as a column: without torch.

        >>> Vocabulary.count(["tea", "rum", "tea"]).ids_of(["rum"]).to_list()
        [1]
        """
        if missing not in ("error", "mark"):
            raise ValueError(f"missing must be 'error' or 'mark', got {missing!r}")
        sought = self._like_own_keys(as_keys(keys))
        ids = self._find(sought)
        if ids.null_count() and self._unknown_id is None and missing == "error":
            row = first_row(ids.is_null())
            raise ValueError(f"keys[{row}] {self._not_among(sought[row])}")
        return ids.fill_null(ABSENT if self._unknown_id is None else self._unknown_id)

    def keys_at(self, ids: Sequence[int]) -> list[Key]:
        """Return the keys of some classes; ``decode`` takes tensors, and looks whether they are.

        >>> Vocabulary.count(["tea", "rum", "tea"]).keys_at([1, 0])
        ['rum', 'tea']
        """
        return self.keys.gather(list(ids)).to_list()

    def rows_of(self, keys: Sequence[Key]) -> list[int | None]:
        """Return the class of each key, which must be of the type of the others; None: no class.

        >>> Vocabulary.count(["tea", "rum", "tea"]).rows_of(["rum", "gin"])
        [1, None]
        """
        if not keys:
            return []
        return self._find(pl.Series("key", list(keys), dtype=self.keys.dtype)).to_list()

    def decode(self, ids: Tensor | np.ndarray[Any, Any] | Sequence[int]) -> list[Key]:
        """Return the keys of the classes ``ids`` [N]."""
        import torch

        from widemax.validation import check_ids

        try:
            given = torch.as_tensor(ids)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"ids must hold whole numbers: {error}") from error
        if given.dim() != 1:
            raise ValueError(f"ids must have shape [N], got {list(given.shape)}")
        if not len(given):
            return []
        checked = check_ids("ids", given, len(self))
        return self.keys.gather(checked.cpu().numpy()).to_list()

    def trimmed(
        self, *, min_count: int = 0, max_size: int | None = None, unknown: Key | None = None
    ) -> Vocabulary:
        """Keep the keys with at least ``min_count``, at most ``max_size`` of them; sort again.

        With an ``unknown`` key (or one that is there already) the counts of the dropped keys are
        added to it. It is itself never dropped, is one of the ``max_size``, and comes last among
        keys with the same count.
        """
        _check_limits(min_count, max_size)
        unknown = self.unknown if unknown is None else self._own_type("unknown", unknown)
        size = len(self) + 1 if max_size is None else max_size
        table = _in_falling_count(self.table)
        if unknown is None:
            kept = table.filter(pl.col("count") >= min_count).head(size)
        else:
            others = table.filter(pl.col("key") != unknown, pl.col("count") >= min_count)
            kept = others.head(size - 1)
            rest = self.total - int(kept["count"].sum())
            kept = _in_falling_count(_appended(kept, unknown, rest))
        if kept.is_empty():
            raise ValueError(
                f"min_count = {min_count:,} leaves no key: the largest count is "
                f"{table['count'][0]:,}"
            )
        return Vocabulary(kept, unknown)

    def merge(
        self, other: Vocabulary, *, min_count: int = 0, unknown: Key | None = None
    ) -> Vocabulary:
        """Return the vocabulary of both, counts added and ids sorted again.

        A key that only ``other`` has needs at least ``min_count``; the counts of those with less
        go to the unknown key, if there is one. Ties keep the order of this vocabulary, then that
        of the other.

        >>> old = Vocabulary.from_counts(["tea", "rum"], [5, 1])
        >>> found = Vocabulary.count(["gin", "gin", "ale", "rum"])
        >>> old.merge(found, min_count=2)
        Vocabulary(3 keys, total 9: 'tea' 5, 'rum' 2, 'gin' 2)
        >>> old.merge(found, min_count=2, unknown="?").total
        10
        """
        _check_limits(min_count, None)
        given = [key for key in (self.unknown, unknown, other.unknown) if key is not None]
        if len(set(given)) > 1:
            raise ValueError(
                f"other must have the same unknown key {quoted(given[0])} or none, "
                f"got {quoted(given[-1])}"
            )
        key = self._like_own_keys(other.keys, name="other")
        table = pl.DataFrame([key, other.table["count"]])
        kept = table.filter(
            (pl.col("count") >= min_count) | pl.col("key").is_in(self.keys.implode())
        )
        if given:
            rest = other.total - int(kept["count"].sum())
            kept = _appended(kept, self._own_type("unknown", given[0]), rest)
        merged = _in_falling_count(_summed(pl.concat([self.table, kept])))
        return Vocabulary(merged, given[0] if given else None)

    def grow(self, keys: Keys, *, min_count: int = 1) -> Vocabulary:
        """Count more ``keys``: no class changes its id, new keys get ids at the end.

        New keys are in falling count among themselves; one seen less often than ``min_count``
        gets no class, and is counted for the unknown key if there is one.
        """
        _check_limits(min_count, None)
        seen = _counted(self._like_own_keys(as_keys(keys)))
        known = self._find(seen["key"]).is_not_null()
        rare = ~known & (seen["count"] < min_count)
        more = [self.table, _in_falling_count(seen.filter(~rare))]
        if self.unknown is not None:
            more[-1] = _appended(more[-1], self.unknown, int(seen.filter(rare)["count"].sum()))
        # Keys stay where they first appear, so the old ones keep their rows.
        return Vocabulary(_summed(pl.concat(more)), self.unknown)

    def reordered(self) -> tuple[Vocabulary, Tensor]:
        """Return this vocabulary in falling count, and the new id of each old one, int64 [V].

        Weights follow by ``new_weight[new_ids] = old_weight``.
        """
        import torch

        order = torch.sort(self.counts, descending=True, stable=True).indices
        new_ids = torch.empty_like(order).scatter_(0, order, torch.arange(len(self)))
        return Vocabulary(self.table[order.numpy()], self.unknown), new_ids

    def save(self, path: str | Path) -> None:
        """Write a Parquet file; the file that was there stays until the new one is whole."""
        fields = {_VERSION_FIELD: str(FORMAT_VERSION), _UNKNOWN_FIELD: json.dumps(self.unknown)}
        write_table(path, self.table, fields)

    @classmethod
    def load(cls, path: str | Path) -> Vocabulary:
        """Read what ``save`` wrote."""
        table, fields = read_table(path)
        try:
            _check_version(fields, table.columns)
            return cls(table, _stored_unknown(fields))
        except ValueError as error:
            raise ValueError(f"{path} holds no vocabulary: {error}") from error

    @cached_property
    def _id_by_key(self) -> Mapping[object, int]:
        return {key: index for index, key in enumerate(self.keys)}

    @cached_property
    def _unknown_id(self) -> int | None:
        if self.unknown is None:
            return None
        return self.keys.index_of(self._own_type("unknown", self.unknown))

    def _find(self, sought: pl.Series) -> pl.Series:
        """Return the ids of ``sought``, null where there is none."""
        index = self.table.select("key", id=pl.int_range(pl.len()))
        if len(sought) < len(self):
            # A scan is far quicker than a hash table of a large vocabulary for a few keys.
            index = index.filter(pl.col("key").is_in(sought.implode()))
        return sought.replace_strict(index["key"], index["id"], default=None, return_dtype=pl.Int64)

    def _not_among(self, key: object) -> str:
        return not_among(key, self.keys.head(MOST_COMPARED).to_list(), len(self))

    def _like_own_keys(self, keys: pl.Series, *, name: str = "keys") -> pl.Series:
        if keys.is_empty():
            return pl.Series("key", [], dtype=self.keys.dtype)
        if keys.dtype != self.keys.dtype:
            raise ValueError(
                f"{name} must hold {_type_name(self.keys)} like the vocabulary, "
                f"got {_type_name(keys)}"
            )
        return keys

    def _own_type(self, name: str, key: Key) -> Key:
        """Return ``key`` if it fits the column of keys."""
        self._like_own_keys(as_keys(pl.Series([key]), name=name), name=name)
        return key


def _counted(keys: pl.Series) -> pl.DataFrame:
    """Return each key and how often it appears, in the order of first appearance."""
    grouped = keys.to_frame("key").lazy().group_by("key", maintain_order=True)
    return grouped.agg(pl.len().cast(pl.Int64).alias("count")).collect()


def _summed(table: pl.DataFrame) -> pl.DataFrame:
    """Return each key once with its counts added, in the order of first appearance."""
    return table.group_by("key", maintain_order=True).agg(pl.col("count").sum())


def _appended(table: pl.DataFrame, key: Key, count: int) -> pl.DataFrame:
    return pl.concat([table, pl.DataFrame({"key": [key], "count": [count]}, schema=table.schema)])


def _in_falling_count(table: pl.DataFrame) -> pl.DataFrame:
    return table.sort("count", descending=True, maintain_order=True)


def _type_name(keys: pl.Series) -> str:
    return "strings" if keys.dtype == pl.String else "whole numbers"


def _check_limits(min_count: int, max_size: int | None) -> None:
    check_whole("min_count", min_count, 0, MAX_TOTAL)
    if max_size is not None:
        check_whole("max_size", max_size, 1, MAX_TOTAL)


def _check_columns(table: pl.DataFrame) -> None:
    if table.is_empty():
        raise ValueError("there are no keys: a vocabulary needs at least one")
    if table.columns != list(_COLUMNS):
        raise ValueError(f"table must have the columns key and count, got {table.columns}")
    for name, dtypes in _COLUMNS.items():
        if table[name].dtype not in dtypes:
            wanted = " or ".join(str(dtype) for dtype in dtypes)
            raise ValueError(f"column {name} must be {wanted}, got {table[name].dtype}")


def _check_version(fields: Mapping[str, str], columns: Sequence[str]) -> None:
    version = fields.get(_VERSION_FIELD, "")
    if not version.isdecimal():
        raise ValueError(
            f"field {_VERSION_FIELD} must be a whole number, got {version!r} (columns {columns})"
        )
    check_version("it", int(version), FORMAT_VERSION)


def _stored_unknown(fields: Mapping[str, str]) -> Key | None:
    text = fields.get(_UNKNOWN_FIELD, "")
    try:
        unknown = json.loads(text)
    except (ValueError, RecursionError):
        unknown = ...
    if unknown is not None and not isinstance(unknown, str | int):
        raise ValueError(f"field {_UNKNOWN_FIELD} must be a key or null, got {quoted(text)}")
    return unknown
