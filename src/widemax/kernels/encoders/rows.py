"""What kernels of encoders do with one or two rows."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from widemax.kernels.compiling import njit

# Sums may be reordered and products contracted, which vectorises the loops.
_REORDER = {"reassoc", "contract", "nsz"}

Matrix = NDArray[np.float32]
Vector = NDArray[np.float32]
Ids = NDArray[np.int64]


@njit(cache=True, nogil=True, fastmath=_REORDER)
def dot(x: Vector, y: Vector) -> np.float32:
    """Return x · y."""
    total = np.float32(0)
    for j in range(len(x)):
        total += x[j] * y[j]
    return total


@njit(cache=True, nogil=True, fastmath=_REORDER)
def add_to(total: Vector, weight: np.float32, row: Vector) -> None:
    """Add weight · row to a total."""
    for j in range(len(total)):
        total[j] += weight * row[j]


@njit(cache=True, nogil=True)
def softmax(logits: Vector, shares: Vector) -> None:
    """Write the softmax of at least one logit, which may be the same memory."""
    top = logits.max()
    total = np.float32(0)
    for k in range(len(logits)):
        shares[k] = math.exp(logits[k] - top)
        total += shares[k]
    for k in range(len(logits)):
        shares[k] /= total
