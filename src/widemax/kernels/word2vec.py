"""Skip-gram and CBOW on the CPU: threads without locks, a window at a time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from widemax.kernels.prefetch import prefetch_row
from widemax.kernels.random_bits import below, next_random
from widemax.kernels.window_blocks import (
    add_row,
    copy_row,
    fill_mean,
    gather_moves,
    move_row,
    score,
    to_steps,
)

_f = np.float32
_u = np.uint64

Matrix = NDArray[np.float32]
Ids = NDArray[np.int64]


class Corpus(NamedTuple):
    """Words end to end, where sentences start, and how often each word is kept, of 2^32 − 1."""

    words: Ids
    offsets: Ids
    keep: NDArray[np.uint32]


class Tables(NamedTuple):
    """What training moves: input and output vectors; whole registers a row are quickest."""

    inputs: Matrix
    outputs: Matrix


class Opponents(NamedTuple):
    """What stands against a word: the nodes of its path in a tree, or classes drawn at random.

    A tree (``negatives`` is 0): word w has the nodes path[path_starts[w] : path_starts[w + 1]] and
    their labels 0 or 1. Negative sampling: the word itself with label 1, and ``negatives`` draws
    from the alias table (``thresholds`` are the same bytes as float32).
    """

    path_starts: Ids
    path: Ids
    path_labels: NDArray[np.float32]
    alias: NDArray[np.int32]
    thresholds: Matrix
    negatives: int


class _Ahead(NamedTuple):
    """What was drawn for the present word and for the next, in turn in slot 0 and 1."""

    reach: Ids
    num_outputs: Ids
    ids: NDArray[np.int64]
    labels: Matrix
    weights: Matrix


class _Block(NamedTuple):
    """The outputs of a window, its scores that become steps, and what its outputs will move by."""

    outputs: Matrix
    moves: Matrix
    steps: Matrix
    flat_steps: NDArray[np.float32]
    ids: Ids
    bag: Matrix


@njit(nogil=True, cache=True)
def train_words(
    corpus: Corpus,
    start: int,
    stop: int,
    tables: Tables,
    opponents: Opponents,
    window: int,
    bag: bool,
    rate: float,
    seed: int,
) -> int:
    """Train on the words start … stop − 1 of a corpus; return how many were kept.

    Formula: each word is kept with probability keep / (2^32 − 1). For a kept word w, and each kept
    neighbour c up to ``reach`` places away, reach uniform in 1 … window: x = input(c), or with
    ``bag`` x = the mean of all; then for each opponent o with its label,
    g = rate·(label − σ(x·o)); x += Σ_o g·o (with ``bag``, every neighbour does) and o += Σ_x g·x,
    all from the values before the window. A word meets the same opponents in all of its window; a
    drawn negative that is the word itself is passed over. Windows end where sentences do.

    Shapes: see ``Corpus``, ``Tables``, ``Opponents``.

    Cost: O(window · opponents · D) a word; the rows of the next word are fetched meanwhile.

    Reference: Mikolov et al. 2013; Ji et al., "Parallelizing Word2Vec in Shared and Distributed
    Memory", 2016 (negatives shared by the window).

    Use when: several threads work on the same tables at once, without locks. Avoid when: the bits
    of the result must not depend on the number of threads.
    """
    block, ahead = _allocate(opponents, window, tables.inputs.shape[1])
    state = np.array([_u(seed)])
    kept = np.empty(stop - start, np.int64)
    sentence = np.searchsorted(corpus.offsets, start, side="right") - 1
    total = 0
    while start < stop:
        end = min(stop, corpus.offsets[sentence + 1])
        num_kept = 0
        for place in range(start, end):
            word = corpus.words[place]
            kept[num_kept] = word
            num_kept += np.uint32(next_random(state) >> _u(32)) <= corpus.keep[word]
        if num_kept > 1:
            _train_sentence(
                kept, num_kept, tables, opponents, block, ahead, window, bag, _f(rate), state
            )
        total += num_kept
        start = end
        sentence += 1
    return total


@njit(nogil=True, cache=True)
def _allocate(opponents: Opponents, window: int, dimension: int) -> tuple[_Block, _Ahead]:
    """Return zeroed room for one window, rounded up to whole blocks of 6 outputs and 8 numbers."""
    longest = opponents.negatives + 1
    if opponents.negatives == 0:
        for word in range(len(opponents.path_starts) - 1):
            length = opponents.path_starts[word + 1] - opponents.path_starts[word]
            longest = max(longest, length)
    rows = 2 * window + 3
    columns = ((longest + 5) // 6 * 6 + 7) // 8 * 8
    steps = np.zeros((rows, columns), np.float32)
    block = _Block(
        np.zeros((columns, dimension), np.float32),
        np.zeros((columns, dimension), np.float32),
        steps,
        steps.reshape(rows * columns),
        np.zeros(rows, np.int64),
        np.zeros((2, dimension), np.float32),
    )
    ahead = _Ahead(
        np.zeros(2, np.int64),
        np.zeros(2, np.int64),
        np.zeros((2, columns), np.int64),
        np.zeros((2, columns), np.float32),
        np.zeros((2, columns), np.float32),
    )
    return block, ahead


@njit(nogil=True, inline="always")
def _take_path(
    ids: Ids,
    labels: Matrix,
    weights: Matrix,
    slot: int,
    word: int,
    path_starts: Ids,
    path: Ids,
    path_labels: NDArray[np.float32],
) -> int:
    """Set the nodes on a word's path against it, and return their number."""
    start, stop = path_starts[word], path_starts[word + 1]
    length: int = stop - start
    for k in range(length):
        ids[slot, k] = path[start + k]
        labels[slot, k], weights[slot, k] = path_labels[start + k], 1
    for k in range(length, labels.shape[1]):
        labels[slot, k], weights[slot, k] = 0, 0
    return length


