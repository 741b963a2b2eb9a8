"""The three products of a softmax over shared candidates, by tiles that stay in the cache.

For queries X [B, D], candidates' vectors Y [S, D] and powers P = exp(X·Yᵀ − …) [B, S]: a few rows
of P are multiplied out, raised, and multiplied with Y before the next few begin. Pᵀ·X follows in
the backward pass, which knows the weights of the rows. The plain reference is
``widemax.objectives.factored_softmax`` with torch's own products.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from widemax.kernels.compiling import njit, prange
from widemax.kernels.objectives.log_sum import count_extent, sum_rows
from widemax.kernels.threads import num_blocks
from widemax.kernels.tiles import HEIGHT, WIDTH, multiply_tile

_ROWS = 2 * HEIGHT  # of the powers that are finished together: they stay in the nearest caches
_DEPTH = 256  # candidates summed over at a time: their vectors stay there too
_BATCH_DEPTH, _CANDIDATES = 64, 256  # the same for the sum over the batch
_OFFSET = 16  # a row is no power of two bytes long: all rows would share few places of a cache

_multiply: Any = multiply_tile  # numba's own type counts the argument that it adds

Matrix = NDArray[np.float32]
Vector = NDArray[np.float32]


class RowSums(NamedTuple):
    """The powers of a batch and what ``widemax.kernels.objectives.log_sum`` says of their rows."""

    powers: Matrix
    """[B, S], padded with zeros to whole tiles, and with unused numbers to a good stride."""
    pulled: Matrix
    """P·Y, [B, D], padded to whole tiles; [0, D] if not wanted."""
    top: Vector
    log_sum: Vector
    scale: Vector


def tiles_fit(rows: int, width: int, dimension: int) -> bool:
    """Return whether products of [rows, D] and [width, D] are nearly all whole tiles.

    >>> tiles_fit(1024, 1024, 128), tiles_fit(1024, 1024, 100), tiles_fit(1, 5, 128)
    (True, False, False)
    """
    padded = _whole(rows, HEIGHT) * _whole(width, WIDTH)
    return rows * width > 0 and dimension % WIDTH == 0 and 10 * padded <= 11 * rows * width


def raise_by_tiles(
    queries: Matrix,
    vectors: Matrix,
    biases: Vector,
    log_count: Matrix,
    removed: NDArray[np.bool_],
    sharpness: float,
    *,
    pulls: bool,
) -> RowSums:
    """Return what ``row_log_sums`` does of the scores queries·vectorsᵀ + biases, and P·Y.

    ``biases`` are [S], or [0] for none; P·Y is left out unless ``pulls``. ``tiles_fit`` must hold.

    >>> x, y = np.eye(HEIGHT, WIDTH, dtype=np.float32), np.ones((WIDTH, WIDTH), np.float32)
    >>> nothing = np.zeros((1, WIDTH), np.float32)
    >>> sums = raise_by_tiles(x, y, nothing[0, :0], nothing, nothing > 0, 1.0, pulls=True)
    >>> bool(sums.top[0] == 1), bool(sums.pulled[0, 0] == WIDTH)
    (True, True)
    """
    rows, (width, dimension) = len(queries), vectors.shape
    padded = _whole(rows, HEIGHT)
    if padded > rows:
        queries = np.concatenate([queries, np.zeros((padded - rows, dimension), np.float32)])
    if width % WIDTH:
        zeros = np.zeros((_whole(width, WIDTH) - width, dimension), np.float32)
        vectors = np.concatenate([vectors, zeros])
    sums = RowSums(
        np.empty((padded, len(vectors) + _OFFSET), np.float32),
        np.empty((padded if pulls else 0, dimension), np.float32),
        *(np.empty(rows, np.float32) for _ in range(3)),
    )
    panels = np.empty((len(vectors) // WIDTH, dimension, WIDTH), np.float32)
    counts = (log_count, count_extent(log_count), removed)
    batch = (queries, vectors, biases, *counts, np.float32(sharpness), *sums)
    blocks = num_blocks(padded // _ROWS)
    if blocks == 1:
        _fill_panels(0, len(panels), vectors, panels)
        _raise_rows(0, padded, panels, *batch)
    else:
        _raise_in_blocks(blocks, padded, panels, *batch)
    return sums


def sum_over_batch(powers: Matrix, queries: Matrix, out: Matrix) -> None:
    """Write powersᵀ·queries to ``out`` [S, D], both padded to whole tiles; pads are zeros.

    >>> powers, queries = np.ones((HEIGHT, WIDTH), np.float32), np.ones((HEIGHT, WIDTH), np.float32)
    >>> out = np.empty((WIDTH, WIDTH), np.float32)
    >>> sum_over_batch(powers, queries, out)
    >>> bool((out == HEIGHT).all())
    True
    """
    blocks = num_blocks(len(out) // HEIGHT)
    if blocks == 1:
        _sum_candidates(0, len(out), powers, queries, out)
    else:
        _sum_in_blocks(blocks, powers, queries, out)


def padded_size(rows: int) -> int:
    """Return how many rows whole tiles have for so many rows of a batch or of candidates."""
    return _whole(rows, HEIGHT)


def _whole(size: int, step: int) -> int:
    return -(-size // step) * step


@njit(cache=True, nogil=True)
def _fill_panels(start: int, stop: int, vectors: Matrix, panels: Matrix) -> None:
    """Write the vectors as [S / WIDTH, D, WIDTH]: neighbours are what a register holds."""
    for panel in range(start, stop):
        for place in range(WIDTH):
            for j in range(vectors.shape[1]):
                panels[panel, j, place] = vectors[panel * WIDTH + place, j]


@njit(cache=True, nogil=True)
def _raise_rows(
    start: int, stop: int, panels: Matrix, queries: Matrix, vectors: Matrix, biases: Vector,
    log_count: Matrix, extent: Matrix, removed: NDArray[np.bool_], sharpness: np.float32,
    powers: Matrix, pulled: Matrix, top: Vector, log_sum: Vector, scale: Vector,
) -> None:  # fmt: skip
    """Finish rows of the powers, a few at a time."""
    width = log_count.shape[1]
    for first in range(start, stop, _ROWS):
        last = min(stop, first + _ROWS)
        for panel in range(len(panels)):
            columns = slice(panel * WIDTH, panel * WIDTH + WIDTH)
            for row in range(first, last, HEIGHT):
                tile = powers[row : row + HEIGHT, columns]
                _multiply(queries[row : row + HEIGHT], panels[panel], tile, False)
        for row in range(first, last):
            powers[row, width : len(vectors)] = 0.0
            for s in range(len(biases)):
                powers[row, s] += biases[s]
        present = min(last, len(top))
        sum_rows(first, present, powers, log_count, extent, removed, sharpness, top, log_sum, scale)
        if len(pulled):
            _pull_rows(first, last, vectors, powers, pulled)


@njit(cache=True, nogil=True)
def _pull_rows(start: int, stop: int, vectors: Matrix, powers: Matrix, pulled: Matrix) -> None:
    width, dimension = vectors.shape
    for first in range(0, width, _DEPTH):
        depth = slice(first, min(width, first + _DEPTH))
        for j in range(0, dimension, WIDTH):
            columns = slice(j, j + WIDTH)
            for row in range(start, stop, HEIGHT):
                rows = slice(row, row + HEIGHT)
                _multiply(
                    powers[rows, depth], vectors[depth, columns], pulled[rows, columns], first > 0
                )


@njit(cache=True, nogil=True, parallel=True)
def _raise_in_blocks(
    blocks: int, rows: int, panels: Matrix, queries: Matrix, vectors: Matrix, *batch: Any
) -> None:
    for block in prange(blocks):
        start, stop = len(panels) * block // blocks, len(panels) * (block + 1) // blocks
        _fill_panels(start, stop, vectors, panels)
    steps = rows // HEIGHT
    for block in prange(blocks):
        start, stop = steps * block // blocks * HEIGHT, steps * (block + 1) // blocks * HEIGHT
        _raise_rows(start, stop, panels, queries, vectors, *batch)


@njit(cache=True, nogil=True)
def _sum_candidates(start: int, stop: int, powers: Matrix, queries: Matrix, out: Matrix) -> None:
    rows, dimension = queries.shape
    for first in range(start, stop, _CANDIDATES):
        last = min(stop, first + _CANDIDATES)
        for row in range(0, rows, _BATCH_DEPTH):
            depth = slice(row, min(rows, row + _BATCH_DEPTH))
            for j in range(0, dimension, WIDTH):
                columns = slice(j, j + WIDTH)
                for s in range(first, last, HEIGHT):
                    tile = slice(s, s + HEIGHT)
                    left = powers[depth, tile].T
                    _multiply(left, queries[depth, columns], out[tile, columns], row > 0)


@njit(cache=True, nogil=True, parallel=True)
def _sum_in_blocks(blocks: int, powers: Matrix, queries: Matrix, out: Matrix) -> None:
    steps = len(out) // HEIGHT
    for block in prange(blocks):
        start, stop = steps * block // blocks * HEIGHT, steps * (block + 1) // blocks * HEIGHT
        _sum_candidates(start, stop, powers, queries, out)
