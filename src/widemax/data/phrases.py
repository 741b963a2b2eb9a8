"""Words that belong together, such as "new york", joined into one class."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from widemax.data.reading.numbering import Encoder, recounted
from widemax.data.sequences import Sequences, offsets_of
from widemax.kernels.data.phrases import count_pairs, join_pairs
from widemax.validation import check_ids, check_not_negative, check_positive, check_whole
from widemax.vocabulary import Vocabulary
from widemax.vocabulary.spelling import Key, quoted

MAX_PASSES = 16
"""Most passes: each can double the words of a phrase."""

Numbers = NDArray[np.int64]


def join_phrases(
    sequences: Sequences,
    vocabulary: Vocabulary,
    *,
    threshold: float = 100.0,
    delta: float = 5.0,
    passes: int = 1,
    separator: str = "_",
    apart: Sequence[str] = (),
) -> tuple[Sequences, Vocabulary]:
    """Join neighbours that stand together far more often than chance would have it.

    score(a, b) = (count(a b) − delta) · T / (count(a) · count(b)), T the number of words. From left
    to right within a sequence, a and b become one class "a_b" if score > threshold, and the next
    pair begins after them. A further pass may join what the one before has made. ``delta`` keeps
    rare words from being joined, a lower ``threshold`` gives more phrases; with several passes one
    lowers it, or calls this again. O(T) for each pass, about 4 s for 17 million words.

    The unknown key is never joined, nor are those ``apart``, such as the end of a sentence. A class
    that is no longer anywhere goes; a phrase that is a key already joins its class.

    From Mikolov et al., "Distributed Representations of Words and Phrases and their
    Compositionality", 2013, section 4, and its program word2phrase, of which these are the
    defaults. gensim's ``Phrases(scoring="default")`` has the number of different words and pairs in
    the place of T.

    >>> from widemax.data.reading.text import encode_text
    >>> corpus = encode_text("new york is new\\nin new york\\n" * 5)
    >>> sequences, vocabulary = join_phrases(*corpus, threshold=1.5, delta=2)
    >>> vocabulary.decode(sequences.sequence(0)), len(vocabulary)
    (['new_york', 'is', 'new'], 4)
    """
    threshold = check_positive("threshold", threshold)
    delta = check_not_negative("delta", delta)
    passes = check_whole("passes", passes, 1, MAX_PASSES)
    if not isinstance(separator, str) or not separator:
        raise ValueError(f"separator must be a string of at least one letter, got {separator!r}")
    if vocabulary.keys.dtype != pl.String:
        raise ValueError("vocabulary must hold words, got whole numbers")
    if not len(sequences.values):
        raise ValueError("sequences must hold at least one word, got none")
    missing = [key for key in apart if key not in vocabulary]
    if isinstance(apart, str) or missing:
        raise ValueError(f"apart must list keys of the vocabulary, got {quoted(str(apart))}")
    check_ids("sequences", sequences.values, len(vocabulary))
    values, lengths = sequences.values.numpy(), sequences.lengths.numpy()
    keys = vocabulary.keys
    alone = [*apart, *([] if vocabulary.unknown is None else [vocabulary.unknown])]
    for _ in range(passes):
        pairs = _phrases(values, lengths, keys, alone, threshold, delta)
        if not len(pairs):
            break
        values, lengths, keys = _joined(values, lengths, keys, pairs, separator)
    joined, offsets = torch.from_numpy(values), offsets_of(torch.from_numpy(lengths))
    counts = torch.bincount(joined, minlength=len(keys))
    own, class_of = recounted(keys, counts, vocabulary.unknown)
    return Sequences(class_of[joined], offsets, sequences.names, vocabulary=own), own


def _phrases(
    values: Numbers, lengths: Numbers, keys: pl.Series, alone: list[Key], threshold: float,
    delta: float,
) -> Numbers:  # fmt: skip
    """Return the pairs a·V + b that are phrases, rising."""
    counts = np.bincount(values, minlength=len(keys))
    # A pair is seen as often as the rarer of its words at most: then a word that is too rare, or
    # too frequent, is in no phrase. The margin is for rounding.
    may_join = (counts > delta) & (counts * threshold < len(values) * (1 + 1e-9))
    may_join &= ~keys.is_in(alone).to_numpy()
    pairs, count = count_pairs(values, lengths, may_join)
    first, second = np.divmod(pairs, len(keys))
    scores = (count - delta) / counts[first] / counts[second] * len(values)
    return np.sort(pairs[scores > threshold])


def _joined(
    values: Numbers, lengths: Numbers, keys: pl.Series, pairs: Numbers, separator: str
) -> tuple[Numbers, Numbers, pl.Series]:
    """Return values, lengths and keys with the pairs joined; new keys come last."""
    first, second = np.divmod(pairs, len(keys))
    names = keys.gather(first) + separator + keys.gather(second)
    encoder = Encoder(keys.dtype)
    encoder.encode(keys)  # which differ, and so keep their numbers
    phrase_ids = encoder.encode(names).astype(np.int64)
    joined, left = join_pairs(values, lengths, len(keys), pairs, phrase_ids)
    return joined, left, encoder.keys
