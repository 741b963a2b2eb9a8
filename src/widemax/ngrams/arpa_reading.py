"""ARPA files, read: the header, then a section for each length, in blocks of lines."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

import polars as pl
import torch
from torch import Tensor

from widemax.ngrams.arpa_writing import LOG_ZERO
from widemax.ngrams.counting import MAX_ORDER, MOST_KEYS
from widemax.ngrams.stored import MOST_LOG10_BACKOFF, check_trie
from widemax.ngrams.trie import ROOT, ROOT_KEY, Trie
from widemax.storage.files import open_to_read
from widemax.validation import ABSENT, MAX_TABLE_CLASSES
from widemax.vocabulary import Vocabulary
from widemax.vocabulary.keys import first_row
from widemax.vocabulary.spelling import quoted

_BLOCK = 2**17
_COUNT = re.compile(r"ngram (\d{1,2}) ?= ?(\d{1,15})")


class _Block(NamedTuple):
    """Some lines of a section: natural logarithms [M], words [M · n], and the first line."""

    log_probs: Tensor
    log_backoffs: Tensor
    words: pl.Series
    first_line: int


class _Part(NamedTuple):
    """The n-grams of one length or of all, in the order of their keys."""

    keys: Tensor
    log_probs: Tensor
    log_backoffs: Tensor


def read_arpa(path: str | Path, *, begin: str, unknown: str) -> tuple[Trie, int, Vocabulary]:
    """Return the n-grams of a file, the length of the longest, and its words as classes."""
    with open_to_read(path) as file:
        lines = _Lines(path, file)
        counts = _read_counts(lines)
        words, parts = _read_unigrams(lines, counts, begin)
        for length, count in enumerate(counts[1:], 2):
            parts = _read_longer(lines, words, parts, length, count, last=len(counts))
        _expect(lines, "\\end\\")
    keys = words.head(len(words) - 1)
    trie = Trie(len(keys), *parts)
    check_trie(trie)
    table = pl.DataFrame({"key": keys, "count": pl.zeros(len(keys), pl.Int64, eager=True)})
    return trie, len(counts), Vocabulary(table, unknown if (keys == unknown).any() else None)


class _Lines:
    """The lines of a file, and the number of the one last read."""

    def __init__(self, path: str | Path, file: BinaryIO) -> None:
        self.path = path
        self.file = file
        self.number = 0

    def fault(self, number: int, problem: str) -> ValueError:
        return ValueError(f"{self.path}, line {number:,}: {problem}")

    def next_text(self) -> str:
        """Return the next line that is not blank, without white space around it."""
        for line in self.file:
            self.number += 1
            if text := line.decode("utf-8", "replace").strip(" \t\r\n\ufeff"):
                return text
        raise self.fault(self.number + 1, "the file ends before \\end\\")

    def block(self, size: int) -> pl.Series:
        """Return the next ``size`` lines; fewer are an error."""
        lines = list(islice(self.file, size))
        if len(lines) < size or not lines[-1].endswith(b"\n"):
            raise self.fault(self.number + len(lines), "the file ends within a section")
        first, self.number = self.number + 1, self.number + size
        data = b"".join(lines)
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            row = data.count(b"\n", 0, error.start)
            raise self.fault(first + row, "not UTF-8") from None
        return pl.Series([text.removesuffix("\n")]).str.split("\n").explode()


def _expect(lines: _Lines, wanted: str) -> None:
    text = lines.next_text()
    if text != wanted:
        raise lines.fault(lines.number, f"must be {wanted}, got {quoted(text)}")


def _read_counts(lines: _Lines) -> list[int]:
    """Return how many n-grams of each length the header states; the line after it is read too."""
    _expect(lines, "\\data\\")
    counts: list[int] = []
    while (text := lines.next_text()) != "\\1-grams:":
        match = _COUNT.fullmatch(text)
        if match is None or int(match[1]) != len(counts) + 1 or len(counts) == MAX_ORDER:
            wanted = f"'ngram {len(counts) + 1}=' and a count, up to length {MAX_ORDER}"
            raise lines.fault(lines.number, f"must be {wanted}, or \\1-grams:, got {quoted(text)}")
        counts.append(int(match[2]))
    if not counts or not 1 <= counts[0] <= MAX_TABLE_CLASSES:
        most = f"between 1 and {MAX_TABLE_CLASSES:,}"
        raise lines.fault(lines.number, f"ngram 1 must be {most}, got {counts[:1]}")
    if (sum(counts) + 2) * (counts[0] + 2) > MOST_KEYS:
        raise lines.fault(lines.number, f"too many n-grams to be numbered: {sum(counts):,}")
    return counts


def _read_unigrams(lines: _Lines, counts: list[int], begin: str) -> tuple[pl.Series, _Part]:
    """Return the words in the order of their ids, begin last, and their numbers."""
    blocks = list(_read_section(lines, 1, counts[0], has_backoff=len(counts) > 1))
    words = pl.concat([block.words for block in blocks])
    if not words.is_first_distinct().all():
        row = first_row(~words.is_first_distinct())
        problem = f"the word {quoted(words[row])} appears twice"
        raise lines.fault(blocks[0].first_line + row, problem)
    log_probs = torch.cat([block.log_probs for block in blocks])
    log_backoffs = torch.cat([block.log_backoffs for block in blocks])
    kept = (words != begin).arg_true().to_torch().long()
    if not len(kept):
        raise lines.fault(blocks[0].first_line, f"there must be a word beside {quoted(begin)}")
    marker = log_backoffs[words.index_of(begin)] if len(kept) < len(words) else torch.tensor(0.0)
    return words.gather(kept.numpy()).append(pl.Series([begin])), _Part(
        torch.cat([torch.tensor([ROOT_KEY]), torch.arange(len(kept) + 1)]),
        torch.cat([torch.zeros(1).double(), log_probs[kept], torch.tensor([-math.inf]).double()]),
        torch.cat([torch.zeros(1).double(), log_backoffs[kept], marker.double()[None]]),
    )


def _read_longer(
    lines: _Lines, words: pl.Series, shorter: _Part, length: int, count: int, *, last: int
) -> _Part:
    """Return the n-grams so far with those of the next section."""
    _expect(lines, f"\\{length}-grams:")
    trie, first_line = Trie(len(words) - 1, *shorter), lines.number + 1
    blocks = [
        _Part(_keys(lines, trie, block, words, length), block.log_probs, block.log_backoffs)
        for block in _read_section(lines, length, count, has_backoff=length < last)
    ]
    if not blocks:
        return shorter
    longer = _Part(*(torch.cat(column) for column in zip(*blocks, strict=True)))
    keys, order = longer.keys.sort(stable=True)
    twice = (keys[1:] == keys[:-1]).nonzero()
    if len(twice):
        row = int(order[1:][twice.flatten()].min())
        raise lines.fault(first_line + row, "the n-gram appears twice")
    return _Part(*(torch.cat([a, b[order]]) for a, b in zip(shorter, longer, strict=True)))


def _keys(lines: _Lines, trie: Trie, block: _Block, words: pl.Series, length: int) -> Tensor:
    """Return the keys of the n-grams of a block."""
    ids = block.words.replace_strict(
        words, pl.int_range(len(words), eager=True), default=ABSENT, return_dtype=pl.Int64
    ).to_torch()
    unlisted = (ids == ABSENT).nonzero()
    if len(unlisted):
        place = int(unlisted[0])
        problem = f"the word {quoted(block.words[place])} is not among the 1-grams"
        raise lines.fault(block.first_line + place // length, problem)
    ids = ids.view(-1, length)
    places = torch.full((len(ids),), ROOT)
    for column in ids[:, :-1].unbind(1):
        places = trie.child(places, column)
    for wrong, problem in (
        (places == ABSENT, f"its first {length - 1} words are not listed among the shorter ones"),
        (ids[:, -1] == trie.num_classes, f"{quoted(words[-1])} must not be predicted"),
    ):
        if bool(wrong.any()):
            raise lines.fault(block.first_line + int(wrong.nonzero()[0]), problem)
    return places * trie.base + ids[:, -1]


def _read_section(lines: _Lines, length: int, count: int, *, has_backoff: bool) -> Iterator[_Block]:
    for done in range(0, count, _BLOCK):
        first_line = lines.number + 1
        text = lines.block(min(_BLOCK, count - done))
        yield _parsed(lines, text, first_line, length, has_backoff=has_backoff)


def _parsed(
    lines: _Lines, text: pl.Series, first_line: int, length: int, *, has_backoff: bool
) -> _Block:
    """Return the numbers and words of the lines of one section."""
    fields = text.str.replace_all(r"[ \t\r]+", " ").str.strip_chars(" ").str.split(" ")
    size = fields.list.len()
    log_probs = fields.list.first().cast(pl.Float64, strict=False)
    backoff = fields.list.get(length + 1, null_on_oob=True)
    log_backoffs = backoff.fill_null("0").cast(pl.Float64, strict=False)
    most = length + 1 + has_backoff
    for sound, wanted in (
        ((size > length) & (size <= most), _fields_wanted(length, has_backoff=has_backoff)),
        (log_probs.is_finite() & (log_probs <= 0), "a log10 p of at most 0"),
        (
            log_backoffs.is_finite() & (log_backoffs <= MOST_LOG10_BACKOFF),
            f"a log10 back-off of at most {MOST_LOG10_BACKOFF:g}",
        ),
    ):
        broken = ~sound.fill_null(False)
        if broken.any():
            row = first_row(broken)
            raise lines.fault(first_line + row, f"must hold {wanted}, got {quoted(text[row])}")
    words = fields.list.slice(1, length).explode()
    return _Block(_natural(log_probs), _natural(log_backoffs), words, first_line)


def _fields_wanted(length: int, *, has_backoff: bool) -> str:
    words = f"log10 p, {length} word{'s' if length > 1 else ''}"
    return f"{words} and perhaps a log10 back-off" if has_backoff else f"{words} and nothing else"


def _natural(values: pl.Series) -> Tensor:
    """Return logarithms of base 10 as natural ones, of 0 as −inf."""
    base_10 = values.to_torch()
    return (base_10 * math.log(10)).masked_fill_(base_10 <= LOG_ZERO, -math.inf)
