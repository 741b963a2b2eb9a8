"""Products of whole matrices by tiles, where torch's own are slow.

On AMD's, MKL leaves half of each vector register unused. All matrices are float32, of any strides.
Of ``right`` [K, N] N is a multiple of ``WIDTH``; it is read in panels, a tile wide, so that what a
tile reads lies together.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from widemax.kernels.compiling import njit, prange
from widemax.kernels.encoders.register_rows import space_for
from widemax.kernels.registers import unowned
from widemax.kernels.threads import num_blocks
from widemax.kernels.tiles import DEPTH_STEP, HEIGHT, WIDTH, multiply_tile

_f = np.float32
_ROWS = 4 * HEIGHT  # of the left factor that meet a panel while it is in the nearest cache
_DEPTH = 64  # rows of two factors that are summed over while they are there
_SMALLEST = 16 * HEIGHT  # rows that are worth a thread of their own

_multiply: Any = multiply_tile  # numba's own type counts the argument that it adds

Matrix = NDArray[np.float32]


@njit(cache=True, nogil=True)
def panels_of(right: Matrix) -> Matrix:
    """Return the columns of [K, N] in groups of a tile's width, [N / WIDTH, K, WIDTH].

    >>> panels_of(np.ones((4, 2 * WIDTH), np.float32)).shape == (2, 4, WIDTH)
    True
    """
    depth, columns = right.shape
    panels = np.empty((columns // WIDTH, depth, WIDTH), _f)
    for panel in range(len(panels)):
        for k in range(depth):
            for j in range(WIDTH):
                panels[panel, k, j] = right[k, panel * WIDTH + j]
    return panels


def product(left: Matrix, right: Matrix) -> Matrix:
    """Return left [M, K] · right [K, N]; K is a multiple of ``DEPTH_STEP``.

    >>> right = np.ones((4, WIDTH), np.float32)
    >>> product(np.ones((3, 4), np.float32), right)[2, :2].tolist()
    [4.0, 4.0]
    """
    out = torch.empty(len(left), right.shape[1]).numpy()
    blocks = num_blocks(len(left), smallest=_SMALLEST)
    if blocks == 1:
        _multiply_rows(left, panels_of(right), out, False)
    else:
        _multiply_in_blocks(blocks, left, panels_of(right), out, False)
    return out


def add_product(left: Matrix, right: Matrix, out: Matrix) -> None:
    """Add what ``product`` returns to ``out`` [M, N], whose rows need not touch.

    >>> out = np.ones((1, WIDTH), np.float32)
    >>> add_product(np.ones((1, 4), np.float32), np.ones((4, WIDTH), np.float32), out)
    >>> float(out[0, 0])
    5.0
    """
    blocks = num_blocks(len(left), smallest=_SMALLEST)
    if blocks == 1:
        _multiply_rows(left, panels_of(right), out, True)
    else:
        _multiply_in_blocks(blocks, left, panels_of(right), out, True)


@njit(cache=True, nogil=True)
def multiplied(left: Matrix, right: Matrix) -> Matrix:
    """Return what ``product`` does, to another kernel and by its thread."""
    out = space_for(len(left), right.shape[1])
    _multiply_rows(left, panels_of(right), out, False)
    return out


@njit(cache=True, nogil=True)
def _multiply_rows(left: Matrix, panels: Matrix, out: Matrix, adds: bool) -> None:
    left, panels, out = unowned(left, panels, out)
    whole = len(left) - len(left) % HEIGHT
    for first in range(0, whole, _ROWS):
        for c in range(len(panels)):
            columns = slice(c * WIDTH, (c + 1) * WIDTH)
            for r in range(first, min(first + _ROWS, whole), HEIGHT):
                _multiply(left[r : r + HEIGHT], panels[c], out[r : r + HEIGHT, columns], adds)
    if whole == len(left):
        return
    rest, tile = np.zeros((HEIGHT, left.shape[1]), _f), np.empty((HEIGHT, WIDTH), _f)
    rest[: len(left) - whole] = left[whole:]
    for c in range(len(panels)):
        _multiply(rest, panels[c], tile, False)
        columns = slice(c * WIDTH, (c + 1) * WIDTH)
        if adds:
            out[whole:, columns] += tile[: len(left) - whole]
        else:
            out[whole:, columns] = tile[: len(left) - whole]


@njit(cache=True, nogil=True, parallel=True)
def _multiply_in_blocks(
    blocks: int, left: Matrix, panels: Matrix, out: Matrix, adds: bool
) -> None:  # fmt: skip
    for block in prange(blocks):
        rows = slice(len(left) * block // blocks, len(left) * (block + 1) // blocks)
        _multiply_rows(left[rows], panels, out[rows], adds)


def product_over_rows(left: Matrix, right: Matrix) -> Matrix:
    """Return leftᵀ [M, K] · right [K, N] of left [K, M]; M is a multiple of ``HEIGHT``.

    >>> left, right = np.ones((3, HEIGHT), np.float32), np.ones((3, WIDTH), np.float32)
    >>> product_over_rows(left, right)[0, :2].tolist()
    [3.0, 3.0]
    """
    out = torch.empty(left.shape[1], right.shape[1]).numpy()
    blocks = num_blocks(left.shape[1] // HEIGHT)
    if blocks == 1 or len(left) < _SMALLEST:
        _sum_rows(0, len(out), left, right, out)
    else:
        _sum_in_blocks(blocks, left, right, out)
    return out


@njit(cache=True, nogil=True)
def summed_over_rows(left: Matrix, right: Matrix) -> Matrix:
    """Return what ``product_over_rows`` does, to another kernel and by its thread."""
    out = space_for(left.shape[1], right.shape[1])
    _sum_rows(0, len(out), left, right, out)
    return out


@njit(cache=True, nogil=True)
def _sum_rows(start: int, stop: int, left: Matrix, right: Matrix, out: Matrix) -> None:
    """Write some rows of leftᵀ · right; rows of both that are no whole step come first."""
    odd = len(left) % DEPTH_STEP
    first_left = np.zeros((DEPTH_STEP, left.shape[1]), np.float32)
    first_right = np.zeros((DEPTH_STEP, right.shape[1]), np.float32)
    first_left[:odd], first_right[:odd] = left[:odd], right[:odd]
    _add_rows(start, stop, first_left, first_right, out, False)
    for row in range(odd, len(left), _DEPTH):
        depth = slice(row, min(len(left), row + _DEPTH))
        _add_rows(start, stop, left[depth], right[depth], out, True)


@njit(cache=True, nogil=True)
def _add_rows(
    start: int, stop: int, left: Matrix, right: Matrix, out: Matrix, adds: bool
) -> None:  # fmt: skip
    left, right, out = unowned(left, right, out)
    for c in range(0, out.shape[1], WIDTH):
        columns = slice(c, c + WIDTH)
        for r in range(start, stop, HEIGHT):
            rows = slice(r, r + HEIGHT)
            _multiply(left[:, rows].T, right[:, columns], out[rows, columns], adds)


@njit(cache=True, nogil=True, parallel=True)
def _sum_in_blocks(blocks: int, left: Matrix, right: Matrix, out: Matrix) -> None:
    steps = len(out) // HEIGHT
    for block in prange(blocks):
        start, stop = steps * block // blocks * HEIGHT, steps * (block + 1) // blocks * HEIGHT
        _sum_rows(start, stop, left, right, out)
