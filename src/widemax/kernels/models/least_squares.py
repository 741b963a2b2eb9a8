"""Many small weighted least-squares problems that share most of their matrix."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from widemax.kernels.compiling import njit, prange
from widemax.kernels.threads import num_blocks

# Sums may be reordered and products contracted, which vectorises the loops.
_REORDER = {"reassoc", "contract", "nsz"}
# Members that are worth a thread of their own: a step over them takes some 50 µs.
_MEMBERS_A_THREAD = 4096

Floats = NDArray[np.floating]
Ids = NDArray[np.int64]


def solve_rows(
    offsets: Ids,
    members: Ids,
    weights: Floats,
    vectors: Floats,
    diagonal: Floats,
    penalties: Floats,
    solved: Floats,
    tolerance: float,
) -> None:
    """Solve (diagonal + penalty_u + Σ_i w_i·v_i·v_iᵀ)·x_u = Σ_i (1 + w_i)·v_i for every row u.

    The members i of row u and their weights lie from offsets[u] to offsets[u + 1]; ``solved``
    [rows, D] holds first guesses, and then the solutions. Conjugate gradients, preconditioned by
    diagonal + penalty, until the residual has shrunk to ``tolerance`` times the right side, in the
    norm of the preconditioner's inverse. If Σ v·vᵀ over all vectors is the diagonal, and no member
    is repeated in a row, the matrix is between 1 and 1 + max w times its preconditioner, whatever
    the vectors are: steps are few. A step takes O(D) a member.

    >>> x, one = np.zeros((1, 1)), np.ones(1)
    >>> solve_rows(np.array([0, 1]), np.array([0]), 4 * one, np.ones((1, 1)), one, one, x, 1e-9)
    >>> round(float(x[0, 0]), 6)  # (1 + 4) / (1 + 1 + 4)
    0.833333
    """
    goal = diagonal.dtype.type(tolerance * tolerance)
    given = (offsets, members, weights, vectors, diagonal, penalties, solved, goal)
    threads = num_blocks(len(members), smallest=_MEMBERS_A_THREAD)
    if threads == 1:
        _solve_some(0, len(offsets) - 1, *given)
    else:
        _solve_in_blocks(threads, *given)


@njit(cache=True, nogil=True, parallel=True)
def _solve_in_blocks(
    threads: int,
    offsets: Ids,
    members: Ids,
    weights: Floats,
    vectors: Floats,
    diagonal: Floats,
    penalties: Floats,
    solved: Floats,
    goal: np.floating,
) -> None:
    # Cut by members, not by rows: some have thousands.
    cuts = np.searchsorted(offsets, len(members) * np.arange(threads + 1) // threads)
    cuts[threads] = len(offsets) - 1
    for part in prange(threads):
        start, stop = cuts[part], cuts[part + 1]
        _solve_some(
            start, stop, offsets, members, weights, vectors, diagonal, penalties, solved, goal
        )


@njit(cache=True, nogil=True, fastmath=_REORDER)
def _solve_some(
    start: int,
    stop: int,
    offsets: Ids,
    members: Ids,
    weights: Floats,
    vectors: Floats,
    diagonal: Floats,
    penalties: Floats,
    solved: Floats,
    goal: np.floating,
) -> None:
    size, zero = vectors.shape[1], diagonal.dtype.type(0)
    longest = 0
    for row in range(start, stop):
        longest = max(longest, offsets[row + 1] - offsets[row])
    # Own memory for all of a row: what might overlap with the tables could not be vectorised.
    held, strength = np.empty((longest, size), vectors.dtype), np.empty(longest, vectors.dtype)
    scale, inverse = np.empty(size, vectors.dtype), np.empty(size, vectors.dtype)
    x, step = np.empty(size, vectors.dtype), np.empty(size, vectors.dtype)
    left, image = np.empty(size, vectors.dtype), np.empty(size, vectors.dtype)
    for row in range(start, stop):
        if offsets[row] == offsets[row + 1]:
            solved[row] = 0
            continue
        count = _gather(offsets[row], offsets[row + 1], members, weights, vectors, held, strength)
        for j in range(size):
            scale[j] = diagonal[j] + penalties[row]
            inverse[j] = 1 / scale[j]
            x[j] = solved[row, j]
        _sum_up(held, strength, count, left)
        enough = zero
        for j in range(size):
            enough += goal * left[j] * inverse[j] * left[j]
        _multiply(held, strength, count, scale, x, image)
        rest = zero
        for j in range(size):
            left[j] -= image[j]
            step[j] = inverse[j] * left[j]
            rest += left[j] * step[j]
        for _ in range(2 * size + 8):  # in exact arithmetic, size steps would do
            if rest <= enough:
                break
            _multiply(held, strength, count, scale, step, image)
            curvature = zero
            for j in range(size):
                curvature += step[j] * image[j]
            length, before = rest / curvature, rest
            rest = zero
            for j in range(size):
                x[j] += length * step[j]
                left[j] -= length * image[j]
                rest += left[j] * inverse[j] * left[j]
            turn = rest / before
            for j in range(size):
                step[j] = inverse[j] * left[j] + turn * step[j]
        for j in range(size):
            solved[row, j] = x[j]


@njit(cache=True, nogil=True)
def _gather(
    start: int,
    stop: int,
    members: Ids,
    weights: Floats,
    vectors: Floats,
    held: Floats,
    strength: Floats,
) -> int:
    """Copy the vectors and weights of a row, and return how many there are."""
    for n in range(stop - start):
        member = members[start + n]
        strength[n] = weights[start + n]
        for j in range(vectors.shape[1]):
            held[n, j] = vectors[member, j]
    return stop - start


@njit(cache=True, nogil=True, fastmath=_REORDER)
def _sum_up(held: Floats, strength: Floats, count: int, total: Floats) -> None:
    """Write Σ_n (1 + w_n)·v_n."""
    total[:] = 0
    for n in range(count):
        factor = 1 + strength[n]
        for j in range(len(total)):
            total[j] += factor * held[n, j]


@njit(cache=True, nogil=True, fastmath=_REORDER)
def _multiply(
    held: Floats, strength: Floats, count: int, scale: Floats, x: Floats, image: Floats
) -> None:
    """Write scale·x + Σ_n w_n·(v_n·x)·v_n, four members at a time: x and image are read once."""
    size, zero = len(x), x.dtype.type(0)
    for j in range(size):
        image[j] = scale[j] * x[j]
    whole = count - count % 4
    for n in range(0, whole, 4):
        a, b, c, d = zero, zero, zero, zero
        for j in range(size):
            a += held[n, j] * x[j]
            b += held[n + 1, j] * x[j]
            c += held[n + 2, j] * x[j]
            d += held[n + 3, j] * x[j]
        a *= strength[n]
        b *= strength[n + 1]
        c *= strength[n + 2]
        d *= strength[n + 3]
        for j in range(size):
            first = a * held[n, j] + b * held[n + 1, j]
            image[j] += first + (c * held[n + 2, j] + d * held[n + 3, j])
    for n in range(whole, count):
        a = zero
        for j in range(size):
            a += held[n, j] * x[j]
        a *= strength[n]
        for j in range(size):
            image[j] += a * held[n, j]
