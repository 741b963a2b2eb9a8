"""Plain text: a line is a sentence, words stand between white space."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

import numpy as np
import polars as pl
import torch
from torch import Tensor

from widemax.data.reading.classes import MAX_LENGTH, to_classes, without_gaps
from widemax.data.reading.corpus_cache import cached_corpus
from widemax.data.reading.encoding import LineError
from widemax.data.reading.inputs import BOM, decoded, files_of, opened, read_ahead
from widemax.data.reading.tokens import Encoded, Tokeniser, tokeniser
from widemax.data.sequences import Sequences, offsets_of
from widemax.validation import ABSENT, check_whole
from widemax.vocabulary import Vocabulary
from widemax.vocabulary.keys import Key, quoted

_BLOCK_BYTES = 2**24


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

    Formula: lines end at "\\n"; words are what stands between blanks, tabs and the other white
    space of ASCII, or what the regular expression ``tokens`` finds from left to right. Rare words
    go as in ``Vocabulary.trimmed``: to ``unknown``, or out of their sentence. Lines left with fewer
    than ``min_length`` words are dropped, and what remains counted.

    Shapes: none.

    Cost: O(bytes), in blocks of 16 MB that are read and unpacked while the one before is worked on;
    12 bytes per word, and the different words, stay in memory. 17 million words take about 2 s,
    with ``tokens`` about 10 s.

    Reference: the tokenisation of word2vec and fastText; ``end`` as in the language models on the
    Penn Treebank (Mikolov et al. 2010).

    Use when: the text is tokenised already, or one regular expression does it, such as
    r"\\w+|[^\\w\\s]". It is of Rust's kind: no look-around, and never more than linear time.
    A file, a folder (read in the order of the names) or a pattern such as "part-*.gz"; gzip and
    zstd are recognised by their first bytes. Avoid when: one line is a user's record
    (``read_interactions``).

    ``end`` is a word that is added to every line, and a class like any other: a model that predicts
    it knows where sentences end. A line without words is then the word ``end`` alone, as the
    published counts of WikiText have it; ``min_length=2`` drops it.

    ``cache`` keeps what was read in a hidden file beside the source, and takes it from there as
    long as content and options are the same: see ``cached_corpus``.

    UTF-8 only; a NUL byte, a broken character, a word of more than 65,536 bytes, a line of more
    than 64 MB with ``tokens`` and text without any word are ValueErrors that name the file, and the
    line where there is one. Without ``tokens`` a line may be as long as it likes. A byte order mark
    is passed over.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "corpus.txt"
    >>> _ = path.write_text("rum and tea\\n\\nand then more tea and rum\\n")
    >>> sequences, vocabulary = read_corpus(path, min_count=2)
    >>> vocabulary
    Vocabulary(3 keys, total 7: 'and' 3, 'rum' 2, 'tea' 2)
    >>> [vocabulary.decode(sequences.sequence(i)) for i in range(2)]
    [['rum', 'and', 'tea'], ['and', 'tea', 'and', 'rum']]
    """

    def read() -> tuple[Sequences, Vocabulary]:
        codes, keys, lengths = _codes(path, tokens, end)
        return to_classes(
            codes, keys, lengths, min_count=min_count, max_size=max_size, unknown=unknown,
            min_length=min_length,
        )  # fmt: skip

    if not cache:
        return read()
    options = {
        "min_count": min_count, "max_size": max_size, "unknown": unknown, "min_length": min_length,
        "tokens": tokens, "end": end,
    }  # fmt: skip
    return cached_corpus(path, options, read)


