"""An interpolated n-gram model: probabilities of classes after contexts, draws, adaptation.

The key of an n-gram is the number of its context times V plus its last class, so that the n-grams
of one context lie side by side in the sorted keys of their order. A class is sought within them
only, and mostly they are few. A row of ``starts`` and ``stops`` [R, K] has the slices of one
context, one for each order, empty where the context was never seen; ``shares`` [R, K + 1] are the
weights of the uniform distribution and of the orders.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from widemax.kernels.compiling import njit

Ids = NDArray[np.int64]
Numbers = NDArray[np.float64]


class Slices(NamedTuple):
    """The n-grams of all orders, and where those of some contexts lie."""

    keys: Ids
    """Of all n-grams, order by order, [G]."""
    probabilities: Numbers
    """Of the last class after the others, [G]."""
    contexts: Ids
    """The number of each row's context in each order, [R, K]."""
    starts: Ids
    """The first n-gram of each context and order, [R, K]."""
    stops: Ids
    """The first one after them, [R, K]."""
    num_classes: int


@njit(inline="always")
def _place(slices: Slices, row: int, order: int, wanted: int) -> int:
    """Return where a class lies in the slice of a row and order, −1 if it is not there."""
    start, size = slices.starts[row, order], slices.stops[row, order] - slices.starts[row, order]
    if size == slices.num_classes:
        return int(start) + wanted
    if size == 0:
        return -1
    key = slices.contexts[row, order] * slices.num_classes + wanted
    # Without a branch in the loop: which half it is cannot be foreseen.
    while size > 1:
        half = size >> 1
        start += half * (slices.keys[start + half - 1] < key)
        size -= half
    return int(start) if slices.keys[start] == key else -1


@njit(cache=True)
def interpolated(slices: Slices, shares: Numbers, ids: Ids) -> Numbers:
    """Return Σ_k share_k · p_k(y | context) of classes [R, S], the uniform component included.

    >>> context = np.array([[0, 0]]), np.array([[0, 2]]), np.array([[2, 3]])
    >>> slices = Slices(np.array([0, 1, 1]), np.array([0.25, 0.75, 1.0]), *context, 2)
    >>> interpolated(slices, np.array([[0.5, 0.25, 0.25]]), np.array([[0, 1]])).tolist()
    [[0.3125, 0.6875]]
    """
    rows, size = ids.shape
    orders = slices.starts.shape[1]
    found = np.empty((rows, size), np.float64)
    for row in range(rows):
        for column in range(size):
            total = shares[row, 0] / slices.num_classes
            for order in range(orders):
                place = _place(slices, row, order, ids[row, column])
                if place >= 0:
                    total += shares[row, order + 1] * slices.probabilities[place]
            found[row, column] = total
    return found


@njit(cache=True)
def responsibilities(slices: Slices, shares: Numbers, ids: Ids, weights: Numbers) -> Numbers:
    """Return which part of weighted classes [R, S] each component accounts for, [R, K + 1].

    Of a class y the component k accounts for share_k · p_k(y) / Σ_j share_j · p_j(y).
    """
    rows, size = ids.shape
    orders = slices.starts.shape[1]
    expected = np.zeros((rows, orders + 1), np.float64)
    parts = np.empty(orders + 1, np.float64)
    for row in range(rows):
        for column in range(size):
            parts[0] = shares[row, 0] / slices.num_classes
            total = parts[0]
            for order in range(orders):
                place = _place(slices, row, order, ids[row, column])
                own = shares[row, order + 1] * slices.probabilities[place] if place >= 0 else 0.0
                parts[order + 1] = own
                total += own
            for component in range(orders + 1):
                expected[row, component] += weights[row, column] * parts[component] / total
    return expected


@njit(cache=True)
def grow_sums(probabilities: Numbers, starts: Ids, stops: Ids) -> Numbers:
    """Return a tree of partial sums of each slice (Fenwick 1994), to draw by and to change.

    Entry i of a slice, counted from 1, is the sum of the last ``i & −i`` entries up to it.

    >>> grow_sums(np.array([0.5, 0.25, 0.25]), np.array([0]), np.array([3])).tolist()
    [0.5, 0.75, 0.25]
    """
    sums = probabilities.copy()
    for index in range(len(starts)):
        start, size = starts[index], stops[index] - starts[index]
        for place in range(1, size + 1):
            above = place + (place & -place)
            if above <= size:
                sums[start + above - 1] += sums[start + place - 1]
    return sums


