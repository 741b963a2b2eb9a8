"""Distinct draws from the log-uniform proposal and their expected counts, in one call."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from widemax.kernels.compiling import njit
from widemax.kernels.hashing import EMPTY, empty_table, hash_shift, slot_of


@njit(cache=True, error_model="numpy")
def distinct_log_uniform(
    uniform: NDArray[np.float64], num_samples: int, num_classes: int, targets: NDArray[np.int64]
) -> tuple[NDArray[np.int64], int, NDArray[np.float64], NDArray[np.float64]]:
    """Return the first distinct ids, the tries, and the log expected counts of ids and targets.

    id = ⌊exp(u·log(V + 1)) − 1⌋ for uniform u in [0, 1), p(y) = log(1 + 1/(y + 1)) / log(V + 1);
    the count is 1 − (1 − p)^tries, or num_samples·p (at most 1) where no draw was a repeat. One
    pass over draws [T] and targets [N] instead of a dozen over each; the plain torch of
    ``LogUniformSampler`` is the reference. Fewer than ``num_samples`` ids come back if there are
    not enough distinct draws; the counts then mean nothing.

    >>> ids, tries, _, _ = distinct_log_uniform(np.array([0.0, 0.1, 0.9]), 2, 100, np.array([5]))
    >>> ids.tolist(), tries
    ([0, 62], 3)
    """
    log_total = math.log1p(num_classes)
    shift = hash_shift(2 * len(uniform))
    table = empty_table(shift)
    ids, found, tries = np.empty(num_samples, np.int64), 0, 0
    while found < num_samples and tries < len(uniform):
        # u just below 1 rounds up to exactly V; no other id can be out of range.
        drawn = int(min(math.expm1(uniform[tries] * log_total), num_classes - 1.0))
        tries += 1
        slot = slot_of(table, drawn, shift)
        if table[slot] == EMPTY:
            table[slot] = drawn
            ids[found] = drawn
            found += 1
    counts, target_counts = np.empty(found), np.empty(len(targets))
    for place in range(found):
        counts[place] = _log_count(ids[place], tries, num_samples, log_total)
    for place in range(len(targets)):
        target_counts[place] = _log_count(targets[place], tries, num_samples, log_total)
    return ids[:found], tries, counts, target_counts


@njit(cache=True, error_model="numpy")
def _log_count(y: int, tries: int, num_samples: int, log_total: float) -> float:
    prob = math.log1p(1.0 / (y + 1.0)) / log_total
    if tries == num_samples:
        return min(0.0, math.log(prob * num_samples))
    return math.log(-math.expm1(tries * math.log1p(-prob)))