def encode_corpus(
    path: str | Path,
    vocabulary: Vocabulary,
    *,
    min_length: int = 1,
    tokens: str | None = None,
    end: str | None = None,
) -> tuple[Sequences, int]:
    """Read more text with the classes of a vocabulary, and say how many words have none.

    Formula: words, lines and ``end`` as in ``read_corpus``. A word that is no key of the vocabulary
    becomes its unknown key, or is left out of its sentence if it has none.

    Shapes: none.

    Cost: that of ``read_corpus``.

    Reference: none.

    Use when: a model that was trained on one text is tested on another, or trained further. Give
    the same ``tokens`` and ``end`` as for the first. Avoid when: the text may bring new classes:
    ``Vocabulary.grow`` makes them.

    A vocabulary of numbers, an ``end`` that is not among its keys, and text of which no word is
    left are ValueErrors.

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
    codes, keys, lengths = _codes(path, tokens, end)
    strict = Vocabulary(vocabulary.table)  # the one with an unknown key finds every word
    unseen = torch.bincount(codes, minlength=len(keys))[
        strict.encode(keys, missing="mark") == ABSENT
    ]
    class_of = vocabulary.encode(keys, missing="mark")
    values, kept = without_gaps(codes, lengths, class_of, min_length)
    if not len(values):
        raise ValueError(
            f"{path} has no line with {min_length:,} of the {len(vocabulary):,} keys in it"
        )
    return Sequences(values, offsets_of(kept[kept >= 0])), int(unseen.sum())


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

    Formula: see ``read_corpus``.

    Shapes: none.

    Cost: O(len(text)).

    Reference: none.

    Use when: the text was made by a program. Avoid when: it is in a file, which need not be in
    memory whole.

    >>> sequences, vocabulary = encode_text("rum and tea\\nand rum")
    >>> sequences, vocabulary.keys.to_list()
    (Sequences(2 sequences, 5 values), ['rum', 'and', 'tea'])
    """
    words = tokeniser(tokens, end)
    blocks = list(_encoded_blocks(words, io.BytesIO(text.encode()), Path("text")))
    codes, lengths = _joined(blocks)
    if len(codes) == _num_ends(lengths, end):
        raise ValueError("text must hold at least one word, got none")
    return to_classes(
        codes, words.keys, lengths, min_count=min_count, max_size=max_size, unknown=unknown
    )


def words_by_line(text: str) -> pl.DataFrame:
    """Return the words of ``text`` and the number of the line each stands in, from 0."""
    lines = pl.Series("word", [text]).str.split("\n").explode().str.split(" ")
    return lines.to_frame().with_row_index("line").explode("word").filter(pl.col("word") != "")


def _codes(
    path: str | Path, tokens: str | None, end: str | None
) -> tuple[Tensor, pl.Series, Tensor]:
    """Return the codes of all words, the words, and the length of each line."""
    words = tokeniser(tokens, end)
    blocks: list[Encoded] = []
    for file_path in files_of(path):
        with opened(file_path) as file:
            blocks += _encoded_blocks(words, file, file_path)
    codes, lengths = _joined(blocks)
    if len(codes) == _num_ends(lengths, end):
        raise ValueError(f"{path} is empty: it holds no word")
    return codes, words.keys, lengths


def _num_ends(lengths: Tensor, end: str | None) -> int:
    return 0 if end is None else len(lengths)


def _joined(blocks: list[Encoded]) -> tuple[Tensor, Tensor]:
    codes = [np.empty(0, np.int32), *(block[0] for block in blocks)]
    lengths = [np.empty(0, np.int64), *(block[1] for block in blocks)]
    return torch.from_numpy(np.concatenate(codes)), torch.from_numpy(np.concatenate(lengths))


def _encoded_blocks(words: Tokeniser, file: BinaryIO, path: Path) -> Iterator[Encoded]:
    """Yield codes of words, and lengths of the lines that ended meanwhile."""
    line, unfinished = 1, 0
    with closing(read_ahead(file, _BLOCK_BYTES)) as pieces:
        for block in _blocks(words, pieces, path):
            decoded(block, path, first_line=line)
            try:
                codes, lengths, rest = words.encode(block)
            except LineError as error:
                raise _wrong_line(path, line + error.line, str(error)) from error
            # The first line goes on with the last one of the block before.
            lengths[:1] += unfinished
            unfinished = rest if len(lengths) else unfinished + rest
            line += len(lengths)
            yield codes, lengths, rest
    if unfinished:
        codes, lengths, rest = words.encode(b"\n")
        yield codes, lengths + unfinished, rest


def _blocks(words: Tokeniser, pieces: Iterator[bytes], path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file in blocks that end where ``words`` may cut them."""
    rest, line = b"", 1
    for index, piece in enumerate(pieces):
        data = rest + (piece if index else piece.removeprefix(BOM))
        cut = words.cut(data)
        if cut is None:
            raise _wrong_line(path, line + data.count(b"\n"), words.too_long)
        block, rest = data[:cut], data[cut:]
        line += block.count(b"\n")
        yield block
    yield rest


def _wrong_line(path: Path, line: int, message: str) -> ValueError:
    return ValueError(f"{path}, line {line:,}: {message}")
