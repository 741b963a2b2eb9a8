"""Skip-gram and CBOW on the CPU: threads without locks, a window or two bags at a time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from widemax.kernels.compiling import njit
from widemax.kernels.models.prefetch import prefetch_part, prefetch_row
from widemax.kernels.models.window_blocks import (
    MOST_QUERIES,
    add_to_rows,
    fetch_row,
    make_steps,
    mean_row,
    move_rows,
    score_rows,
)
from widemax.kernels.random_bits import below, next_random
from widemax.kernels.registers import LANES, peek

_f = np.float32
_u = np.uint64
# Sums may be reordered and products contracted, which vectorises the loops; and a division that
# could raise would keep them scalar.
_REORDER = {"reassoc", "contract", "nsz"}
# Slots of windows: one is trained, the rows of the next are fetched, the negatives of the one after
# it are taken from the alias table, and its columns for the fourth are fetched.
_SLOTS = 4
# Of several threads each has so many of the first outputs for itself, for so many words and to the
# end of a sentence; and no more than one of so many rows.
_OWN_ROWS, _ROWS_AN_OWN = 512, 64
_WORDS_ON_OWN = 2_000

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
    """What training moves: rows of whole registers, quickest where they are whole cache lines."""

    inputs: Matrix
    """The vector of each word."""
    outputs: Matrix
    """The vector of each opponent."""


class Opponents(NamedTuple):
    """What stands against a word: the nodes of its path in a tree, or classes drawn at random."""

    path_starts: Ids
    """Word w has the nodes path[path_starts[w] : path_starts[w + 1]]."""
    path: Ids
    """The nodes of all words, those with label 1 first."""
    path_turns: Ids
    """So many of the first nodes of word w have label 1, the others 0."""
    alias: NDArray[np.int32]
    """The table that negatives are drawn from, as ``build_alias_table`` makes it."""
    thresholds: Matrix
    """The same bytes as float32."""


class _Room(NamedTuple):
    """Memory of one thread, for the present windows and, in slots, for those that follow."""

    own: Matrix
    """A copy of the first rows of the outputs, on which this thread alone works."""
    taken: Matrix
    """What the copy was when it was taken."""

    means: Matrix
    """The means of two bags."""
    moves: Matrix
    """What they will move by; 0 between windows."""
    steps: Matrix
    """The scores [outputs, queries] in one row, which become steps."""
    neighbours: Ids
    """The words of the windows, in one row."""
    bag_rows: Ids
    """The rows of the means: 0 and 1."""
    bits: NDArray[np.uint64]
    """The random bits of the negatives, for each slot."""
    columns: Ids
    """The rows of the outputs that words and negatives have, for each slot."""
    reaches: Ids
    """How far each window reaches, for each slot."""


class _Job(NamedTuple):
    """Which words to train on, and how."""

    start: int
    stop: int
    window: int
    rate: float
    seed: int
    negatives: int
    bag: bool
    num_own: int
    share: float


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
    threads: int = 1,
) -> int:
    """Train on the words start … stop − 1 of a corpus; return how many were kept.

    Each word is kept with probability keep / (2^32 − 1). For a kept word w, and each kept
    neighbour c up to ``reach`` places away, reach uniform in 1 … window: x = input(c), or with
    ``bag`` x = the mean of all; then for each opponent o with its label,
    g = rate·(label − σ(x·o)); x += Σ_o g·o (with ``bag``, every neighbour does) and o += Σ_x g·x,
    from the values before the window, but for an opponent that was drawn twice, which moves twice.
    Of a wide window ten neighbours are taken at a time. Windows end where sentences do.

    A word meets the same opponents in all of its window (Ji et al. 2016): a row drawn at random
    costs more to fetch than to use. With ``bag`` and negatives, the first and second word of a
    sentence meet the same, the third and fourth, and so on, and move from the values before both.
    A drawn negative that is the word itself is passed over; for a tree ``negatives`` is 0.

    Several threads may work on the same tables at once, without locks. Rows that all of them write
    all the time would wander from core to core, and keep every one waiting: with ``threads`` above
    1, each works on a copy of the first rows of the outputs, which are the most frequent, and now
    and then adds to the table a share of what has changed. Nodes near the root move by the mean of
    all threads, as far as one would move them; drawn classes, which meet fewer words meanwhile, by
    up to twice as much.
    """
    for name, table in zip(Tables._fields, tables, strict=True):
        if table.shape[1] % LANES:
            raise ValueError(
                f"{name} must have rows of whole registers, a multiple of {LANES} numbers,"
                f" got {table.shape[1]:,}"
            )
    num_own = min(_OWN_ROWS, len(tables.outputs) // _ROWS_AN_OWN) if threads > 1 else 0
    share = min(1.0, 2 / threads) if negatives else 1 / threads
    job = _Job(start, stop, window, rate, seed, negatives, bag, num_own, share)
    kept: int = _train_words(corpus, tables, opponents, job)
    return kept


@njit(nogil=True, cache=True, fastmath=_REORDER, error_model="numpy")
def _train_words(corpus: Corpus, tables: Tables, opponents: Opponents, job: _Job) -> int:
    start, stop, window, rate, seed, negatives, bag, num_own, share = job
    room = _allocate(opponents, window, tables.inputs.shape[1], negatives, num_own)
    room.own[:] = tables.outputs[:num_own]
    room.taken[:] = room.own
    state = np.array([_u(seed)])
    kept = np.empty(stop - start, np.int64)
    sentence = np.searchsorted(corpus.offsets, start, side="right") - 1
    total = given = 0
    while start < stop:
        end = min(stop, corpus.offsets[sentence + 1])
        num_kept = 0
        for place in range(start, end):
            word = corpus.words[place]
            kept[num_kept] = word
            num_kept += np.uint32(next_random(state) >> _u(32)) <= corpus.keep[word]
        if num_kept > 1:
            _train_sentence(
                kept, num_kept, tables, opponents, room, window, _f(rate), state, negatives, bag
            )
        total += num_kept
        start = end
        sentence += 1
        if total - given >= _WORDS_ON_OWN or start == stop:
            _give_and_take(tables.outputs, room.own, room.taken, _f(share))
            given = total
    return total


@njit(nogil=True, cache=True, fastmath=_REORDER, error_model="numpy")
def _give_and_take(outputs: Matrix, own: Matrix, taken: Matrix, share: np.float32) -> None:
    """Add a share of what has changed in a thread's copy to the table, and copy anew."""
    for row in range(len(own)):
        for d in range(own.shape[1]):
            value = outputs[row, d] + share * (own[row, d] - taken[row, d])
            outputs[row, d] = own[row, d] = taken[row, d] = value


