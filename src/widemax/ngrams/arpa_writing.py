"""ARPA files, written: each n-gram with log10 p and log10 back-off, as any reader of them expects.

Where c, y is not listed, a reader takes p(y | c) = backoff(c) · p(y | c without its first id). An
interpolated model fits: what is listed is the interpolated p, and the back-off is γ(c).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from widemax.ngrams.trie import Trie
from widemax.storage.files import atomic_write
from widemax.vocabulary import Vocabulary
from widemax.vocabulary.keys import first_row
from widemax.vocabulary.spelling import Key, quoted

LOG_ZERO = -99.0
"""What the format writes for log10 0."""

END, UNKNOWN = "</s>", "<unk>"
"""What readers call the word that ends a sentence, and the one that stands for all others."""

_DECIMALS = 9
_BLOCK = 2**17
_UNWRITABLE = r"^$|[\x00\t\n\v\f\r ]"


def write_arpa(
    path: str | Path,
    trie: Trie,
    vocabulary: Vocabulary,
    *,
    begin: str,
    end: Key | None,
    unknown: Key | None,
) -> None:
    """Write all n-grams; the keys ``end`` and ``unknown`` become </s> and <unk>."""
    words = _words(trie, vocabulary, begin, {END: end, UNKNOWN: unknown})
    lengths = list(zip(trie.bounds, trie.bounds[1:], strict=False))
    with atomic_write(path) as file:
        counts = [f"ngram {n}={stop - start}\n" for n, (start, stop) in enumerate(lengths, 1)]
        file.write(("\\data\\\n" + "".join(counts)).encode())
        for n, (start, stop) in enumerate(lengths, 1):
            file.write(f"\n\\{n}-grams:\n".encode())
            for table in _tables(trie, words, n, range(start, stop), longest=n == len(lengths)):
                table.write_csv(file, include_header=False, separator="\t", quote_style="never")
        file.write(b"\n\\end\\\n")


def _tables(
    trie: Trie, words: pl.Series, length: int, places: range, *, longest: bool
) -> Iterator[pl.DataFrame]:
    """Yield blocks of lines: log10 p, the words, and but for the longest the log10 back-off."""
    for first in range(places.start, places.stop, _BLOCK):
        block = slice(first, min(first + _BLOCK, places.stop))
        ids = trie.ids_of(torch.arange(block.start, block.stop), length).numpy()
        columns = [words.gather(column).alias(f"word {j}") for j, column in enumerate(ids.T)]
        table = pl.DataFrame(columns).select(pl.concat_str(pl.all(), separator=" ").alias("words"))
        table.insert_column(0, pl.Series("p", _log10(trie.log_probs[block])))
        if not longest:
            table.insert_column(2, pl.Series("backoff", _log10(trie.log_backoffs[block])))
        yield table


def _log10(values: Tensor) -> NDArray[Any]:
    """Return natural logarithms as those of base 10, in the digits that are written."""
    base_10 = (values / math.log(10)).clamp(min=LOG_ZERO).round(decimals=_DECIMALS)
    return base_10.numpy()


def _words(
    trie: Trie, vocabulary: Vocabulary, begin: str, renamed: dict[str, Key | None]
) -> pl.Series:
    """Return the word of each id, that of the begin marker last."""
    if len(vocabulary) != trie.num_classes:
        raise ValueError(
            f"vocabulary must have {trie.num_classes:,} keys like the model, "
            f"got {len(vocabulary):,}"
        )
    keys = vocabulary.keys.cast(pl.String).to_list()
    for name, key in renamed.items():
        if key is not None:
            if key not in vocabulary:
                raise ValueError(f"the key of {name} must be in the vocabulary, got {quoted(key)}")
            keys[vocabulary.id_of(key)] = name
    words = pl.Series([*keys, begin], dtype=pl.String)
    unwritable = words.str.contains(_UNWRITABLE)
    if unwritable.any():
        raise ValueError(
            "a word must not be empty nor contain white space in an ARPA file, got "
            f"{quoted(words[first_row(unwritable)])}"
        )
    if words.n_unique() < len(words):
        twice = words[first_row(~words.is_first_distinct())]
        raise ValueError(f"two ids would both be written as {quoted(twice)}")
    return words
