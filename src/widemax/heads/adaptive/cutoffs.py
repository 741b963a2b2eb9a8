"""Where to cut the classes into a head and tail clusters: the fastest way under a cost model."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from widemax.heads.adaptive.cost_model import CostModel
from widemax.validation import Counts, check_counts, check_num_classes, check_positive

MAX_CLUSTERS = 4
"""Most tail clusters that the search considers; the literature uses 1 to 4."""

MIN_DIMENSION = 8
"""The search opens no second cluster whose classes would have fewer dimensions than this."""

_GRID = 160


def reduced_dimension(dimension: int, reduction: float, cluster: int) -> int:
    """Return the dimension of the given tail cluster (the first is 1): at least 1."""
    return max(1, int(dimension // reduction**cluster))


def check_falling_counts(counts: Counts, num_classes: int) -> NDArray[np.float64]:
    """Return ``counts`` as float64 if no class is counted more often than the one before it."""
    array = check_counts(counts, num_classes).astype(np.float64)
    rises = np.flatnonzero(np.diff(array) > 0)
    if len(rises):
        wrong = int(rises[0]) + 1
        raise ValueError(
            "counts must fall with the class id (0 is the most frequent class), got "
            f"{array[wrong]:g} for class {wrong:,} after {array[wrong - 1]:g}; order the ids by "
            "count, as Vocabulary does"
        )
    return array


def check_cutoffs(cutoffs: list[int], num_classes: int) -> list[int]:
    """Return ``cutoffs`` if they rise strictly between 1 and ``num_classes`` − 1."""
    for value in cutoffs:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"cutoffs must hold whole numbers, got {value!r}")
        if not 1 <= value < num_classes:
            raise ValueError(
                f"cutoffs must lie between 1 and num_classes - 1 = {num_classes - 1:,}, "
                f"got {value:,}"
            )
    for before, after in pairwise(cutoffs):
        if after <= before:
            raise ValueError(f"cutoffs must rise strictly, got {after:,} after {before:,}")
    return cutoffs


def choose_cutoffs(
    counts: Counts,
    dimension: int,
    *,
    batch_size: int = 1024,
    reduction: float = 4.0,
    cost_model: CostModel | None = None,
    max_clusters: int = MAX_CLUSTERS,
) -> list[int]:
    """Return the cutoffs of the adaptive softmax whose training step is expected to be fastest.

    They minimise seconds(B, c_1 + n, D) + Σ_i seconds(B·P_i, c_{i+1} − c_i, D_i) over the number
    n ≤ ``max_clusters`` of tail clusters and their limits c, with P_i the share of the falling
    ``counts`` in cluster i and D_i = D / ``reduction``^i, not below 8 from the second cluster on
    (Grave et al. 2017, section 4.2). Only time decides, not perplexity. Dynamic programming over a
    grid of 160 places takes some milliseconds.

    >>> model = CostModel(overhead=1e-4, per_score=2e-9, per_product=1e-10, per_parameter=1e-9)
    >>> zipf = [1_000_000 / (rank + 1) for rank in range(50_000)]
    >>> len(choose_cutoffs(zipf, 128, cost_model=model))
    2
    """
    check_num_classes(len(counts))
    check_positive("batch_size", batch_size)
    array = check_falling_counts(counts, len(counts))
    search = _CutoffSearch(array, dimension, batch_size, reduction, cost_model)
    clusters = range(min(max_clusters, len(array) - 1) + 1)
    plans = [search.best(n) for n in clusters if n < 2 or search.dimension(n) >= MIN_DIMENSION]
    return min(plans)[1]


def expected_seconds(
    cutoffs: list[int],
    counts: Counts,
    dimension: int,
    *,
    batch_size: int = 1024,
    reduction: float = 4.0,
    cost_model: CostModel | None = None,
) -> float:
    """Return the time of a training step with these cutoffs under the cost model."""
    array = check_falling_counts(counts, len(counts))
    search = _CutoffSearch(array, dimension, batch_size, reduction, cost_model)
    limits = np.array([*check_cutoffs(cutoffs, len(array)), len(array)])
    head = search.head(limits[:1], len(cutoffs))
    tails = (
        search.tail(index, limits[index - 1 : index], limits[index : index + 1])
        for index in range(1, len(limits))
    )
    return float(head.sum() + sum(tail.sum() for tail in tails))


class _CutoffSearch:
    """Expected times of the parts, and the fastest way to put n clusters together."""

    def __init__(
        self,
        counts: NDArray[np.float64],
        dimension: int,
        batch_size: float,
        reduction: float,
        cost_model: CostModel | None,
    ) -> None:
        self.num_classes = len(counts)
        self.share: NDArray[np.float64] = np.append(0.0, counts.cumsum() / counts.sum())
        self.full_dimension = dimension
        self.batch_size = batch_size
        self.reduction = reduction
        self.cost_model = cost_model or CostModel.measured()
        # Zipf's law is a line in the logarithm of the rank: the grid is even there.
        places = np.geomspace(1, max(1, self.num_classes - 1), _GRID)
        self.grid = np.unique(places.round().astype(np.int64))

    def dimension(self, cluster: int) -> int:
        """Return the dimension of a tail cluster."""
        return reduced_dimension(self.full_dimension, self.reduction, cluster)

    def head(self, stop: NDArray[np.int64], clusters: int) -> NDArray[np.float64]:
        """Return the expected time of the head with the classes below each ``stop``."""
        rows = np.full(stop.shape, float(self.batch_size))
        classes = (stop + clusters).astype(np.float64)
        return self.cost_model.seconds(rows, classes, self.full_dimension)

    def tail(
        self, cluster: int, start: NDArray[np.int64], stop: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return the expected time of a cluster for each ``start`` and ``stop``."""
        rows = self.batch_size * (self.share[stop] - self.share[start])
        classes = (stop - start).astype(np.float64)
        dimension = self.dimension(cluster)
        projection = rows * (dimension * self.full_dimension * self.cost_model.per_product)
        return self.cost_model.seconds(rows, classes, dimension) + projection

    def best(self, clusters: int) -> tuple[float, list[int]]:
        """Return the shortest time with that many tail clusters, and their cutoffs."""
        if clusters == 0:
            return float(self.head(np.array([self.num_classes]), 0)[0]), []
        grid = self.grid
        cost = self.tail(clusters, grid, np.full_like(grid, self.num_classes))
        steps: list[NDArray[np.int64]] = []
        for cluster in range(clusters - 1, 0, -1):
            table = self.tail(cluster, grid[:, None], grid[None]) + cost
            table[grid[:, None] >= grid[None]] = np.inf
            steps.append(table.argmin(axis=1))
            cost = table.min(axis=1)
        total = cost + self.head(grid, clusters)
        places = [int(total.argmin())]
        for step in reversed(steps):
            places.append(int(step[places[-1]]))
        return float(total[places[0]]), grid[places].tolist()
