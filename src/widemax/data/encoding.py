"""From raw keys to class ids: codes in order of appearance first, falling counts at the end."""

from __future__ import annotations

import polars as pl
import torch
from torch import Tensor

from widemax.data.sequences import Sequences, offsets_of
from widemax.keys import Key
from widemax.validation import ABSENT, check_whole
from widemax.vocabulary import Vocabulary

MAX_LENGTH = 2**40
"""Largest ``min_length`` that can be asked for."""


class Encoder:
    """Gives each key a code, 0 for the first one seen, over as many calls as it takes.

    Formula: code(key) = the number of different keys seen before it first came.

    Shapes: ``keys`` holds one key for each code.

    Cost: O(N + V) for N keys in one call, inside polars; memory for the V different keys alone.

    Reference: none.

    Use when: keys come in blocks and the counts are known at the end only. Avoid when: they fit in
    memory at once; then ``Vocabulary.count`` does it.

    >>> encoder = Encoder(pl.String())
    >>> encoder.encode(pl.Series(["tea", "rum", "tea"])).tolist()
    [0, 1, 0]
    >>> encoder.encode(pl.Series(["gin", "rum"])).tolist(), encoder.keys.to_list()
    ([2, 1], ['tea', 'rum', 'gin'])
    """

    def __init__(self, dtype: pl.DataType) -> None:
        self.keys = pl.Series("key", [], dtype=dtype)

    def encode(self, keys: pl.Series) -> Tensor:
        """Return the codes of ``keys`` [N], int64 [N]; new keys get new codes."""
        block = keys.to_frame("key")
        unseen = block.unique(maintain_order=True).join(
            self.keys.to_frame(), on="key", how="anti", maintain_order="left"
        )
        self.keys = self.keys.append(_copied(unseen["key"])).rechunk()
        index = self.keys.to_frame().with_row_index("code")
        codes = block.join(index, on="key", how="left", maintain_order="left")["code"]
        return codes.cast(pl.Int64).to_torch()


def _copied(keys: pl.Series) -> pl.Series:
    """Return ``keys`` in memory of their own: strings would hold on to the block they stand in."""
    return keys + "" if keys.dtype == pl.String else keys


def to_classes(
    codes: Tensor,
    keys: pl.Series,
    lengths: Tensor,
    *,
    names: pl.Series | None = None,
    min_count: int = 1,
    max_size: int | None = None,
    unknown: Key | None = None,
    min_length: int = 1,
) -> tuple[Sequences, Vocabulary]:
    """Return the sequences of these codes as classes, and the vocabulary of the classes.

    Formula: rare keys go first (to ``unknown``, or out of their sequence), then sequences of fewer
    than ``min_length``, once each; what is left is counted anew, so that
    vocabulary.counts[y] = the number of y in sequences.values.

    Shapes: ``codes`` [T] with ``keys`` [V] in order of appearance; ``lengths`` [N] adds up to T.

    Cost: a few passes over T.

    Reference: none.

    Use when: writing a reader. Avoid when: ``read_source`` reads the format already.

    >>> codes = torch.tensor([0, 1, 1, 2])
    >>> keys, lengths = pl.Series(["tea", "rum", "gin"]), torch.tensor([3, 1])
    >>> sequences, vocabulary = to_classes(codes, keys, lengths, min_length=2)
    >>> vocabulary.keys.to_list(), sequences.values.tolist()
    (['rum', 'tea'], [1, 0, 0])
    """
    check_whole("min_length", min_length, 1, MAX_LENGTH)
    counts = torch.bincount(codes, minlength=len(keys))
    vocabulary = Vocabulary.from_counts(
        keys, counts, min_count=min_count, max_size=max_size, unknown=unknown
    )
    values = vocabulary.encode(keys, missing="mark")[codes]
    values, lengths, long_enough = _without_gaps(values, lengths, min_length)
    if not len(lengths):
        raise ValueError(f"min_length = {min_length:,} leaves no sequence")
    counts = torch.bincount(values, minlength=len(vocabulary))
    if not torch.equal(counts, vocabulary.counts):
        old_keys = vocabulary.keys
        vocabulary = Vocabulary.from_counts(old_keys, counts, min_count=1, unknown=unknown)
        values = vocabulary.encode(old_keys, missing="mark")[values]
    kept = None if names is None else names.filter(pl.Series(long_enough.numpy()))
    return Sequences(values, offsets_of(lengths), kept), vocabulary


def _without_gaps(
    values: Tensor, lengths: Tensor, min_length: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Take out the values -1, then the short sequences; say which of them are left."""
    sequence_of = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
    there = values != ABSENT
    lengths = torch.bincount(sequence_of[there], minlength=len(lengths))
    long_enough = lengths >= min_length
    return values[there & long_enough[sequence_of]], lengths[long_enough], long_enough
