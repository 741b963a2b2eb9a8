"""Keys and counts as they are handed over: in any of the usual containers, or in a text file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import polars as pl

from widemax.storage.files import read_text
from widemax.vocabulary.spelling import quoted

if TYPE_CHECKING:
    from torch import Tensor

Keys: TypeAlias = "pl.Series | np.ndarray[Any, Any] | Tensor | Sequence[str] | Sequence[int]"
Counts: TypeAlias = "pl.Series | np.ndarray[Any, Any] | Tensor | Sequence[int]"

MAX_TOTAL = 2**53
"""Largest sum of counts: up to it float64, in which samplers weigh them, is exact."""


def as_keys(keys: Keys, *, name: str = "keys") -> pl.Series:
    """Return ``keys`` as strings or int64, named "key", without nulls."""
    series = _as_series(name, keys).alias("key")
    if series.null_count():
        raise ValueError(
            f"{name}[{first_row(series.is_null())}] is null: every key must have a value"
        )
    if series.dtype in (pl.Categorical, pl.Enum):
        return series.cast(pl.String)
    if series.dtype == pl.String or series.is_empty():
        return series
    return _as_int64(name, series, "strings or whole numbers")


def as_whole_numbers(name: str, values: Counts) -> pl.Series:
    """Return ``values`` as int64 without nulls."""
    series = _as_series(name, values)
    if series.null_count():
        raise ValueError(f"{name}[{first_row(series.is_null())}] is null")
    return series.cast(pl.Int64) if series.is_empty() else _as_int64(name, series, "whole numbers")


def _as_series(name: str, values: Keys | Counts) -> pl.Series:
    # Only a tensor can be detached: torch itself need not be loaded to know one.
    is_tensor = hasattr(values, "detach")
    if not is_tensor and not isinstance(values, pl.Series | np.ndarray | list | tuple):
        raise ValueError(
            f"{name} must be a polars Series, NumPy array, tensor or list, "
            f"got {type(values).__name__}"
        )
    try:
        return pl.Series(values.detach().cpu().numpy() if is_tensor else values)  # type: ignore[union-attr]
    except (TypeError, OverflowError, UnicodeError, pl.exceptions.PolarsError) as error:
        raise ValueError(f"{name} must all be of one type: {error}") from error


def _as_int64(name: str, series: pl.Series, wanted: str) -> pl.Series:
    if not series.dtype.is_integer():
        raise ValueError(f"{name} must hold {wanted}, got {series.dtype}")
    whole = series.cast(pl.Int64, strict=False)
    if whole.null_count():
        row = first_row(whole.is_null())
        raise ValueError(f"{name}[{row}] must lie within int64, got {series[row]}")
    return whole


def first_problem(table: pl.DataFrame) -> tuple[int, str] | None:
    """Return the row of the first broken entry and what is wrong with it."""
    key, count = table["key"], table["count"]
    for name in ("key", "count"):
        if table[name].null_count():
            return first_row(table[name].is_null()), f"{name} is null"
    if (count < 0).any():
        row = first_row(count < 0)
        return row, f"count must be at least 0, got {count[row]}"
    if key.n_unique() < len(key):
        row = first_row(~key.is_first_distinct())
        return row, f"key {quoted(key[row])} appears twice"
    running = count.cast(pl.Float64).cum_sum()
    if running[-1] > MAX_TOTAL:
        return first_row(running > MAX_TOTAL), f"the counts add up to more than {MAX_TOTAL:,}"
    return None


def read_count_lines(path: Path, separator: str) -> pl.DataFrame:
    """Return the first column of a text file as keys and the last as counts."""
    if not separator:
        raise ValueError("separator must be at least one character, got ''")
    text = read_text(path)
    if not text:
        raise ValueError(f"{path} is empty: a vocabulary needs at least one key")
    lines = pl.Series("line", [text.removesuffix("\n")]).str.split("\n").explode()
    columns = lines.str.strip_suffix("\r").str.split(separator)
    count = columns.list.last().str.strip_chars().cast(pl.Int64, strict=False)
    broken = count.is_null() | (columns.list.len() < 2)
    if broken.any():
        row = first_row(broken)
        raise ValueError(
            f"{path}, line {row + 1:,}: the last of two or more columns must be a whole number "
            f"of at least 0, got {quoted(lines[row])} (separator {separator!r})"
        )
    table = pl.DataFrame({"key": columns.list.first(), "count": count})
    problem = first_problem(table)
    if problem is not None:
        raise ValueError(f"{path}, line {problem[0] + 1:,}: {problem[1]}")
    return table


def first_row(mask: pl.Series) -> int:
    """Return the first row where ``mask`` is true."""
    return int(mask.arg_true()[0])