@njit(nogil=True, inline="always")
def _draw_negatives(
    ids: Ids,
    labels: Matrix,
    weights: Matrix,
    slot: int,
    word: int,
    alias: NDArray[np.int32],
    thresholds: Matrix,
    negatives: int,
    state: NDArray[np.uint64],
) -> int:
    """Set a word and drawn classes against it, and return their number."""
    ids[slot, 0], labels[slot, 0], weights[slot, 0] = word, 1, 1
    for k in range(1, negatives + 1):
        bits = next_random(state)
        column = below(bits, len(alias))
        uniform = _f(np.int32(bits & _u(0xFFFFFF))) * _f(2.0**-24)
        drawn = column if uniform < thresholds[column, 0] else np.int64(alias[column, 1])
        ids[slot, k], weights[slot, k] = drawn, _f(drawn != word)
    return negatives + 1


@njit(nogil=True, cache=True, error_model="numpy")
def _train_sentence(
    words: Ids,
    num_words: int,
    tables: Tables,
    opponents: Opponents,
    block: _Block,
    ahead: _Ahead,
    window: int,
    bag: bool,
    rate: np.float32,
    state: NDArray[np.uint64],
) -> None:
    # The loop is one long function of plain arrays: tuples and slices passed on for each word
    # would be counted references, a third of the time.
    inputs, outputs = tables
    path_starts, path, path_labels, alias, thresholds, negatives = opponents
    o, moves, steps, flat_steps, ids, mean = block
    reach, num_ahead, output_ids, labels, weights = ahead
    single = np.zeros(3, np.int64)
    for i in range(-1, num_words):
        following = (i + 1) & 1
        if i + 1 < num_words:
            word = words[i + 1]
            reach[following] = window - below(next_random(state), window)
            if negatives:
                num_drawn = _draw_negatives(
                    output_ids,
                    labels,
                    weights,
                    following,
                    word,
                    alias,
                    thresholds,
                    negatives,
                    state,
                )
            else:
                num_drawn = _take_path(
                    output_ids, labels, weights, following, word, path_starts, path, path_labels
                )
            num_ahead[following] = num_drawn
            for k in range(num_drawn):
                prefetch_row(outputs, output_ids[following, k])
            prefetch_row(inputs, words[min(i + 1 + window, num_words - 1)])
        if i < 0:
            continue
        slot = i & 1
        num_ids = 0
        for place in range(max(0, i - reach[slot]), min(num_words, i + reach[slot] + 1)):
            ids[num_ids] = words[place]
            num_ids += place != i
        ids[num_ids], ids[num_ids + 1] = ids[0], ids[0]
        num_outputs = num_ahead[slot]
        for k in range(num_outputs):
            copy_row(o, k, outputs, output_ids[slot, k])
        if bag:
            fill_mean(mean, inputs, ids, num_ids)
            score(mean, single, 1, o, num_outputs, steps)
            to_steps(steps, flat_steps, 1, labels, weights, slot, rate)
            gather_moves(moves, num_outputs, steps, mean, single, 1)
            mean[1] = 0
            move_row(mean, 1, steps, 0, o, num_outputs)
            for j in range(num_ids):
                add_row(inputs, ids[j], mean, 1)
        else:
            score(inputs, ids, num_ids, o, num_outputs, steps)
            to_steps(steps, flat_steps, num_ids, labels, weights, slot, rate)
            gather_moves(moves, num_outputs, steps, inputs, ids, num_ids)
            for j in range(num_ids):
                move_row(inputs, ids[j], steps, j, o, num_outputs)
        for k in range(num_outputs):
            add_row(outputs, output_ids[slot, k], moves, k)
