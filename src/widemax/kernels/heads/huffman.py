"""Huffman's code: the binary tree with the shortest average path for given counts."""

from __future__ import annotations

import heapq
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from widemax.kernels.compiling import njit


def huffman_children(counts: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the children [V − 1, 2] of each merged node, in the order of merging, the root last.

    An entry y < V is class y, V + i is merge i. The two lightest nodes are merged until one is left
    (Huffman 1952). Of equally light ones a class goes before a merged node, which keeps the deepest
    path as short as any optimal tree has it, and a lower class before a higher. Merged nodes come
    out in rising weight, so that two queues replace the heap (van Leeuwen 1976).

    >>> huffman_children(np.array([5.0, 1.0, 2.0])).tolist()
    [[1, 2], [3, 0]]
    """
    order = np.argsort(counts, kind="stable")
    children = _merge(counts[order])
    classes = children < len(counts)
    children[classes] = order[children[classes]]
    return children


@njit(cache=True)
def _merge(rising: NDArray[np.float64]) -> NDArray[np.int64]:
    num_classes = len(rising)
    children = np.empty((num_classes - 1, 2), np.int64)
    weights = np.zeros(num_classes - 1, np.float64)
    leaf = 0
    merged = 0
    for new in range(num_classes - 1):
        for side in range(2):
            if leaf < num_classes and (merged == new or rising[leaf] <= weights[merged]):
                children[new, side] = leaf
                weights[new] += rising[leaf]
                leaf += 1
            else:
                children[new, side] = num_classes + merged
                weights[new] += weights[merged]
                merged += 1
    return children


@njit(cache=True)
def fill_left(
    depths: NDArray[np.int64], starts: NDArray[np.int64], sizes: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return which leaves go left, where those of each node are to keep their depths.

    ``depths`` [M] are those below the leaf's own node, node by node, ``starts`` and ``sizes`` [C]
    where each node's are. A leaf k below a node takes 2^−k of it. In the order given each leaf goes
    left that still finds room in the left half. Both halves come out full: if room r were left
    over, then every leaf on the right is larger than r, so that the smallest of them, s, divides ½,
    what is on the right, ½ + r, and with both r itself, which is smaller. Room is held in binary
    digits, exact however deep the tree is.

    >>> fill_left(np.array([2, 1, 3, 3]), np.array([0]), np.array([4])).tolist()
    [True, False, True, True]
    """
    left = np.zeros(len(depths), np.bool_)
    digits = np.zeros(2 + (depths.max() if len(depths) else 0), np.bool_)
    for node in range(len(starts)):
        # Nothing is left of the room of the node before.
        digits[1] = True
        for i in range(starts[node], starts[node] + sizes[node]):
            place = depths[i]
            while place > 0 and not digits[place]:
                place -= 1
            if place:
                left[i] = True
                digits[place] = False
                digits[place + 1 : depths[i] + 1] = True
    return left


def fill_left_reference(
    depths: NDArray[np.int64], starts: NDArray[np.int64], sizes: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return the same by fractions, in plain Python."""
    left = []
    for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
        room = Fraction(1, 2)
        for depth in depths[start : start + size].tolist():
            left.append(Fraction(1, 2**depth) <= room)
            room -= left[-1] * Fraction(1, 2**depth)
    return np.array(left, dtype=np.bool_)


def huffman_children_reference(counts: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return a table of the same average path length by a heap, in plain Python."""
    num_classes = len(counts)
    heap = [(count, node) for node, count in enumerate(counts.tolist())]
    heapq.heapify(heap)
    children = np.empty((num_classes - 1, 2), dtype=np.int64)
    for new in range(num_classes - 1):
        (left_count, left), (right_count, right) = heapq.heappop(heap), heapq.heappop(heap)
        children[new] = left, right
        heapq.heappush(heap, (left_count + right_count, num_classes + new))
    return children