@njit(nogil=True, cache=True)
def _allocate(
    opponents: Opponents, window: int, dimension: int, negatives: int, num_own: int
) -> _Room:
    """Return zeroed memory for windows of this size."""
    longest = negatives + 2
    if negatives == 0:
        for word in range(len(opponents.path_starts) - 1):
            length = opponents.path_starts[word + 1] - opponents.path_starts[word]
            longest = max(longest, length)
    return _Room(
        _whole_lines(num_own, dimension),
        _whole_lines(num_own, dimension),
        np.zeros((2, dimension), np.float32),
        np.zeros((2, dimension), np.float32),
        np.zeros((1, MOST_QUERIES * longest + 16), np.float32),
        np.zeros((1, 4 * window + 2), np.int64),
        np.array([[0, 1]]),
        np.zeros((_SLOTS, max(negatives, 1)), np.uint64),
        np.zeros((_SLOTS, longest), np.int64),
        np.zeros((_SLOTS, 2), np.int64),
    )


@njit(nogil=True, cache=True)
def _whole_lines(rows: int, dimension: int) -> Matrix:
    """Return a table of anything that begins where a cache line does."""
    room = np.empty(rows * dimension + 16, np.float32)
    start = -(room.ctypes.data // 4) % 16
    return room[start : start + rows * dimension].reshape(rows, dimension)


@njit(inline="always")
def _draw_bits(
    bits: NDArray[np.uint64],
    slot: int,
    negatives: int,
    alias: NDArray[np.int32],
    state: NDArray[np.uint64],
) -> None:
    """Draw the random bits of negatives, and start to fetch what the alias table says of them."""
    for k in range(negatives):
        bits[slot, k] = next_random(state)
        prefetch_row(alias, int(below(bits[slot, k], len(alias))), 1)


# Inlined by LLVM: by Numba, references to one of its arrays would be counted for every window.
@njit(nogil=True, forceinline=True)
def _take_negatives(
    columns: Ids,
    slot: int,
    first: int,
    drawn_bits: NDArray[np.uint64],
    negatives: int,
    alias: NDArray[np.int32],
    thresholds: Matrix,
) -> None:
    """Set drawn classes against the words of a slot, from its column ``first`` on."""
    for k in range(negatives):
        bits = drawn_bits[slot, k]
        column = below(bits, len(alias))
        uniform = _f(np.int32(bits & _u(0xFFFFFF))) * _f(2.0**-24)
        # All ones where uniform < threshold, by the sign of their difference: a branch would often
        # be foretold wrongly, and wait for the table.
        own = np.int64(_f(uniform - peek(thresholds, column, 0)).view(np.int32) >> np.int32(31))
        other = np.int64(peek(alias, column, 1))
        columns[slot, first + k] = other ^ ((other ^ column) & own)


@njit(inline="always")
def _pass_over(
    steps: Matrix, num_queries: int, columns: Ids, slot: int, num_words: int, num_outputs: int
) -> None:
    """Make the steps 0 of a drawn class against the word that it is.

    With two words, each query belongs to one of them, and does not meet the other.
    """
    for w in range(num_words):
        word = columns[slot, w]
        for k in range(num_words, num_outputs):
            if columns[slot, k] == word:
                for j in range(w, num_queries, num_words):
                    steps[0, k * num_queries + j] = 0
    if num_words == 2:
        steps[0, 1] = steps[0, 2] = 0


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
    negatives: int,
    bag: bool,
) -> None:
    # One long function of plain arrays: tuples and slices that are passed on for each word would
    # have their references counted, a third of the time.
    inputs, outputs = tables
    path_starts, path, path_turns, alias, thresholds = opponents
    own_outputs, _, means, moves, steps, neighbours, bag_rows, bits, columns, reaches = room
    dimension = inputs.shape[1]
    paths = path.reshape(1, len(path))
    ids = columns if negatives else paths
    queries, rows, moved = (means, bag_rows, moves) if bag else (inputs, neighbours, inputs)
    together = 2 if bag and negatives else 1
    for block in range(-3, (num_words + together - 1) // together):
        first = block * together
        start = first + 3 * together
        if start < num_words:
            slot = (block + 3) % _SLOTS
            for w in range(min(together, num_words - start)):
                reaches[slot, w] = window - below(next_random(state), window)
            _draw_bits(bits, slot, negatives, alias, state)
        start = first + 2 * together
        if 0 <= start < num_words:
            if negatives:
                slot = (block + 2) % _SLOTS
                size = min(together, num_words - start)
                for w in range(size):
                    columns[slot, w] = words[start + w]
                _take_negatives(columns, slot, size, bits, negatives, alias, thresholds)
            else:
                length = path_starts[words[start] + 1] - path_starts[words[start]]
                prefetch_part(paths, 0, path_starts[words[start]], length)
        start = first + together
        if 0 <= start < num_words:
            slot, begin = (block + 1) % _SLOTS, 0
            num_outputs = min(together, num_words - start) + negatives
            if negatives == 0:
                slot, begin = 0, path_starts[words[start]]
                num_outputs = path_starts[words[start] + 1] - begin
            for k in range(begin, begin + num_outputs):
                fetch_row(outputs, own_outputs, peek(ids, slot, k))
            for place in range(start + window, min(start + window + together, num_words)):
                prefetch_row(inputs, words[place], dimension)
        if first < 0:
            continue
        slot, begin, num_true = block % _SLOTS, 0, 1
        size = min(together, num_words - first)
        num_outputs = size + negatives
        if negatives == 0:
            begin, num_true = path_starts[words[first]], path_turns[words[first]]
            num_outputs = path_starts[words[first] + 1] - begin
            if num_outputs == 0:
                continue
        num_neighbours, of_first = 0, 0
        for w in range(size):
            own, reach = first + w, reaches[slot, w]
            before = num_neighbours
            for place in range(max(0, own - reach), min(num_words, own + reach + 1)):
                neighbours[0, num_neighbours] = words[place]
                num_neighbours += place != own
            if bag:
                count = num_neighbours - before
                mean_row(means, w, inputs, neighbours, before, count, _f(1) / _f(count))
            of_first = num_neighbours if w == 0 else of_first
        row = slot if negatives else 0
        num_rows = size if bag else num_neighbours
        # The last of an odd number is there twice, and does not move the second time.
        neighbours[0, num_neighbours] = neighbours[0, num_neighbours - 1]
        for group in range(0, num_rows, MOST_QUERIES):
            own_queries = min(MOST_QUERIES, num_rows - group)
            num_queries = own_queries + own_queries % 2
            score_rows(
                queries, rows, group, num_queries, outputs, own_outputs, ids, row, begin,
                num_outputs, steps,
            )  # fmt: skip
            # Of two words, the first belongs to the first query, the second to the second.
            num_lifted = 4 if size == 2 else num_true * num_queries
            make_steps(steps, num_outputs * num_queries, num_lifted, rate)
            if negatives:
                _pass_over(steps, num_queries, columns, slot, size, num_outputs)
            if own_queries < num_queries:
                for k in range(1, num_outputs + 1):
                    steps[0, k * num_queries - 1] = 0
            move_rows(
                queries, rows, group, num_queries, outputs, own_outputs, ids, row, begin,
                num_outputs, steps, moved, rows,
            )  # fmt: skip
        if bag:
            add_to_rows(inputs, neighbours, 0, of_first, moves, 0)
            if size == 2:
                add_to_rows(inputs, neighbours, of_first, num_neighbours - of_first, moves, 1)
