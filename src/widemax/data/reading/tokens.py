"""Text cut into words, at white space or by a regular expression, and the words numbered."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from widemax.data.reading.files import with_blanks
from widemax.kernels.data import words as kernel
from widemax.vocabulary.keys import first_row
from widemax.vocabulary.spelling import quoted

MAX_WORD_BYTES = 2**16
"""Longest word: what is longer has no white space where text would have some."""

MAX_LINE_BYTES = 2**26
"""Longest line that a regular expression is given: it must be in memory whole."""

Encoded = tuple[NDArray[np.int32], NDArray[np.int64], int]


class LineError(ValueError):
    """What is wrong with a line of a block, counted from 0."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


class WhiteSpace:
    """Words stand between the white space of ASCII.

    A Numba kernel (``number_words``) takes about 60 MB a second on one core, several times as much
    as ``Encoder``, and holds the different words alone in memory.

    >>> tokeniser = WhiteSpace("<eos>")
    >>> codes, lengths, unfinished = tokeniser.encode(b"rum tea\\nrum\\ntea ")
    >>> codes.tolist(), lengths.tolist(), unfinished
    ([0, 1, 2, 0, 2, 1], [3, 2], 1)
    >>> tokeniser.encode(b"gin ")[0].tolist(), tokeniser.keys.to_list()
    ([3], ['rum', 'tea', '<eos>', 'gin'])
    """

    def __init__(self, end: str | None = None, *, longest: int = MAX_WORD_BYTES) -> None:
        self.too_long = _word_too_long(longest)
        self._line_end = None if end is None else f" {end}\n".encode()
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

    def cut(self, data: bytes) -> int | None:
        """Return the place after the last white space, 0 if there is none yet.

        None if a word would be too long.
        """
        tail = with_blanks(data[-self._longest - 1 :])
        place = max(tail.rfind(b" "), tail.rfind(b"\n")) + 1
        if place:
            return len(data) - len(tail) + place
        return None if len(data) > self._longest else 0

    def encode(self, block: bytes) -> Encoded:
        """Return codes, lengths of the lines that end in ``block``, and the words since the last.

        The block is UTF-8 without NUL bytes that ends between two words. A word that is too long
        is a LineError that says in which line of the block it stands.
        """
        if self._line_end is not None:
            block = block.replace(b"\n", self._line_end)
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
                return codes[:words], lengths, unfinished
            if not self._grown():
                raise LineError(self.too_long, lines)

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


class Pattern:
    """Words are what a regular expression finds in a line, from left to right.

    >>> tokeniser = Pattern("[a-z]+|[.,]", None)
    >>> codes, lengths, unfinished = tokeniser.encode("rum, tea.\\n".encode())
    >>> codes.tolist(), lengths.tolist(), tokeniser.keys.to_list()
    ([0, 1, 2, 3], [4], ['rum', ',', 'tea', '.'])
    """

    too_long = f"a line of more than {MAX_LINE_BYTES:,} bytes, too long for a regular expression"

    def __init__(self, tokens: str, end: str | None) -> None:
        # Here and not above: it loads torch, which a text cut at white space is read without.
        from widemax.data.reading.numbering import Encoder

        self._pattern = _check_pattern(tokens)
        self._end = end
        self._encoder = Encoder(pl.String())

    @property
    def keys(self) -> pl.Series:
        """The words in the order of their codes."""
        return self._encoder.keys

    def cut(self, data: bytes) -> int | None:
        """Return the place after the last end of a line; None if a line would be too long."""
        place = data.rfind(b"\n") + 1
        return None if len(data) - place > MAX_LINE_BYTES else place

    def encode(self, block: bytes) -> Encoded:
        """Return codes, lengths of the lines that end in ``block``, and the words since then."""
        lines = pl.Series("word", [block.decode()]).str.split("\n").explode()
        found = lines.str.strip_suffix("\r").str.extract_all(self._pattern)
        # A pattern such as "a*" finds nothing at every place: that is no word.
        words = found.list.eval(pl.element().filter(pl.element() != ""))
        longest = words.list.eval(pl.element().str.len_bytes()).list.max()
        too_long = (longest > MAX_WORD_BYTES).fill_null(value=False)
        if too_long.any():
            raise LineError(_word_too_long(MAX_WORD_BYTES), first_row(too_long))
        if self._end is not None:
            ended = words.head(-1).list.concat(pl.Series([[self._end]]))
            words = pl.concat([ended, words.tail(1)])
        lengths = words.list.len().cast(pl.Int64).to_numpy(writable=True)
        codes = self._encoder.encode(words.explode(empty_as_null=False))
        return codes, lengths[:-1], int(lengths[-1])


Tokeniser: TypeAlias = WhiteSpace | Pattern
"""Takes the blocks of a text, and gives its words codes in order of appearance."""


def tokeniser(tokens: str | None, end: str | None) -> Tokeniser:
    """Return what cuts text into words by ``tokens``, and gives each line the word ``end``."""
    if end is not None:
        _check_end(end)
    return WhiteSpace(end) if tokens is None else Pattern(tokens, end)


def split_words(sentence: str, tokens: str | None = None) -> list[str]:
    """Return the words of one sentence, cut as a text is.

    >>> split_words("well, then"), split_words("well, then", r"\\w+|[^\\w\\s]")
    (['well,', 'then'], ['well', ',', 'then'])
    """
    if tokens is None:
        return sentence.split()
    words: list[str] = pl.Series([sentence]).str.extract_all(_check_pattern(tokens))[0].to_list()
    return words


def _word_too_long(longest: int) -> str:
    return f"a word of more than {longest:,} bytes, so this is not text"


def _check_end(end: str) -> None:
    if not isinstance(end, str):
        raise ValueError(f"end must be a string, got {end!r}")
    try:
        data = end.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"end must be UTF-8, got {quoted(end)}") from error
    if data.split() != [data] or b"\0" in data or len(data) > MAX_WORD_BYTES:
        raise ValueError(
            f"end must be one word of at most {MAX_WORD_BYTES:,} bytes, without white space or "
            f"NUL, got {quoted(end)}"
        )


def _check_pattern(tokens: str) -> str:
    if not isinstance(tokens, str) or not tokens:
        raise ValueError(f"tokens must be a regular expression, got {tokens!r}")
    try:
        tokens.encode()
        pl.Series([""]).str.extract_all(tokens)
    except (pl.exceptions.PolarsError, UnicodeEncodeError) as error:
        reason = str(error).partition("\n\nThis error")[0]
        raise ValueError(
            "tokens must be a regular expression of Rust's kind, without look-around and "
            f"back-references, got {quoted(tokens)}: {reason}"
        ) from error
    return tokens
