"""Scores of some queries against some classes at a time, in memory that is used again.

A library's product does not always use all that the processor has: on one of AMD with registers of
16 numbers these tiles take less than half of the time of torch's.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from widemax.kernels.compiling import njit
from widemax.kernels.tiles import DEPTH_STEP, HEIGHT, WIDTH, multiply_tile

Matrix = NDArray[np.float32]


class Products:
    """Products of queries [B, D] with the vectors of at most so many classes at once.

    A product is the sum over D in the order of D, whichever classes it is made with: classes with
    the same vector have the same score.

    >>> products = Products(np.ones((2, 3), np.float32), 5)
    >>> products.with_classes(np.arange(3, dtype=np.float32)[None])
    array([[3.],
           [3.]], dtype=float32)
    """

    def __init__(self, queries: Matrix, most: int) -> None:
        rows, dimension = queries.shape
        self._rows, panels = rows, -(-most // WIDTH)
        # Whole tiles: what is beyond the queries is computed and not shown.
        self._queries = np.zeros((_whole(rows, HEIGHT), _whole(dimension, DEPTH_STEP)), np.float32)
        self._queries[:rows, :dimension] = queries
        self._panels = np.zeros((panels, self._queries.shape[1], WIDTH), np.float32)
        self._room = np.empty(len(self._queries) * panels * WIDTH, np.float32)

    def with_classes(self, vectors: Matrix) -> Matrix:
        """Return the scores [B, C] of classes with vectors [C, D], until the next are asked for."""
        classes = len(vectors)
        shape = len(self._queries), _whole(classes, WIDTH)
        scores = self._room[: shape[0] * shape[1]].reshape(shape)
        _multiply_all(self._queries, np.ascontiguousarray(vectors), self._panels, scores)
        return np.ascontiguousarray(scores[: self._rows, :classes])


def _whole(size: int, step: int) -> int:
    return -(-size // step) * step


@njit(cache=True, nogil=True)
def _multiply_all(queries: Matrix, vectors: Matrix, panels: Matrix, scores: Matrix) -> None:
    for panel in range(scores.shape[1] // WIDTH):
        start = panel * WIDTH
        # Neighbours are what a register holds; of the last panel the others are left as they were.
        for place in range(min(WIDTH, len(vectors) - start)):
            for d in range(vectors.shape[1]):
                panels[panel, d, place] = vectors[start + place, d]
        for row in range(0, len(queries), HEIGHT):
            multiply_tile(  # type: ignore[call-arg]
                queries[row : row + HEIGHT],
                panels[panel],
                scores[row : row + HEIGHT, start : start + WIDTH],
                False,
            )
