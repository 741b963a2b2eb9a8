"""Where the words of a test file stand among the keys of vectors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from widemax.data.reading import read_all
from widemax.validation import MAX_CLASSES, check_whole
from widemax.vectors import KeyedVectors


class WordRows:
    """The first rows of vectors by the spelling of their keys, as in gensim's evaluation.

    With ``case_insensitive``, words are equal that are equal in upper case, and the first row, as a
    rule the most frequent, stands for all of them. ``first`` int64 [n] has for each of the first
    n = ``restrict_vocabulary`` rows the row that stands for its spelling, often the row itself.

    >>> rows = WordRows(KeyedVectors(["us", "tea", "US"], torch.zeros(3, 2)), None, True)
    >>> rows.find("Us", "tea"), rows.find("rum", "tea"), rows.first.tolist()
    ([0, 1], None, [0, 1, 0])
    """

    def __init__(
        self, vectors: KeyedVectors, restrict_vocabulary: int | None, case_insensitive: bool
    ) -> None:
        self.case_insensitive = case_insensitive
        keys = vectors.keys
        if restrict_vocabulary is not None:
            limit = check_whole("restrict_vocabulary", restrict_vocabulary, 1, MAX_CLASSES)
            keys = keys.head(limit)
        spellings = [self._spelling(key) for key in keys.to_list()]
        self._row_by_spelling: dict[str, int] = {}
        for row, spelling in enumerate(spellings):
            self._row_by_spelling.setdefault(spelling, row)
        self.first = torch.tensor(
            [self._row_by_spelling[spelling] for spelling in spellings], dtype=torch.int64
        )

    def find(self, *words: str) -> list[int] | None:
        """Return the rows of these words, or None if one of them has none."""
        rows = [self._row_by_spelling.get(self._spelling(word)) for word in words]
        known = [row for row in rows if row is not None]
        return known if len(known) == len(rows) else None

    def _spelling(self, word: str) -> str:
        return word.upper() if self.case_insensitive else word


def unit_rows(vectors: Tensor) -> Tensor:
    """Return rows scaled to length 1; a row of zeros stays, so that its cosines are 0."""
    lengths = vectors.norm(dim=1, keepdim=True)
    return vectors / torch.where(lengths > 0, lengths, 1)


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text file that are not blank, counted from 1."""
    for number, line in enumerate(read_all(path).split("\n"), start=1):
        if line.strip():
            yield number, line.rstrip("\r")
