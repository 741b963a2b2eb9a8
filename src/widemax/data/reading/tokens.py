"""How a text is cut into words: at white space, or by a regular expression."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from widemax.data.reading.encoding import Encoder, LineError, WordEncoder
from widemax.data.reading.inputs import with_blanks
from widemax.vocabulary.keys import quoted

MAX_WORD_BYTES = 2**16
"""Longest word: what is longer has no white space where text would have some."""

MAX_LINE_BYTES = 2**26
"""Longest line that a regular expression is given: it must be in memory whole."""

Encoded = tuple[NDArray[np.int32], NDArray[np.int64], int]


class Tokeniser(Protocol):
    """Takes the blocks of a text, and gives its words codes in order of appearance."""

    too_long: str

    @property
    def keys(self) -> pl.Series:
        """The words in the order of their codes."""

    def cut(self, data: bytes) -> int | None:
        """Return where ``data`` may be cut in two, 0 if nowhere yet, None if that is hopeless."""

    def encode(self, block: bytes) -> Encoded:
        """Return codes, lengths of the lines that end in ``block``, and the words since then."""


def tokeniser(tokens: str | None, end: str | None) -> Tokeniser:
    """Return what cuts text into words by ``tokens``, and gives each line the word ``end``."""
    if end is not None:
        check_end(end)
    return WhiteSpace(end) if tokens is None else Pattern(tokens, end)


class WhiteSpace:
    """Words stand between the white space of ASCII.

    >>> tokeniser = WhiteSpace("<eos>")
    >>> codes, lengths, unfinished = tokeniser.encode(b"rum tea\\nrum\\n")
    >>> codes.tolist(), lengths.tolist(), tokeniser.keys.to_list()
    ([0, 1, 2, 0, 2], [3, 2], ['rum', 'tea', '<eos>'])
    """

    too_long = f"a word of more than {MAX_WORD_BYTES:,} bytes, so this is not text"

    def __init__(self, end: str | None) -> None:
        self._encoder = WordEncoder(longest=MAX_WORD_BYTES)
        self._line_end = None if end is None else f" {end}\n".encode()

    @property
    def keys(self) -> pl.Series:
        """The words in the order of their codes."""
        return self._encoder.keys

    def cut(self, data: bytes) -> int | None:
        """Return the place after the last white space; None if a word would be too long."""
        tail = with_blanks(data[-MAX_WORD_BYTES - 1 :])
        place = max(tail.rfind(b" "), tail.rfind(b"\n")) + 1
        if place:
            return len(data) - len(tail) + place
        return None if len(data) > MAX_WORD_BYTES else 0

    def encode(self, block: bytes) -> Encoded:
        """Return codes, lengths of the lines that end in ``block``, and the words since then."""
        ended = block if self._line_end is None else block.replace(b"\n", self._line_end)
        try:
            return self._encoder.encode(ended)
        except LineError as error:
            raise LineError(self.too_long, error.line) from error


class Pattern:
    """Words are what a regular expression finds in a line, from left to right.

    >>> tokeniser = Pattern("[a-z]+|[.,]", None)
    >>> codes, lengths, unfinished = tokeniser.encode("rum, tea.\\n".encode())
    >>> codes.tolist(), lengths.tolist(), tokeniser.keys.to_list()
    ([0, 1, 2, 3], [4], ['rum', ',', 'tea', '.'])
    """

    too_long = f"a line of more than {MAX_LINE_BYTES:,} bytes, too long for a regular expression"

    def __init__(self, tokens: str, end: str | None) -> None:
        self._pattern = _checked(tokens)
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
        _check_lengths(words)
        if self._end is not None:
            ended = words.head(-1).list.concat(pl.Series([[self._end]]))
            words = pl.concat([ended, words.tail(1)])
        lengths = words.list.len().cast(pl.Int64).to_numpy(writable=True)
        flat = words.explode(empty_as_null=False)
        codes = self._encoder.encode(flat).numpy().astype(np.int32)
        return codes, lengths[:-1], int(lengths[-1])


def check_end(end: str) -> str:
    """Return ``end`` if it can stand in a text as a word."""
    if not isinstance(end, str):
        raise ValueError(f"end must be a string, got {end!r}")
    try:
        data = end.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"end must be UTF-8, got {quoted(end)}") from error
    one_word = data.split() == [data] and b"\0" not in data
    if not one_word or len(data) > MAX_WORD_BYTES:
        raise ValueError(
            f"end must be one word of at most {MAX_WORD_BYTES:,} bytes, without white space or "
            f"NUL, got {quoted(end)}"
        )
    return end


def _checked(tokens: str) -> str:
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


def _check_lengths(words: pl.Series) -> None:
    longest = words.list.eval(pl.element().str.len_bytes()).list.max()
    too_long = (longest > MAX_WORD_BYTES).fill_null(value=False)
    if too_long.any():
        raise LineError(WhiteSpace.too_long, int(too_long.arg_true()[0]))


def split_words(sentence: str, tokens: str | None = None) -> list[str]:
    """Return the words of one sentence, cut as a text is.

    >>> split_words("well, then"), split_words("well, then", r"\\w+|[^\\w\\s]")
    (['well,', 'then'], ['well', ',', 'then'])
    """
    if tokens is None:
        return sentence.split()
    pattern = _checked(tokens)
    words: list[str] = pl.Series([sentence]).str.extract_all(pattern)[0].to_list()
    return words
