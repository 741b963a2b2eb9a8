"""From the values of features to codes and numbers, by what a field was found to hold."""

from __future__ import annotations

import numpy as np
import polars as pl
import torch
from torch import Tensor

from widemax.data.features.cells import as_numbers, as_texts, as_tokens
from widemax.data.features.fields import FittedField
from widemax.data.reading.columns import as_ids
from widemax.data.sequences import Sequences, offsets_of
from widemax.vocabulary import Vocabulary
from widemax.vocabulary.keys import first_row, quoted


def rows_of(frame: pl.DataFrame, keys: pl.Series, key_column: str) -> pl.Series:
    """Return the row of each key in a frame, null where there is none."""
    if key_column not in frame.columns:
        raise ValueError(
            f"key_column must name a column, got {quoted(key_column)}: there are "
            f"{', '.join(quoted(name) for name in frame.columns[:20])}"
        )

    def fault(row: int, message: str) -> ValueError:
        return ValueError(f"key_column {quoted(key_column)}, row {row:,}: {message}")

    given = as_ids(frame[key_column], fault, from_text=False).cast(pl.String)
    twice = ~given.is_first_distinct()
    if twice.any():
        raise fault(first_row(twice), f"key {quoted(given[first_row(twice)])} stands there twice")
    rows = pl.int_range(len(given), eager=True, dtype=pl.Int64)
    sought = keys.cast(pl.String)
    found = sought.replace_strict(given, rows, default=None, return_dtype=pl.Int64)
    if not found.is_not_null().any():
        raise ValueError(
            f"key_column {quoted(key_column)} holds none of the {len(keys):,} keys"
            + (f", such as {quoted(keys[0])}" if len(keys) else "")
        )
    return found


def encode_codes(each: FittedField, column: pl.Series) -> Tensor:
    """Return the code of each value, int64 [N]; 0 for one that is missing or unknown."""
    texts = as_texts(column)
    codes = torch.zeros(len(texts), dtype=torch.int64)
    known = texts.is_not_null()
    # Vocabularies mark what they do not know by -1, and code 0 is the unknown.
    codes[_mask(known)] = _known(each).encode(texts.filter(known), missing="mark") + 1
    return codes


def encode_numbers(each: FittedField, column: pl.Series) -> Tensor:
    """Return each number standardised, float32 [N]; NaN for one that is missing."""
    numbers = as_numbers(column).to_numpy()  # null is NaN there
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = ((numbers - each.mean) / each.deviation).astype(np.float32)
    lost = ~np.isnan(numbers) & ~np.isfinite(scaled)
    if lost.any():
        row = int(lost.argmax())
        raise ValueError(
            f"field {quoted(each.field.name)}, row {row:,}: {numbers[row]:g} is too far from the "
            f"mean {each.mean:g} (deviation {each.deviation:g})"
        )
    return torch.from_numpy(scaled)


def encode_tokens(each: FittedField, column: pl.Series) -> Sequences:
    """Return the codes of the known tokens of each row, or 0 alone where there are none."""
    found = as_tokens(column, each.field.separator)
    codes = _known(each).encode(found["token"], missing="mark") + 1
    rows = found["row"].to_torch()
    rows, codes = rows[codes > 0], codes[codes > 0]
    lengths = torch.bincount(rows, minlength=len(column))
    empty = (lengths == 0).nonzero()[:, 0]
    order = torch.cat([rows, empty]).argsort(stable=True)
    values = torch.cat([codes, torch.zeros_like(empty)])[order]
    return Sequences(values, offsets_of(lengths.clamp(min=1)))


def _known(each: FittedField) -> Vocabulary:
    assert each.values is not None
    return each.values


def _mask(series: pl.Series) -> Tensor:
    return torch.tensor(series.to_numpy())
