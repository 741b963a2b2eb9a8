"""Alias tables: one column per class, so that a draw costs one look-up whatever the weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from widemax.kernels.compiling import is_loaded, njit, plain

_FEW = 2**16
"""Classes for which Python takes less time than Numba to load."""


def scaled_weights(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weights scaled to mean 1, so that each column of a table holds a mass of 1."""
    scaled: NDArray[np.float64] = weights * (len(weights) / weights.sum())
    return scaled


def build_alias_table(scaled: NDArray[np.float64]) -> NDArray[np.int32]:
    """Return the packed table [V, 2] of weights [V] with mean 1: threshold bits, alias.

    Class y is drawn with probability (threshold[y] + Σ over columns j with alias y of (1 −
    threshold[j])) / V. Column 0 holds the bits of a float32, so that one draw reads 8 adjacent
    bytes. Built in two forward sweeps without a stack (Vose 1991; Hübschle-Schneider & Sanders
    2022).

    >>> table = build_alias_table(scaled_weights(np.array([1.0, 0.0, 3.0])))
    >>> table_probability(table).round(6).tolist()
    [0.25, 0.0, 0.75]
    """
    table = np.empty((len(scaled), 2), dtype=np.int32)
    threshold, alias, heaviest = table.view(np.float32)[:, 0], table[:, 1], int(scaled.argmax())
    if len(scaled) <= _FEW and not is_loaded():
        # A run that only answers has samplers too: their tables are not worth to wait for Numba.
        plain(_sweep)(scaled.tolist(), threshold, alias, heaviest)
    else:
        _sweep(scaled, threshold, alias, heaviest)
    return table


@njit(cache=True)
def _sweep(
    scaled: Sequence[float] | NDArray[np.float64],
    threshold: NDArray[np.float32],
    alias: NDArray[np.int32],
    heaviest: int,
) -> None:
    # A heavy class (mass >= 1) fills the columns of light ones until less than one column of its
    # own is left; the next heavy class fills that one up. Every alias is therefore heavy, and the
    # mass that rounding leaves over never reaches a class of weight 0.
    size = len(scaled)
    light = heavy = 0
    while light < size and scaled[light] >= 1.0:
        light += 1
    while heavy < size and scaled[heavy] < 1.0:
        heavy += 1
    last = heaviest
    residual = scaled[heavy] if heavy < size else 0.0
    while heavy < size:
        while residual > 1.0 and light < size:
            threshold[light] = scaled[light]
            alias[light] = heavy
            residual -= 1.0 - scaled[light]
            light += 1
            while light < size and scaled[light] >= 1.0:
                light += 1
        own = min(residual, 1.0)
        last = heavy
        heavy += 1
        while heavy < size and scaled[heavy] < 1.0:
            heavy += 1
        threshold[last] = own
        alias[last] = last
        if heavy < size:
            alias[last] = heavy
            residual = scaled[heavy] - (1.0 - own)
    while light < size:
        threshold[light] = scaled[light]
        alias[light] = last
        light += 1
        while light < size and scaled[light] >= 1.0:
            light += 1


@njit(cache=True)
def look_up(
    threshold: NDArray[np.float32],
    alias: NDArray[np.int32],
    column: NDArray[np.int64],
    uniform: NDArray[np.float64],
) -> NDArray[np.int64]:
    """Return the class drawn for each column and uniform number: the column's own, or its alias.

    ``threshold`` and ``alias`` [V] are views of the packed table (Walker 1977).

    >>> table = build_alias_table(np.array([0.5, 0.0, 2.5]))
    >>> column, uniform = np.array([0, 0, 1]), np.array([0.4, 0.6, 0.0])
    >>> look_up(table.view(np.float32)[:, 0], table[:, 1], column, uniform).tolist()
    [0, 2, 2]
    """
    ids = np.empty(len(column), np.int64)
    for i in range(len(column)):
        own = column[i]
        ids[i] = own if uniform[i] < threshold[own] else alias[own]
    return ids


def build_alias_table_reference(scaled: NDArray[np.float64]) -> NDArray[np.int32]:
    """Return a table of the same probabilities by Vose's two stacks, in plain Python."""
    left = scaled.tolist()
    threshold = np.ones(len(left), dtype=np.float32)
    alias = np.arange(len(left), dtype=np.int32)
    small = [y for y, mass in enumerate(left) if mass < 1.0]
    large = [y for y, mass in enumerate(left) if mass >= 1.0]
    while small and large:
        lower, upper = small.pop(), large.pop()
        threshold[lower], alias[lower] = left[lower], upper
        left[upper] = (left[upper] + left[lower]) - 1.0
        (small if left[upper] < 1.0 else large).append(upper)
    return np.stack([threshold.view(np.int32), alias], axis=1)


def table_probability(table: NDArray[np.int32]) -> NDArray[np.float64]:
    """Return the probability [V] with which each class is drawn from a packed table."""
    threshold = table.view(np.float32)[:, 0].astype(np.float64)
    given_away = np.bincount(table[:, 1], weights=1.0 - threshold, minlength=len(table))
    return (threshold + given_away) / len(table)
