"""Huffman's code: the binary tree with the shortest average path for given counts."""

from __future__ import annotations

import heapq

import numpy as np
from numba import njit
from numpy.typing import NDArray


def huffman_children(counts: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the two children of each merged node, in the order of merging; the root is last.

    Formula: the two lightest nodes are merged until one is left. Of equally light ones a class
    goes before a merged node, which keeps the deepest path as short as any optimal tree has it,
    and a lower class before a higher.

    Shapes: counts [V] ≥ 0 in; [V−1, 2] out: an entry y < V is class y, V + i is merge i.

    Cost: O(V log V) to sort, then O(V): merged nodes come out in rising weight, so that two
    queues replace the heap.

    Reference: Huffman 1952; the two queues are van Leeuwen's, 1976.

    Use when: building a tree from counts. Avoid when: classes that are alike should be close
    together in the tree (``Tree.clustered``).

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