@njit(inline="always")
def _draw(sums: Numbers, start: int, stop: int, uniform: float) -> int:
    """Return a place of a slice drawn by its probabilities, from a number in [0, 1)."""
    size = stop - start
    step = 1
    while step * 2 <= size:
        step *= 2
    total = 0.0
    place = size
    while place > 0:
        total += sums[start + place - 1]
        place -= place & -place
    left = uniform * total
    while step > 0:
        if place + step <= size and sums[start + place + step - 1] <= left:
            place += step
            left -= sums[start + place - 1]
        step //= 2
    return start + min(place, size - 1)


@njit(cache=True)
def draw_classes(slices: Slices, sums: Numbers, shares: Numbers, uniform: Numbers) -> Ids:
    """Return a class for each pair of uniform numbers [2, R, S], by component and then by n-gram.

    The longest order takes the smallest numbers: the uniform component is last, whatever rounding
    does.
    """
    keys, _, contexts, starts, stops, num_classes = slices
    _, rows, size = uniform.shape
    ids = np.empty((rows, size), np.int64)
    for row in range(rows):
        for column in range(size):
            left = uniform[0, row, column]
            order = starts.shape[1]
            while order > 0 and left >= shares[row, order]:
                left -= shares[row, order]
                order -= 1
            if order == 0:
                drawn = int(uniform[1, row, column] * num_classes)
                ids[row, column] = min(drawn, num_classes - 1)
            else:
                start, stop = starts[row, order - 1], stops[row, order - 1]
                place = _draw(sums, start, stop, uniform[1, row, column])
                ids[row, column] = keys[place] - contexts[row, order - 1] * num_classes
    return ids


@njit(cache=True)
def move_mass(slices: Slices, sums: Numbers, ids: Ids, ratios: Numbers, rates: Numbers) -> None:
    """Move the probabilities of drawn n-grams towards those of a model, a row at a time.

    In each slice, the different classes that were drawn, ids [R, S], keep together the mass M they
    have; within it, p(y) ← (1 − rate) · p(y) + rate · M · r(y)·p(y) / Σ r·p, with ``ratios`` r
    [R, S] of what the model says of a class to what was drawn by. ``rates`` [R, K] are those of
    each slice; ``sums`` follow.
    """
    orders = slices.starts.shape[1]
    size = ids.shape[1]
    places = np.empty(size, np.int64)
    wanted = np.empty(size, np.float64)
    for row in range(len(ids)):
        ordered = np.argsort(ids[row])
        for order in range(orders):
            if slices.stops[row, order] - slices.starts[row, order] < 2:
                continue
            found = 0
            for index in range(size):
                column = ordered[index]
                # A class that was drawn several times is one.
                if index and ids[row, column] == ids[row, ordered[index - 1]]:
                    continue
                place = _place(slices, row, order, ids[row, column])
                if place >= 0:
                    places[found] = place
                    wanted[found] = ratios[row, column] * slices.probabilities[place]
                    found += 1
            _move_slice(
                slices.probabilities, sums, slices.starts[row, order], slices.stops[row, order],
                places[:found], wanted[:found], rates[row, order],
            )  # fmt: skip


@njit(inline="always")
def _move_slice(
    probabilities: Numbers,
    sums: Numbers,
    start: int,
    stop: int,
    places: Ids,
    wanted: Numbers,
    rate: float,
) -> None:
    mass, total = 0.0, 0.0
    for index in range(len(places)):
        mass += probabilities[places[index]]
        total += wanted[index]
    # One class alone keeps what it has.
    if len(places) < 2 or not 0.0 < total < np.inf:
        return
    for index in range(len(places)):
        change = rate * (mass * wanted[index] / total - probabilities[places[index]])
        probabilities[places[index]] += change
        at = places[index] - start + 1
        while at <= stop - start:
            sums[start + at - 1] += change
            at += at & -at
