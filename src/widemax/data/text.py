"""Plain text: a line is a sentence, words stand between white space."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import polars as pl
import torch
from torch import Tensor

from widemax.data.encoding import Encoder, to_classes
from widemax.data.inputs import BOM, decoded, files_of, opened, with_blanks
from widemax.data.sequences import Sequences
from widemax.keys import Key
from widemax.vocabulary import Vocabulary

MAX_WORD_BYTES = 2**16
"""Longest word: what is longer has no white space where text would have some."""

_BLOCK_BYTES = 2**24


def read_corpus(
    path: str | Path,
    *,
    min_count: int = 1,
    max_size: int | None = None,
    unknown: Key | None = None,
    min_length: int = 1,
) -> tuple[Sequences, Vocabulary]:
    """Read text: one sequence for each line that holds a word, and the words as classes.

    Formula: lines end at "\\n"; words are what stands between blanks, tabs and the other white
    space of ASCII. Rare words go as in ``Vocabulary.trimmed``: to ``unknown``, or out of their
    sentence. Lines left with fewer than ``min_length`` words are dropped, and what remains counted.

    Shapes: none.

    Cost: O(bytes), in blocks of 16 MB; 8 bytes per word, and the different words, stay in memory.
    17 million words (gzip) take about 10 s on one core.

    Reference: the tokenisation of word2vec and fastText.

    Use when: the text is tokenised already. A file, a folder (read in the order of the names) or a
    pattern such as "part-*.gz"; gzip is recognised by its first bytes. Avoid when: one line is a
    user's record (``read_interactions``).

    UTF-8 only; a NUL byte, a broken character, a word of more than 65,536 bytes, a file packed with
    zstd and text without any word are ValueErrors that name the file, and the line where there is
    one. A line may be as long as it likes, a byte order mark is passed over.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "corpus.txt"
    >>> _ = path.write_text("rum and tea\\n\\nand then more tea and rum\\n")
    >>> sequences, vocabulary = read_corpus(path, min_count=2)
    >>> vocabulary
    Vocabulary(3 keys, total 7: 'and' 3, 'rum' 2, 'tea' 2)
    >>> [vocabulary.decode(sequences.sequence(i)) for i in range(2)]
    [['rum', 'and', 'tea'], ['and', 'tea', 'and', 'rum']]
    """
    encoder, codes, lengths = Encoder(pl.String()), [], []
    for file_path in files_of(path):
        with opened(file_path) as file:
            for block_codes, block_lengths in _encoded_blocks(encoder, file, file_path):
                codes.append(block_codes)
                lengths.append(block_lengths)
    if encoder.keys.is_empty():
        raise ValueError(f"{path} is empty: it holds no word")
    return to_classes(
        torch.cat(codes),
        encoder.keys,
        torch.cat(lengths),
        min_count=min_count,
        max_size=max_size,
        unknown=unknown,
        min_length=min_length,
    )


def encode_text(
    text: str, *, min_count: int = 1, max_size: int | None = None, unknown: Key | None = None
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
    encoder = Encoder(pl.String())
    file = io.BytesIO(text.encode())
    blocks = list(_encoded_blocks(encoder, file, Path("text")))
    if encoder.keys.is_empty():
        raise ValueError("text must hold at least one word, got none")
    codes, lengths = (torch.cat(parts) for parts in zip(*blocks, strict=True))
    return to_classes(
        codes, encoder.keys, lengths, min_count=min_count, max_size=max_size, unknown=unknown
    )


def words_by_line(text: str) -> pl.DataFrame:
    """Return the words of ``text`` and the number of the line each stands in, from 0."""
    lines = pl.Series("word", [text]).str.split("\n").explode().str.split(" ")
    return lines.to_frame().with_row_index("line").explode("word").filter(pl.col("word") != "")


def _encoded_blocks(
    encoder: Encoder, file: BinaryIO, path: Path
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield codes of words, and lengths of the lines that ended meanwhile."""
    line, unfinished = 1, 0
    for block in _blocks(file, path):
        text = decoded(block, path, first_line=line)
        words = words_by_line(text)
        _check_words(words, path, line)
        pieces = block.count(b"\n") + 1
        lengths = torch.bincount(words["line"].cast(pl.Int64).to_torch(), minlength=pieces)
        # The first piece goes on with the last line of the block before.
        lengths[0] += unfinished
        unfinished = int(lengths[-1])
        line += pieces - 1
        yield encoder.encode(words["word"]), lengths[:-1]
    yield torch.empty(0, dtype=torch.long), torch.tensor([unfinished])


def _blocks(file: BinaryIO, path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file in blocks that end between two words."""
    rest, line = b"", 1
    start = file.read(_BLOCK_BYTES).removeprefix(BOM)
    while start:
        data = rest + with_blanks(start)
        cut = max(data.rfind(b"\n"), data.rfind(b" ")) + 1
        block, rest = data[:cut], data[cut:]
        line += block.count(b"\n")
        if len(rest) > MAX_WORD_BYTES:
            raise _too_long(path, line)
        yield block
        start = file.read(_BLOCK_BYTES)
    yield rest


def _check_words(words: pl.DataFrame, path: Path, first_line: int) -> None:
    too_long = words.filter(pl.col("word").str.len_bytes() > MAX_WORD_BYTES)
    if not too_long.is_empty():
        raise _too_long(path, first_line + int(too_long["line"][0]))


def _too_long(path: Path, line: int) -> ValueError:
    return ValueError(
        f"{path}, line {line:,}: a word of more than {MAX_WORD_BYTES:,} bytes, so this is not text"
    )
