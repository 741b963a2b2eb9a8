"""Random walks on a weighted graph, each from a seed of its own."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray

from widemax.kernels.compiling import njit
from widemax.kernels.random_bits import next_random, split_mix_reference

Numbers = NDArray[np.int64]
Weights = NDArray[np.float64]

_u = np.uint64


def running_weights(starts: Numbers, weights: Weights) -> Weights:
    """Return the sum of the weights of each node's edges up to each edge, for ``random_walks``.

    >>> running_weights(np.array([0, 2, 3]), np.array([1.0, 3.0, 2.0])).tolist()
    [1.0, 4.0, 2.0]
    """
    running = np.empty(len(weights))
    _add_up(starts, weights, running)
    return running


@njit(cache=True)
def _add_up(starts: Numbers, weights: Weights, running: Weights) -> None:
    # Anew for each node: differences of one long sum would lose the light edges at its end.
    for node in range(len(starts) - 1):
        total = 0.0
        for edge in range(starts[node], starts[node + 1]):
            total += weights[edge]
            running[edge] = total


@njit(cache=True, nogil=True)
def random_walks(
    starts: Numbers, successors: Numbers, running: Weights, first: Numbers, length: int, seed: int
) -> tuple[Numbers, Numbers]:
    """Walk from each of some nodes along edges drawn by weight, until there are none.

    P(next = b | a) = weight(a, b) / Σ_c weight(a, c) (DeepWalk, Perozzi et al. 2014, by weight); a
    walk ends at ``length`` nodes, or at a node that no edge leaves. Walk i draws from SplitMix64 at
    seed + i. Node v has the edges starts[v] … starts[v + 1] − 1. Returns the nodes, walk after
    walk, and the length of each.

    >>> starts, successors = np.array([0, 1, 2, 2]), np.array([1, 2])
    >>> values, lengths = random_walks(starts, successors, np.ones(2), np.array([0, 2]), 5, 0)
    >>> values.tolist(), lengths.tolist()
    ([0, 1, 2, 2], [3, 1])
    """
    values = np.empty(len(first) * length, np.int64)
    lengths = np.empty(len(first), np.int64)
    state = np.empty(1, np.uint64)
    written = 0
    for walk in range(len(first)):
        state[0] = _u(seed) + _u(walk)
        node, before = first[walk], written
        values[written] = node
        written += 1
        while written - before < length and starts[node] < starts[node + 1]:
            low, last = starts[node], starts[node + 1] - 1
            uniform = np.float64(next_random(state) >> _u(11)) * 2.0**-53
            wanted = uniform * running[last]
            # The first edge whose running weight is above; rounding never leads past the last.
            while low < last:
                middle = (low + last) // 2
                if running[middle] > wanted:
                    last = middle
                else:
                    low = middle + 1
            node = successors[low]
            values[written] = node
            written += 1
        lengths[walk] = written - before
    return values[:written].copy(), lengths


def random_walks_reference(
    starts: Numbers, successors: Numbers, running: Weights, first: Numbers, length: int, seed: int
) -> tuple[Numbers, Numbers]:
    """Walk as ``random_walks`` does, from the same random bits, in plain Python."""
    walks = []
    for walk, node in enumerate(first.tolist()):
        nodes, random = [node], split_mix_reference(seed + walk)
        while len(nodes) < length and starts[nodes[-1]] < starts[nodes[-1] + 1]:
            own = running[starts[nodes[-1]] : starts[nodes[-1] + 1]].tolist()
            wanted = (next(random) >> 11) * 2.0**-53 * own[-1]
            chosen = min(bisect_right(own, wanted), len(own) - 1)
            nodes.append(int(successors[starts[nodes[-1]] + chosen]))
        walks.append(nodes)
    values = np.array([node for nodes in walks for node in nodes], np.int64)
    return values, np.array([len(nodes) for nodes in walks], np.int64)
