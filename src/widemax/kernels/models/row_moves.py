"""What the rows of a table moved since it was copied, packed for the way to other processes.

A move is sent as whole numbers of 16 bits and the value of one of them: a half of the bytes of
float32, and an error of at most 2⁻¹⁶ of the largest number of its row.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from widemax.kernels.compiling import njit

# Division as in NumPy: what is not finite must stay so, not end the process.
_kernel = njit(cache=True, nogil=True, error_model="numpy")
_LARGEST = np.float32(32767.0)
_WITHOUT_SIGN = np.int32(0x7FFFFFFF)

Rows = NDArray[np.float32]


@_kernel
def pack_moves(
    table: Rows, before: Rows, row: NDArray[np.float32], bits: NDArray[np.int32],
    ids: NDArray[np.int64], units: NDArray[np.float32], numbers: NDArray[np.int16],
) -> int:  # fmt: skip
    """Write which rows moved, the unit of each and how many units its values did; return how many.

    ``table`` and ``before`` [V, D]; ``row`` and ``bits`` [D] are a buffer, the same memory read as
    numbers and as bits; ``ids`` and ``units`` [V], ``numbers`` [V, D]. What is not a finite number
    has a unit that is none either.

    >>> before, row = np.zeros((3, 2), np.float32), np.empty(2, np.float32)
    >>> table = np.array([[0, 0], [1, -0.5], [0, 0]], np.float32)
    >>> ids, units = np.empty(3, np.int64), np.empty(3, np.float32)
    >>> numbers = np.empty((3, 2), np.int16)
    >>> pack_moves(table, before, row, row.view(np.int32), ids, units, numbers)
    1
    >>> ids[0].item(), numbers[0].tolist()
    (1, [32767, -16384])
    """
    moved = 0
    for y in range(len(table)):
        for j in range(len(row)):
            row[j] = table[y, j] - before[y, j]
        largest = np.int32(0)
        # As bits: of numbers without a sign the larger one has the larger bits, and the compiler
        # need not mind what is not a number.
        for j in range(len(row)):
            largest = np.int32(max(largest, np.int32(bits[j] & _WITHOUT_SIGN)))
        if largest == 0:
            continue
        most = np.int32(largest).view(np.float32)
        ids[moved], units[moved] = y, most / _LARGEST
        steps = _LARGEST / most
        for j in range(len(row)):
            numbers[moved, j] = np.int16(np.rint(row[j] * steps))
        moved += 1
    return moved


@_kernel
def add_moves(
    table: Rows, ids: NDArray[np.int64], units: NDArray[np.float32], numbers: NDArray[np.int16],
    weights: NDArray[np.float32],
) -> None:  # fmt: skip
    """Add packed moves [N], [N], [N, D] to the rows of a table, times the weight [V] of each row.

    >>> table, weights = np.zeros((2, 2), np.float32), np.array([1, 0.5], np.float32)
    >>> add_moves(table, np.array([1]), np.array([0.25], np.float32),
    ...           np.array([[4, -8]], np.int16), weights)
    >>> table.tolist()
    [[0.0, 0.0], [0.5, -1.0]]
    """
    for i in range(len(ids)):
        y = ids[i]
        unit = units[i] * weights[y]
        for j in range(table.shape[1]):
            table[y, j] += unit * np.float32(numbers[i, j])
