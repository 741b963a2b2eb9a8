"""From raw keys to codes, in the order in which the keys first come."""

from __future__ import annotations

from typing import cast

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from widemax.kernels.data import words as kernel
from widemax.kernels.data.grouping import MAX_ROWS, number_dense

# A table of all numbers between the ids may have this many places, and this many for each id.
_SMALL_SPAN = 2**16
_MOST_PER_KEY = 4


class Encoder:
    """Gives each key a code, 0 for the first one seen, over as many calls as it takes.

    Formula: code(key) = the number of different keys seen before it first came.

    Shapes: ``keys`` holds one key for each code.

    Cost: O(N + V) for N keys in one call, inside polars; memory for the V different keys alone.
    Whole numbers that lie close together, all in one call, are counted off in a table instead.

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
        """Return the codes of ``keys`` [N], int32 [N]; new keys get new codes."""
        if len(keys) > MAX_ROWS:
            raise ValueError(f"keys must be at most {MAX_ROWS:,} in one call, got {len(keys):,}")
        if self.keys.is_empty() and (dense := _dense_span(keys)):
            chunks = [chunk.to_numpy() for chunk in keys.get_chunks()]
            codes_seen, seen = number_dense(chunks, *dense)
            self.keys = pl.Series("key", seen)
            return torch.from_numpy(codes_seen)
        block = keys.to_frame("key")
        unseen = block.unique(maintain_order=True).join(
            self.keys.to_frame(), on="key", how="anti", maintain_order="left"
        )
        self.keys = self.keys.append(_copied(unseen["key"])).rechunk()
        index = self.keys.to_frame().with_row_index("code")
        codes = block.join(index, on="key", how="left", maintain_order="left")["code"]
        return codes.cast(pl.Int32).to_torch()


def _dense_span(keys: pl.Series) -> tuple[int, int] | None:
    """Return the least key and how many numbers lie up to the most; None if far more than keys."""
    if keys.dtype != pl.Int64 or keys.is_empty():
        return None
    low = cast(int, keys.min())
    span = cast(int, keys.max()) - low + 1
    return (low, span) if span <= max(_SMALL_SPAN, _MOST_PER_KEY * len(keys)) else None


def _copied(keys: pl.Series) -> pl.Series:
    """Return ``keys`` in memory of their own: strings would hold on to the block they stand in."""
    return keys + "" if keys.dtype == pl.String else keys


class WordEncoder:
    """Gives each word of a text a code, 0 for the first one seen, over as many blocks as it takes.

    Formula: see ``number_words``, the kernel that does it.

    Shapes: ``keys`` holds one word for each code.

    Cost: O(bytes), about 60 MB a second on one core; memory for the different words alone.

    Reference: none.

    Use when: words stand between white space; it is several times as fast as ``Encoder``. Avoid
    when: they are found by a regular expression.

    >>> encoder = WordEncoder(longest=100)
    >>> codes, lengths, unfinished = encoder.encode(b"tea rum\\ntea ")
    >>> codes.tolist(), lengths.tolist(), unfinished
    ([0, 1, 0], [2], 1)
    >>> encoder.encode(b"gin rum ")[0].tolist(), encoder.keys.to_list()
    ([2, 1], ['tea', 'rum', 'gin'])
    """

    def __init__(self, *, longest: int) -> None:
        self._longest = longest
        self._bits = 16
        self._slots = kernel.empty_slots(self._bits)
        self._ends = np.zeros(2**15, np.int64)
        self._letters = np.empty(2**18, np.uint8)
        self._num_keys = self._num_letters = 0

    @property
    def keys(self) -> pl.Series:
        """The words in the order of their codes."""
        text = self._letters[: self._num_letters].tobytes().decode().removesuffix("\n")
        words = pl.Series("key", [text]).str.split("\n").explode()
        return words.head(self._num_keys)  # no text is split into one empty word

    def encode(self, block: bytes) -> tuple[NDArray[np.int32], NDArray[np.int64], int]:
        """Return codes, lengths of the lines that end in ``block``, and the words since the last.

        The block is UTF-8 without NUL bytes that ends between two words. A word that is too long
        is a LineError that says in which line of the block it stands.
        """
        data = np.frombuffer(block, np.uint8)
        codes = np.empty(len(data) // 2 + 1, np.int32)
        lengths = np.empty(block.count(b"\n"), np.int64)
        progress = np.zeros(6, np.int64)
        progress[kernel.KEYS], progress[kernel.LETTERS] = self._num_keys, self._num_letters
        while True:
            kernel.number_words(
                data, self._longest, self._slots, self._ends, self._letters,
                codes, lengths, progress,
            )  # fmt: skip
            place, words, lines, unfinished, self._num_keys, self._num_letters = progress.tolist()
            if place == len(data):
                return codes[:words].copy(), lengths, unfinished
            if not self._grown():
                raise LineError(f"a word of more than {self._longest:,} bytes", lines)

    def _grown(self) -> bool:
        """Make room for one more word of any length; whether there was too little."""
        too_few_ends = self._num_keys + 1 >= len(self._ends)
        too_few_letters = self._num_letters + self._longest >= len(self._letters)
        if too_few_ends:
            if 2 * len(self._ends) > kernel.MAX_KEYS:
                raise ValueError(f"there are more than {len(self._ends):,} different words")
            self._ends = np.concatenate([self._ends, np.zeros_like(self._ends)])
            self._bits += 1
            self._slots = kernel.moved_slots(self._slots, self._bits)
        if too_few_letters:
            self._letters = np.concatenate([self._letters, np.empty_like(self._letters)])
        return too_few_ends or too_few_letters


class LineError(ValueError):
    """What is wrong with a line of a block, counted from 0."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line
