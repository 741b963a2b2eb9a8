"""The graph of which item follows which, and random walks on it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from widemax.data.sequences import Sequences, offsets_of
from widemax.kernels.data.walks import random_walks, running_weights
from widemax.validation import as_int64, check_ids, check_tensor, check_whole

MOST_ITEMS = 2**31
"""Most items of a graph: a pair of them is one int64."""

MOST_STEPS = 2**31
"""Most nodes that the walks of one call may hold (16 GB)."""


@dataclass(frozen=True, eq=False, repr=False)
class ItemGraph:
    """A directed graph of items, an edge from each to those that came right after it.

    weight(a, b) is how often b was the next item after a in a session, a ≠ b: an item after itself
    says nothing of what belongs together. A walk goes from a to b with probability
    weight(a, b) / Σ_c weight(a, c). So items meet through others where sessions are short and many:
    Wang et al., "Billion-scale Commodity Embedding for E-commerce Recommendation in Alibaba", 2018.

    >>> graph = ItemGraph.from_sequences(Sequences.from_lists([[0, 1, 1, 2], [0, 2], [0, 1]]))
    >>> graph
    ItemGraph(3 items, 3 edges)
    >>> graph.successors.tolist(), graph.weights.tolist()
    ([1, 2, 2], [2.0, 1.0, 1.0])
    >>> walks = graph.walks(2, 3, generator=torch.Generator().manual_seed(0))
    >>> walks.values.tolist(), walks.lengths.tolist()
    ([0, 1, 2, 0, 1, 2, 1, 2, 1, 2], [3, 3, 2, 2])
    """

    starts: Tensor
    """Int64 [V + 1]: the edges of item v are starts[v] … starts[v + 1] − 1."""
    successors: Tensor
    """Int64 [E]."""
    weights: Tensor
    """Float64 [E]."""

    def __post_init__(self) -> None:
        starts = as_int64("starts", self.starts)
        sizes = len(check_tensor("successors", self.successors)), len(self.weights)
        if not len(starts) or (int(starts[0]), int(starts[-1])) != (0, sizes[0]):
            raise ValueError(f"starts must lead from 0 to {sizes[0]:,}, the number of edges")
        if bool((starts.diff() < 0).any()):
            raise ValueError("starts must never fall")
        if sizes[0] != sizes[1]:
            raise ValueError(f"weights must be as many as successors, {sizes[0]:,}, got {sizes[1]}")
        if not bool(((self.weights > 0) & self.weights.isfinite()).all()):
            raise ValueError("weights must be finite and above 0")
        successors = check_ids("successors", self.successors, len(starts) - 1)
        vars(self).update(starts=starts, successors=successors, weights=self.weights.double())

    @classmethod
    def from_sequences(cls, sessions: Sequences, *, num_items: int | None = None) -> ItemGraph:
        """Count which item follows which; without ``num_items`` the last item is the highest."""
        values = sessions.values
        highest = int(values.max()) if len(values) else -1
        if num_items is None:
            num_items = highest + 1
        num_items = check_whole("num_items", num_items, max(1, highest + 1), MOST_ITEMS)
        inside = sessions.continues()
        before, after = values[:-1][inside], values[1:][inside]
        pairs = (before * num_items + after)[before != after]
        edges, counts = torch.unique(pairs, return_counts=True)
        degrees = torch.bincount(edges // num_items, minlength=num_items)
        return cls(offsets_of(degrees), edges % num_items, counts.double())

    @property
    def num_items(self) -> int:
        """How many items there are, those without an edge too."""
        return len(self.starts) - 1

    def __repr__(self) -> str:
        return f"ItemGraph({self.num_items:,} items, {len(self.successors):,} edges)"

    def walks(
        self, per_item: int, length: int, *, generator: torch.Generator | None = None
    ) -> Sequences:
        """Return walks of up to ``length`` items, ``per_item`` from each item that has an edge.

        A walk ends early at an item that nothing followed.
        """
        length = check_whole("length", length, 2, MOST_STEPS)
        first = self.starts.diff().nonzero()[:, 0]
        per_item = check_whole(
            "per_item", per_item, 1, max(1, MOST_STEPS // (length * max(1, len(first))))
        )
        seed = int(torch.randint(2**63 - 1, (1,), generator=generator))
        starts, weights = self.starts.numpy(), self.weights.numpy()
        values, lengths = random_walks(
            starts,
            self.successors.numpy(),
            running_weights(starts, weights),
            first.repeat_interleave(per_item).numpy(),
            length,
            seed,
        )
        return Sequences(torch.from_numpy(values), offsets_of(torch.from_numpy(lengths)))
