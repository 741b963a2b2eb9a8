"""Plain text: a line is a sentence, words stand between white space."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import polars as pl
import torch

from widemax.data.reading.ahead import codes_of
from widemax.data.reading.codes import Codes, Lengths, encoded_blocks, joined
from widemax.data.reading.corpus_cache import Corpus, cached_corpus
from widemax.data.reading.numbering import MAX_LENGTH, Coded, Limits, classes_of
from widemax.data.reading.tokens import tokeniser
from widemax.data.sequences import Sequences, offsets_of
from widemax.kernels.data.memory import give_back
from widemax.kernels.data.words import keep_classes
from widemax.validation import ABSENT, check_whole
from widemax.vocabulary import Vocabulary
from widemax.vocabulary.spelling import Key, quoted


def read_corpus(
    path: str | Path,
    *,
    min_count: int = 1,
    max_size: int | None = None,
    unknown: Key | None = None,
    min_length: int = 1,
    tokens: str | None = None,
    end: str | None = None,
    cache: bool = False,
) -> tuple[Sequences, Vocabulary]:
    """Read text: one sequence for each line that holds a word, and the words as classes.

    ``path`` is a file, a folder (read in the order of the names) or a pattern such as "part-*.gz";
    gzip and zstd are recognised by their first bytes. Lines end at "\\n"; words are what stands
    between blanks, tabs and the other white space of ASCII, as in word2vec and fastText, or what
    the regular expression ``tokens``, such as r"\\w+|[^\\w\\s]", finds from left to right. It is
    of Rust's kind: no look-around, and never more than linear time. Rare words go to ``unknown``,
    or out of their sentence. Lines left with fewer than ``min_length`` words are dropped, and what
    remains counted.

    ``end`` is a word that is added to every line, and a class like any other: a model that predicts
    it knows where sentences end (Mikolov et al. 2010, on the Penn Treebank). A line without words
    is then the word ``end`` alone, as the published counts of WikiText have it; ``min_length=2``
    drops it.

    ``cache`` keeps what was read in a hidden file beside the source, and takes it from there as
    long as content and options are the same: see ``cached_corpus``.

    UTF-8 only; a NUL byte, a broken character, a word of more than 65,536 bytes, a line of more
    than 64 MB with ``tokens`` and text without any word are ValueErrors that name the file, and the
    line where there is one. Without ``tokens`` a line may be of any length. A byte order mark is
    skipped.

    Text is read and unpacked in blocks of 4 MB while the one before is worked on. Of each word 12
    bytes are held at once, of which 8 stay, and the different words. 17 million words take about
    2 s, with ``tokens`` about 10 s.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "corpus.txt"
    >>> _ = path.write_text("rum and tea\\n\\nand then more tea and rum\\n")
    >>> sequences, vocabulary = read_corpus(path, min_count=2)
    >>> vocabulary
    Vocabulary(3 keys, total 7: 'and' 3, 'rum' 2, 'tea' 2)
    >>> [vocabulary.decode(sequences.sequence(i)) for i in range(2)]
    [['rum', 'and', 'tea'], ['and', 'tea', 'and', 'rum']]
    """
    limits = Limits(min_count, max_size, unknown, min_length)

    def read() -> Corpus:
        corpus = _classes(*codes_of(path, tokens, end), limits)
        give_back()
        return corpus

    if not cache:
        return read()
    return cached_corpus(path, {**limits._asdict(), "tokens": tokens, "end": end}, read)


def encode_corpus(
    path: str | Path,
    vocabulary: Vocabulary,
    *,
    min_length: int = 1,
    tokens: str | None = None,
    end: str | None = None,
) -> tuple[Sequences, int]:
    """Read more text with the classes of a vocabulary, and say how many words have none.

    Words, lines, ``tokens`` and ``end`` are those of ``read_corpus``. A word that is no key of the
    vocabulary becomes its unknown key, or is left out of its sentence if it has none; for text that
    may bring new classes, see ``Vocabulary.grow``. A vocabulary of numbers, an ``end`` that is not
    among its keys, and text of which no word is left are ValueErrors.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "valid.txt"
    >>> _ = path.write_text("rum or tea\\ntea\\n")
    >>> sequences, unseen = encode_corpus(path, Vocabulary.count(["tea", "rum", "tea"]))
    >>> sequences.values.tolist(), sequences.lengths.tolist(), unseen
    ([1, 0, 0], [2, 1], 1)
    """
    check_whole("min_length", min_length, 1, MAX_LENGTH)
    if vocabulary.keys.dtype != pl.String:
        raise ValueError("vocabulary must hold words, got whole numbers")
    if end is not None and end not in vocabulary:
        raise ValueError(f"end must be one of the {len(vocabulary):,} keys, got {quoted(end)}")
    codes, lengths, keys = codes_of(path, tokens, end)
    strict = Vocabulary(vocabulary.table)  # the one with an unknown key finds every word
    is_unseen = (strict.encode(keys, missing="mark") == ABSENT).numpy()
    unseen = np.bincount(codes, minlength=len(keys))[is_unseen].sum()
    class_of = vocabulary.encode(keys, missing="mark").numpy()
    values, kept = keep_classes(codes, lengths, class_of, min_length)
    if not len(values):
        raise ValueError(
            f"{path} has no line with {min_length:,} of the {len(vocabulary):,} keys in it"
        )
    offsets = offsets_of(torch.from_numpy(kept[kept >= 0]))
    return Sequences(torch.from_numpy(values), offsets, vocabulary=vocabulary), int(unseen)


def encode_text(
    text: str,
    *,
    min_count: int = 1,
    max_size: int | None = None,
    unknown: Key | None = None,
    tokens: str | None = None,
    end: str | None = None,
) -> tuple[Sequences, Vocabulary]:
    """Take text that is in memory already, in all else like ``read_corpus``.

    >>> sequences, vocabulary = encode_text("rum and tea\\nand rum")
    >>> sequences, vocabulary.keys.to_list()
    (Sequences(2 sequences, 5 values), ['rum', 'and', 'tea'])
    """
    words = tokeniser(tokens, end)
    blocks = encoded_blocks(words, io.BytesIO(text.encode()), Path("text"))
    codes, lengths = joined(blocks, end, "text must hold at least one word, got none")
    return _classes(codes, lengths, words.keys, Limits(min_count, max_size, unknown))


def _classes(codes: Codes, lengths: Lengths, keys: pl.Series, limits: Limits) -> Corpus:
    coded = Coded(codes, offsets_of(torch.from_numpy(lengths)).numpy())
    return classes_of(coded, keys, limits)[:2]
