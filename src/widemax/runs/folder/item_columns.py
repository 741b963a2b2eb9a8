"""What is known of the items of a run, a column a feature: to be shown, and to choose by."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from widemax.declarations.options import shortened
from widemax.filters import ColumnKind, Filters, check_values, range_of, unknown_feature
from widemax.runs.folder.catalogue import KEY, title_column
from widemax.runs.folder.description import check_unchanged, has_file
from widemax.storage.files import read_table, read_text
from widemax.storage.json_text import parse_json
from widemax.vocabulary.spelling import UnknownNameError, near_or_some, nearest_spellings

Mask: TypeAlias = NDArray[np.bool_]

_FEATURES = "item_features"
_KINDS: Mapping[str, ColumnKind] = {
    "categorical": "category",
    "numeric": "number",
    "tokens": "tokens",
}
_KEPT_MASKS = 16
_MOST_VALUES = 1000


@dataclass(frozen=True, eq=False)
class ItemColumn:
    """One feature of all items.

    >>> column = ItemColumn("price", "number", pl.Series([9.5, None, 12.0]))
    >>> column.allowed(["10..", 9.5]).tolist()
    [True, False, True]
    """

    name: str
    """What it is called in the file of the items."""
    kind: ColumnKind
    """One name, one number, or any number of names an item."""
    cells: pl.Series
    """A row for each class: texts, numbers or lists of texts, null where nothing is known."""

    @cached_property
    def _flat(self) -> tuple[pl.Series, NDArray[np.int64]]:
        """Return every value of the column, and the row of each."""
        rows = pl.Series("row", np.arange(len(self.cells)))
        table = pl.DataFrame({"row": rows, "value": self.cells})
        table = table.explode("value") if self.kind == "tokens" else table
        known = table.filter(pl.col("value").is_not_null())
        return known["value"], known["row"].to_numpy()

    @cached_property
    def values(self) -> list[str]:
        """The values of a column of names, the most frequent first; of numbers none."""
        if self.kind == "number":
            return []
        counted = self._flat[0].value_counts(sort=True, name="count")
        # Of equally frequent ones the first by its letters: the same each time.
        ordered = counted.sort(["count", self._flat[0].name], descending=[True, False])
        return ordered[self._flat[0].name].to_list()

    @cached_property
    def _codes(self) -> tuple[NDArray[np.int64], dict[str, int]]:
        """Return the place of each value among ``values``, and the places by their names."""
        places = {value: place for place, value in enumerate(self.values)}
        codes = self._flat[0].replace_strict(
            list(places), list(places.values()), return_dtype=pl.Int64
        )
        return codes.to_numpy(), places

    def at(self, row: int) -> Any:
        """Return what is known of one item: a text, a number, a list of texts or None."""
        cell = self.cells[row]
        return cell.to_list() if isinstance(cell, pl.Series) else cell

    def allowed(self, wanted: Sequence[str | float]) -> Mask:
        """Return which items have one of the values, bool [V]; an unknown value is an error."""
        check_values(self.name, wanted)
        found = np.zeros(len(self.cells), np.bool_)
        if self.kind == "number":
            numbers = self.cells.to_numpy()
            for each in wanted:
                least, most = range_of(self.name, each)
                found |= (numbers >= least) & (numbers <= most)
            return found
        codes, places = self._codes
        sought = [self._place(str(each), places) for each in wanted]
        found[self._flat[1][np.isin(codes, sought)]] = True
        return found

    def _place(self, value: str, places: Mapping[str, int]) -> int:
        if value not in places:
            near = nearest_spellings(value, self.values[:_MOST_VALUES])
            raise UnknownNameError(
                f"filters[{self.name!r}] holds {shortened(repr(value))}, which is none of its "
                f"{len(places):,} values{near_or_some(near, self.values)}",
                near,
            )
        return places[value]

    def groups(self, most: int) -> tuple[NDArray[np.uint8], list[str]]:
        """Return a number for each item to colour it by, 255 for all others, and their names.

        Of names the ``most`` frequent; an item of several tokens has that of the most frequent. Of
        numbers fifths, from the smallest to the largest.
        """
        colours = np.full(len(self.cells), 255, np.uint8)
        if self.kind == "number":
            numbers = self.cells.to_numpy()
            known = np.isfinite(numbers)
            if not known.any():
                return colours, []
            ends = np.unique(np.quantile(numbers[known], [0.2, 0.4, 0.6, 0.8, 1.0]))
            colours[known] = np.searchsorted(ends, numbers[known]).astype(np.uint8)
            return colours, [f"up to {end:g}" for end in ends]
        codes, _ = self._codes
        kept = codes < most
        np.minimum.at(colours, self._flat[1][kept], codes[kept].astype(np.uint8))
        return colours, self.values[:most]


class ItemColumns:
    """The features of the items of a run, without torch; titles are not among them.

    >>> columns = ItemColumns([ItemColumn("kind", "category", pl.Series(["tea", "rum", "tea"]))])
    >>> columns.allowed({"kind": ["tea"]}).tolist(), columns.at(1)
    ([True, False, True], {'kind': 'rum'})
    """

    def __init__(self, columns: Sequence[ItemColumn]) -> None:
        self.columns = {each.name: each for each in columns}
        self._masks: OrderedDict[object, Mask] = OrderedDict()

    @classmethod
    def open(cls, folder: Path, shown: pl.DataFrame | None) -> ItemColumns:
        """Read what a run keeps: the columns that it shows, and features that are lists."""
        fields = _fields(folder)
        columns = [] if shown is None else _shown_columns(shown, fields)
        known = {each.name for each in columns}
        title = None if shown is None else title_column(shown)
        lists = [
            (place, field)
            for place, field in enumerate(fields)
            if field["name"] not in known | {title}
        ]
        if lists:
            table = read_table(check_unchanged(folder, f"{_FEATURES}.parquet"))[0]
            columns += [_decoded(field, table[f"field_{place}"]) for place, field in lists]
        return cls(columns)

    def __len__(self) -> int:
        return len(self.columns)

    def column(self, name: str) -> ItemColumn:
        """Return a feature by its name."""
        if name not in self.columns:
            raise unknown_feature(name, self.columns)
        return self.columns[name]

    def at(self, row: int) -> dict[str, Any]:
        """Return what is known of one item; features without a value are left out."""
        found = {name: each.at(row) for name, each in self.columns.items()}
        return {name: value for name, value in found.items() if value is not None}

    def allowed(self, filters: Filters) -> Mask:
        """Return which items have, of every feature that is named, one of its values, bool [V]."""
        for name, values in filters.items():
            check_values(name, values)
        asked = tuple((name, tuple(filters[name])) for name in sorted(filters))
        # Taken once: another thread may throw it out meanwhile.
        if (kept := self._masks.get(asked)) is not None:
            return kept
        masks = [self.column(name).allowed(list(values)) for name, values in asked]
        found: Mask = np.logical_and.reduce(masks)
        self._masks[asked] = found
        while len(self._masks) > _KEPT_MASKS:
            self._masks.popitem(last=False)
        return found


def _fields(folder: Path) -> list[dict[str, Any]]:
    """Return what the features of a run were found to be; nothing if it has none."""
    if not has_file(folder, f"{_FEATURES}.json"):
        return []
    path = check_unchanged(folder, f"{_FEATURES}.json")
    return list(parse_json(str(path), read_text(path))["fields"])


def _shown_columns(shown: pl.DataFrame, fields: Sequence[dict[str, Any]]) -> list[ItemColumn]:
    declared = {field["name"]: field for field in fields}
    left_out = (KEY, title_column(shown))
    return [
        _column(name, shown[name], declared.get(name))
        for name in shown.columns
        if name not in left_out and shown[name].null_count() < len(shown)
    ]


def _column(name: str, texts: pl.Series, field: Mapping[str, Any] | None) -> ItemColumn:
    numbers = texts.cast(pl.Float64, strict=False)
    are_numbers = numbers.null_count() == texts.null_count() and bool(numbers.is_finite().all())
    kind = _KINDS[field["kind"]] if field else ("number" if are_numbers else "category")
    if kind == "number" and are_numbers:
        return ItemColumn(name, "number", numbers)
    if kind == "tokens" and field is not None:
        cut = texts.str.extract_all(r"\S+") if field["separator"] == " " else None
        return ItemColumn(name, kind, texts.str.split(field["separator"]) if cut is None else cut)
    # Dates are numbers to a model, and texts to whoever chooses by them.
    return ItemColumn(name, "category", texts)


def _decoded(field: Mapping[str, Any], stored: pl.Series) -> ItemColumn:
    """Return a column of codes or standardised numbers as it was; code 0 stands for nothing."""
    kind = _KINDS[field["kind"]]
    if kind == "number":
        numbers = stored.cast(pl.Float64) * field["deviation"] + field["mean"]
        return ItemColumn(field["name"], kind, numbers.fill_nan(None))
    names = pl.Series([None, *field["values"]], dtype=pl.String)
    if kind == "category":
        return ItemColumn(field["name"], kind, names.gather(stored))
    table = pl.DataFrame({"row": np.arange(len(stored)), "code": stored}).explode("code")
    table = table.with_columns(value=names.gather(table["code"]))
    lists = table.group_by("row", maintain_order=True).agg(pl.col("value").drop_nulls())["value"]
    return ItemColumn(field["name"], kind, lists)
