"""Starting a run from vectors that were trained before."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl
import torch
from torch import Tensor

from widemax.encoders import BagEncoder
from widemax.heads import ScorerHead
from widemax.models import Model
from widemax.scoring import TableScorer
from widemax.vectors import KeyedVectors, read_word2vec_binary, read_word2vec_text
from widemax.vectors.rows import opened, read_header
from widemax.vocabulary import Vocabulary

_LONGEST_LINE = 2**25


@dataclass(frozen=True, kw_only=True)
class WarmStart:
    """How many of the classes start from a vector that was given."""

    found: int
    classes: int


def as_vectors(vectors: KeyedVectors | str | Path) -> KeyedVectors:
    """Return the vectors, read from a word2vec file (text or binary) if it is a path."""
    if isinstance(vectors, KeyedVectors):
        return vectors
    return read_word2vec_text(vectors) if _is_text(vectors) else read_word2vec_binary(vectors)


def _is_text(path: str | Path) -> bool:
    """Return whether the line after the header ends with as many decimal numbers as it states.

    One number is not enough: the key may be one, and a byte of the next a line break.
    """
    with opened(path) as file:
        _, dimension = read_header(path, file)
        fields = file.readline(_LONGEST_LINE).split()
    try:
        numbers = [float(field) for field in fields[-dimension:]]
    except ValueError:
        return False
    return len(numbers) == dimension < len(fields)


@torch.no_grad()
def warm_start(model: Model, vocabulary: Vocabulary, vectors: KeyedVectors) -> WarmStart:
    """Copy the vectors of known keys into the input vectors and, where there is one, the table.

    Formula: u(y) = v(y) = the given vector of the key of y; classes without one stay as they are.

    Shapes: ``vectors`` [W, D] of any W keys, D that of the model.

    Cost: O(V + W) to match the keys, O(found · D) to copy.

    Reference: none.

    Use when: there are vectors of the same things, from an earlier run or another tool. Avoid when:
    the run itself goes on (``resume``).

    >>> import widemax as wm
    >>> head = wm.FullHead(wm.TableScorer(2, 2))
    >>> model, vocabulary = wm.CBOW(BagEncoder(2, 2), head), Vocabulary.count(["tea", "rum"])
    >>> warm_start(model, vocabulary, KeyedVectors(["gin", "rum"], torch.eye(2)))
    WarmStart(found=1, classes=2)
    >>> model.encoder.weight[vocabulary.encode(["rum"])].tolist()
    [[0.0, 1.0]]
    """
    tables = _tables(model)
    dimension = tables[0].shape[1]
    if vectors.dimension != dimension:
        raise ValueError(
            f"vectors must have the dimension of the run, {dimension}, got {vectors.dimension}: "
            f"train with dimension = {vectors.dimension}, or give others"
        )
    rows = _rows_of(vocabulary, vectors)
    found = torch.tensor(rows.is_not_null().arg_true().to_numpy(), dtype=torch.int64)
    if not len(found):
        raise ValueError(
            f"vectors must hold keys of the source, got none of its {len(vocabulary):,} classes "
            f"(such as {vocabulary.keys[0]!r}) among {len(vectors):,} keys "
            f"(such as {vectors.keys[0]!r})"
        )
    given = vectors.vectors[torch.tensor(rows.drop_nulls().to_numpy())]
    for table in tables:
        table[found] = given.to(table.dtype)
    return WarmStart(found=len(found), classes=len(vocabulary))


def _tables(model: Model) -> list[Tensor]:
    """Return the matrices [V, D] of a model that hold a vector of each class."""
    encoder = getattr(model, "encoder", None)
    if not isinstance(encoder, BagEncoder):
        raise ValueError(f"{type(model).__name__} has no input vectors to start from others")
    tables: list[Tensor] = [encoder.weight]
    if isinstance(model.head, ScorerHead) and isinstance(model.head.scorer, TableScorer):
        tables.append(model.head.scorer.weight)
    return tables


def _rows_of(vocabulary: Vocabulary, vectors: KeyedVectors) -> pl.Series:
    """Return the row of each class among the vectors, null where its key is not there."""
    # Files hold text: keys that are whole numbers are matched by their decimal digits.
    keys = vocabulary.keys.cast(pl.String)
    rows = pl.int_range(len(vectors), eager=True)
    return keys.replace_strict(vectors.keys, rows, default=None, return_dtype=pl.Int64)
