"""Skip-gram and CBOW on the CPU: threads without locks, a window at a time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from widemax.kernels.compiling import njit
from widemax.kernels.models.prefetch import prefetch_row
from widemax.kernels.models.window_blocks import (
    add_row,
    copy_row,
    fill_mean,
    gather_moves,
    move_row,
    push_down,
    score,
)
from widemax.kernels.random_bits import below, next_random

_f = np.float32
_u = np.uint64
# Sums may be reordered and products contracted, which vectorises the loops; and a division that
# could raise would keep them scalar.
_REORDER = {"reassoc", "contract", "nsz"}
_REACH, _NUMBER, _HITS = 0, 1, 2
_USUAL_NEGATIVES = 5

Matrix = NDArray[np.float32]
Ids = NDArray[np.int64]


class Corpus(NamedTuple):
    """A text as ids of words."""

    words: Ids
    """All sentences end to end."""
    offsets: Ids
    """Where each sentence starts, and the end of the last."""
    keep: NDArray[np.uint32]
    """How often each word is kept, of 2^32 − 1."""


class Tables(NamedTuple):
    """What training moves; rows of whole registers are the quickest."""

    inputs: Matrix
    """The vector of each word."""
    outputs: Matrix
    """The vector of each opponent."""


class Opponents(NamedTuple):
    """What stands against a word: the nodes of its path in a tree, or classes drawn at random."""

    path_starts: Ids
    """Word w has the nodes path[path_starts[w] : path_starts[w + 1]]."""
    path: Ids
    """The nodes of all words."""
    path_labels: NDArray[np.float32]
    """Their labels, 0 or 1."""
    alias: NDArray[np.int32]
    """The table that negatives are drawn from, as ``build_alias_table`` makes it."""
    thresholds: Matrix
    """The same bytes as float32."""


class _Room(NamedTuple):
    """Memory of one thread, for the present window and, in the slots 0 and 1, for the next."""

    x: Matrix
    """The inputs of the window as they were before it; for a bag, their mean and its move."""
    o: Matrix
    """The outputs of the window as they were before it."""
    moves: Matrix
    """What the outputs will move by."""
    steps: Matrix
    """The scores [inputs, outputs], which become steps."""
    flat_steps: NDArray[np.float32]
    ids: Ids
    """The rows of the inputs."""
    output_ids: NDArray[np.int64]
    """The rows of the outputs, for each slot."""
    labels: Matrix
    """Their labels, for each slot."""
    drawn: NDArray[np.int64]
    """For each slot: the reach, the number of outputs, how many of them are the word itself."""


class _Job(NamedTuple):
    """Which words to train on, and how."""

    start: int
    stop: int
    window: int
    rate: float
    seed: int
    negatives: int
    bag: bool


def train_words(
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
    """Train on the words start … stop − 1 of a corpus; return how many were kept.

    Each word is kept with probability keep / (2^32 − 1). For a kept word w, and each kept
    neighbour c up to ``reach`` places away, reach uniform in 1 … window: x = input(c), or with
    ``bag`` x = the mean of all; then for each opponent o with its label,
    g = rate·(label − σ(x·o)); x += Σ_o g·o (with ``bag``, every neighbour does) and o += Σ_x g·x,
    all from the values before the window. Windows end where sentences do.

    A word meets the same opponents in all of its window (Ji et al. 2016), and with ``bag`` so do
    the first and second word of a sentence, the third and fourth, and so on: a row drawn at random
    costs more to fetch than to use. A drawn negative that is the word itself is passed over; for a
    tree ``negatives`` is 0. Several threads may work on the same tables at once, without locks.
    """
    job = _Job(start, stop, window, rate, seed, negatives, bag)
    train = _train_usual if negatives == _USUAL_NEGATIVES else _train_any
    kept: int = train(corpus, tables, opponents, job)
    return kept


@njit(nogil=True, cache=True, fastmath=_REORDER, error_model="numpy")
def _train_usual(corpus: Corpus, tables: Tables, opponents: Opponents, job: _Job) -> int:
    # The number as a constant: loops over it are unrolled, a tenth quicker.
    return _train_words(corpus, tables, opponents, job, _USUAL_NEGATIVES)


@njit(nogil=True, cache=True, fastmath=_REORDER, error_model="numpy")
def _train_any(corpus: Corpus, tables: Tables, opponents: Opponents, job: _Job) -> int:
    return _train_words(corpus, tables, opponents, job, job.negatives)


@njit(inline="always")
def _train_words(
    corpus: Corpus, tables: Tables, opponents: Opponents, job: _Job, negatives: int
) -> int:
    start, stop, window, rate, seed, _, bag = job
    dimension = tables.inputs.shape[1]
    room = _allocate(opponents, window, dimension, negatives)
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
                kept, num_kept, tables, opponents, room,
                window, _f(rate), state, dimension, negatives, bag,
            )  # fmt: skip
        total += num_kept
        start = end
        sentence += 1
    return total


@njit(inline="always")
def _columns(num_outputs: int) -> int:
    """Return how many outputs there is room for: whole blocks of 6, and registers of 8."""
    return ((num_outputs + 5) // 6 * 6 + 7) // 8 * 8


@njit(nogil=True, cache=True)
def _allocate(opponents: Opponents, window: int, dimension: int, negatives: int) -> _Room:
    """Return zeroed memory for windows of this size."""
    longest = negatives + 1
    if negatives == 0:
        for word in range(len(opponents.path_starts) - 1):
            length = opponents.path_starts[word + 1] - opponents.path_starts[word]
            longest = max(longest, length)
    rows, columns = 2 * window + 3, _columns(longest)
    steps = np.zeros((rows, columns), np.float32)
    return _Room(
        np.zeros((rows, dimension), np.float32),
        np.zeros((columns, dimension), np.float32),
        np.zeros((columns, dimension), np.float32),
        steps,
        steps.reshape(rows * columns),
        np.zeros(rows, np.int64),
        np.zeros((2, columns), np.int64),
        np.zeros((2, columns), np.float32),
        np.zeros((2, 3), np.int64),
    )


@njit(inline="always")
def _take_path(
    ids: Ids,
    labels: Matrix,
    slot: int,
    word: int,
    path_starts: Ids,
    path: Ids,
    path_labels: NDArray[np.float32],
) -> int:
    """Set the nodes on a word's path against it, and return their number."""
    start = path_starts[word]
    length: int = path_starts[word + 1] - start
    for k in range(length):
        ids[slot, k], labels[slot, k] = path[start + k], path_labels[start + k]
    return length


