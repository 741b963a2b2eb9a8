"""Skip-gram and CBOW in plain NumPy: what ``widemax.kernels.models.word2vec`` has to compute."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from widemax.kernels.models.word2vec import Corpus, Opponents, Tables
from widemax.kernels.random_bits import split_mix_reference

Numbers = NDArray[np.float64]


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
    >>> path = np.array([0, 1, 2]), np.array([0, 0]), np.array([0, 1], np.float32)
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
            before = Tables(tables.inputs.copy(), tables.outputs.copy())
            for place, reach in zip(places, reaches, strict=True):
                neighbours = kept[max(0, place - reach) : place] + kept[place + 1 :][:reach]
                ids, labels = _opponents_of(kept[place], opponents, drawn)
                _train_window(tables, before, neighbours, ids, labels, bag, rate)
    return total


def _opponents_of(word: int, opponents: Opponents, drawn: list[int]) -> tuple[list[int], Numbers]:
    """Return the output rows that a word meets, and the label of each; a tree draws none."""
    if not drawn:
        path = slice(opponents.path_starts[word], opponents.path_starts[word + 1])
        return opponents.path[path].tolist(), opponents.path_labels[path].astype(np.float64)
    others = [each for each in drawn if each != word]
    return [word, *others], np.array([1.0] + [0.0] * len(others))


def _draw(opponents: Opponents, bits: int) -> int:
    """Return a class of the alias table: the upper bits choose the column, the lower its side."""
    column = _below(bits, len(opponents.alias))
    uniform = (bits & 0xFFFFFF) / 2**24
    own = uniform < float(opponents.thresholds[column, 0])
    return column if own else int(opponents.alias[column, 1])


def _train_window(
    tables: Tables,
    before: Tables,
    neighbours: list[int],
    ids: list[int],
    labels: Numbers,
    bag: bool,
    rate: float,
) -> None:
    """Move the inputs of a window and its outputs, all by the values ``before``."""
    inputs = before.inputs[neighbours].astype(np.float64)
    outputs = before.outputs[ids].astype(np.float64)
    queries = inputs.mean(0, keepdims=True) if bag else inputs
    sigmoid = (1 + np.tanh(queries @ outputs.T / 2)) / 2
    steps = rate * (labels - sigmoid)
    # add.at counts a row as often as it is listed; with a bag, all inputs move alike.
    np.add.at(tables.inputs, neighbours, np.broadcast_to(steps @ outputs, inputs.shape))
    np.add.at(tables.outputs, ids, steps.T @ queries)


def _below(bits: int, limit: int) -> int:
    """Return a whole number below ``limit`` from the upper half of 64 random bits."""
    return ((bits >> 32) * limit) >> 32
