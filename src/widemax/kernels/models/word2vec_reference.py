"""Skip-gram and CBOW in plain NumPy: what ``widemax.kernels.models.word2vec`` has to compute."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from widemax.kernels.models.word2vec import Corpus, Opponents, Tables
from widemax.kernels.random_bits import split_mix_reference

Numbers = NDArray[np.float64]

_AT_ONCE = 10
"""How many neighbours are taken at a time."""


def train_words_reference(
    corpus: Corpus,
    start: int,
    stop: int,
    tables: Tables,
    opponents: Opponents,
    window: int,
    rate: float,
    seed: int,
    *,
    negatives: int,
    bag: bool,
) -> int:
    """Do what ``train_words`` does from the same random bits, in float64.

    >>> words, offsets = np.array([0, 1, 0, 1]), np.array([0, 4])
    >>> corpus = Corpus(words, offsets, np.full(2, 2**32 - 1, np.uint32))
    >>> tables = Tables(np.ones((2, 1)), np.zeros((1, 1)))
    >>> path = np.array([0, 1, 2]), np.array([0, 0]), np.array([0, 1])
    >>> none = np.empty((0, 2), np.int32)
    >>> opponents = Opponents(*path, none, none.view(np.float32))
    >>> train_words_reference(
    ...     corpus, 0, 4, tables, opponents, 1, 0.5, 0, negatives=0, bag=False
    ... )
    4
    >>> tables.outputs.round(4).tolist()
    [[-0.026]]
    """
    random = split_mix_reference(seed)
    total = 0
    for left, right in pairwise(corpus.offsets.tolist()):
        sentence = corpus.words[max(left, start) : min(right, stop)].tolist()
        kept = [word for word in sentence if next(random) >> 32 <= int(corpus.keep[word])]
        total += len(kept)
        if len(kept) == 1:
            continue
        together = 2 if bag and negatives else 1
        for first in range(0, len(kept), together):
            places = range(first, min(first + together, len(kept)))
            reaches = [window - _below(next(random), window) for _ in places]
            drawn = [_draw(opponents, next(random)) for _ in range(negatives)]
            windows = [
                kept[max(0, place - reach) : place] + kept[place + 1 :][:reach]
                for place, reach in zip(places, reaches, strict=True)
            ]
            words = [kept[place] for place in places]
            ids, labels = _opponents_of(words, opponents, drawn)
            if bag:
                _train_block(tables, windows, ids, labels, rate)
                continue
            for group in range(0, len(windows[0]), _AT_ONCE):
                alone = [[word] for word in windows[0][group : group + _AT_ONCE]]
                _train_block(tables, alone, ids, np.repeat(labels, len(alone), 0), rate)
    return total


def _opponents_of(
    words: list[int], opponents: Opponents, drawn: list[int]
) -> tuple[list[int], Numbers]:
    """Return the output rows that words meet, and the label of each for each word, or NaN.

    A word does not meet the others, nor itself where it was drawn; a tree draws none.
    """
    if not drawn:
        (word,) = words
        path = opponents.path[opponents.path_starts[word] : opponents.path_starts[word + 1]]
        turns = np.arange(len(path)) < opponents.path_turns[word]
        return path.tolist(), turns[None].astype(np.float64)
    ids = [*words, *drawn]
    labels = np.full((len(words), len(ids)), np.nan)
    for row, word in enumerate(words):
        labels[row, row] = 1
        for column in range(len(words), len(ids)):
            labels[row, column] = np.nan if ids[column] == word else 0
    return ids, labels


def _draw(opponents: Opponents, bits: int) -> int:
    """Return a class of the alias table: the upper bits choose the column, the lower its side."""
    column = _below(bits, len(opponents.alias))
    uniform = (bits & 0xFFFFFF) / 2**24
    own = uniform < float(opponents.thresholds[column, 0])
    return column if own else int(opponents.alias[column, 1])


def _train_block(
    tables: Tables, bags: list[list[int]], ids: list[int], labels: Numbers, rate: float
) -> None:
    """Move the inputs of bags, and outputs, by steps from the values before; NaN is no pair."""
    queries = np.array([tables.inputs[bag].astype(np.float64).mean(0) for bag in bags])
    sigmoid = (1 + np.tanh(queries @ tables.outputs[ids].astype(np.float64).T / 2)) / 2
    steps = np.nan_to_num(rate * (labels - sigmoid))
    moves = np.zeros_like(queries)
    # In turn, so that one that is there twice has moved when its second turn comes.
    for column, output in enumerate(ids):
        moves += np.outer(steps[:, column], tables.outputs[output])
        tables.outputs[output] += steps[:, column] @ queries
    for bag, move in zip(bags, moves, strict=True):
        np.add.at(tables.inputs, bag, move)  # counts a row as often as it is listed


def _below(bits: int, limit: int) -> int:
    """Return a whole number below ``limit`` from the upper half of 64 random bits."""
    return ((bits >> 32) * limit) >> 32