@njit(inline="always")
def _draw_negatives(
    ids: Ids,
    slot: int,
    word: int,
    alias: NDArray[np.int32],
    thresholds: Matrix,
    negatives: int,
    state: NDArray[np.uint64],
) -> int:
    """Set a word and drawn classes against it, and return how many of these are the word."""
    ids[slot, 0] = word
    hits = 0
    for k in range(1, negatives + 1):
        bits = next_random(state)
        column = below(bits, len(alias))
        uniform = _f(np.int32(bits & _u(0xFFFFFF))) * _f(2.0**-24)
        drawn = column if uniform < thresholds[column, 0] else np.int64(alias[column, 1])
        ids[slot, k] = drawn
        hits += drawn == word
    return hits


@njit(inline="always")
def _add_labels(
    steps: Matrix,
    num_rows: int,
    output_ids: Ids,
    labels: Matrix,
    drawn: NDArray[np.int64],
    slot: int,
    rate: np.float32,
    negatives: int,
) -> None:
    """Make steps of −rate·σ(F): add rate·label, and set to 0 what only fills a block."""
    columns = _columns(negatives + 1) if negatives else steps.shape[1]
    num_outputs = negatives + 1 if negatives else drawn[slot, _NUMBER]
    if negatives:
        for j in range(num_rows):
            steps[j, 0] += rate
        if drawn[slot, _HITS]:
            for k in range(1, negatives + 1):
                if output_ids[slot, k] == output_ids[slot, 0]:
                    for j in range(num_rows):
                        steps[j, k] = 0
    else:
        for j in range(num_rows):
            for k in range(num_outputs):
                steps[j, k] += rate * labels[slot, k]
    for j in range(num_rows):
        for k in range(num_outputs, columns):
            steps[j, k] = 0
    for j in range(num_rows, num_rows + 2):
        for k in range(columns):
            steps[j, k] = 0


@njit(inline="always")
def _train_sentence(
    words: Ids,
    num_words: int,
    tables: Tables,
    opponents: Opponents,
    room: _Room,
    window: int,
    rate: np.float32,
    state: NDArray[np.uint64],
    dimension: int,
    negatives: int,
    bag: bool,
) -> None:
    # One long function of plain arrays: tuples and slices that are passed on for each word would
    # have their references counted, a third of the time.
    inputs, outputs = tables
    path_starts, path, path_labels, alias, thresholds = opponents
    x, o, moves, steps, flat_steps, ids, output_ids, labels, drawn = room
    earlier = state[0]
    for i in range(-1, num_words):
        if i + 1 < num_words:
            following, word = (i + 1) & 1, words[i + 1]
            drawn[following, _REACH] = window - below(next_random(state), window)
            if negatives:
                # Every second bag draws again what the one before it drew, from the same bits.
                again = bag and following == 1
                later = state[0]
                state[0] = earlier if again else later
                earlier = state[0]
                hits = _draw_negatives(
                    output_ids, following, word, alias, thresholds, negatives, state
                )
                state[0] = later if again else state[0]
                drawn[following, _NUMBER], drawn[following, _HITS] = negatives + 1, hits
            else:
                drawn[following, _NUMBER] = _take_path(
                    output_ids, labels, following, word, path_starts, path, path_labels
                )
            for k in range(negatives + 1 if negatives else drawn[following, _NUMBER]):
                prefetch_row(outputs, output_ids[following, k], dimension)
            prefetch_row(inputs, words[min(i + 1 + window, num_words - 1)], dimension)
        if i < 0:
            continue
        slot = i & 1
        reach = drawn[slot, _REACH]
        num_outputs = negatives + 1 if negatives else drawn[slot, _NUMBER]
        num_ids = 0
        for place in range(max(0, i - reach), min(num_words, i + reach + 1)):
            ids[num_ids] = words[place]
            num_ids += place != i
        for k in range(num_outputs):
            copy_row(o, k, outputs, output_ids[slot, k], dimension)
        num_rows = 1 if bag else num_ids
        if bag:
            fill_mean(x, inputs, ids, num_ids, dimension)
        else:
            for j in range(num_ids):
                copy_row(x, j, inputs, ids[j], dimension)
        score(x, num_rows, o, num_outputs, steps, dimension)
        push_down(flat_steps, num_rows * steps.shape[1], rate)
        _add_labels(steps, num_rows, output_ids, labels, drawn, slot, rate, negatives)
        gather_moves(moves, num_outputs, steps, x, num_rows, dimension)
        if bag:
            for d in range(dimension):
                x[1, d] = 0
            move_row(x, 1, steps, 0, o, num_outputs, dimension)
            for j in range(num_ids):
                add_row(inputs, ids[j], x, 1, dimension)
        else:
            for j in range(num_ids):
                move_row(inputs, ids[j], steps, j, o, num_outputs, dimension)
        for k in range(num_outputs):
            add_row(outputs, output_ids[slot, k], moves, k, dimension)
