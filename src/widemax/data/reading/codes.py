"""A text as codes of its words, in order of first appearance; what of reading needs no torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

import numpy as np
import polars as pl
from numpy.typing import NDArray

from widemax.data.reading.files import BOM, decoded, files_of, opened, read_ahead
from widemax.data.reading.tokens import Encoded, LineError, Tokeniser, tokeniser
from widemax.kernels.data.memory import unset

_BLOCK_BYTES = 2**22
_FIRST_PIECE, _LARGEST_PIECE = 2**20, 2**26

Codes = NDArray[np.int32]
Lengths = NDArray[np.int64]
CodedText = tuple[Codes, Lengths, pl.Series]
"""The codes of all words, the length of each line, and the words."""


def read_codes(path: str | Path, tokens: str | None, end: str | None) -> CodedText:
    """Return the codes of all words, the length of each line, and the words."""
    words = tokeniser(tokens, end)

    def blocks() -> Iterator[Encoded]:
        for file_path in files_of(path):
            with opened(file_path) as file:
                yield from encoded_blocks(words, file, file_path)

    codes, lengths = joined(blocks(), end, f"{path} is empty: it holds no word")
    return codes, lengths, words.keys


def joined(blocks: Iterable[Encoded], end: str | None, empty: str) -> tuple[Codes, Lengths]:
    """Return all codes and lengths; text of line ends alone is an error with the message given."""
    pieces, all_lengths = _Pieces(), [np.empty(0, np.int64)]
    for block_codes, block_lengths, _ in blocks:
        pieces.append(block_codes)
        all_lengths.append(block_lengths)
    codes, lengths = pieces.joined(), np.concatenate(all_lengths)
    if len(codes) == (0 if end is None else len(lengths)):
        raise ValueError(empty)
    return codes, lengths


class _Pieces:
    """Codes of a length that is not known yet, in a few pieces, each twice as long as the last.

    Long pieces are given back to the system when they are let go; the many short ones of the
    blocks would stay with the process, beside all that comes after.
    """

    def __init__(self) -> None:
        self._pieces = [unset(_FIRST_PIECE, np.int32)]
        self._used = 0

    def append(self, codes: Codes) -> None:
        """Copy codes to the end."""
        while len(codes):
            last = self._pieces[-1]
            taken = min(len(codes), len(last) - self._used)
            last[self._used : self._used + taken] = codes[:taken]
            codes, self._used = codes[taken:], self._used + taken
            if self._used == len(last):
                self._pieces.append(unset(min(2 * len(last), _LARGEST_PIECE), np.int32))
                self._used = 0

    def joined(self) -> Codes:
        """Return all codes in one array; each piece goes as soon as it is copied."""
        total = sum(map(len, self._pieces[:-1])) + self._used
        codes: Codes = unset(total, np.int32)
        start = 0
        while self._pieces:
            piece = self._pieces.pop(0)
            part = piece[: total - start]
            codes[start : start + len(part)] = part
            start += len(part)
        return codes


def encoded_blocks(words: Tokeniser, file: BinaryIO, path: Path) -> Iterator[Encoded]:
    """Yield codes of words, and lengths of the lines that ended meanwhile."""
    line, unfinished = 1, 0
    with closing(read_ahead(file, _BLOCK_BYTES)) as pieces:
        for block in _blocks(words, pieces, path):
            decoded(block, path, first_line=line)
            try:
                codes, lengths, rest = words.encode(block)
            except LineError as error:
                raise ValueError(f"{path}, line {line + error.line:,}: {error}") from error
            # The first line continues the last one of the block before.
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
            line += data.count(b"\n")
            raise ValueError(f"{path}, line {line:,}: {words.too_long}")
        block, rest = data[:cut], data[cut:]
        line += block.count(b"\n")
        yield block
    yield rest
