"""A scorer of your own: class vectors from two small tables that all classes share.

    widemax --plugin examples/plugins/hashed_scorer.py train log.csv --folder run \
        --scorer hashed --buckets 500
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import widemax as wm


@wm.declare.scorer(
    "hashed",
    options=[wm.Option("buckets", 1000, "Rows of each table.", least=1, most=2**28)],
)
class HashedScorer(wm.Scorer):
    """The vector of a class is the sum of two rows, by quotient and remainder of its id."""

    def __init__(self, num_classes: int, dimension: int, *, buckets: int) -> None:
        super().__init__()
        self.num_classes, self.dimension = num_classes, dimension
        self.quotients = nn.Embedding(num_classes // buckets + 1, dimension)
        self.remainders = nn.Embedding(buckets, dimension)

    def class_vectors(self, ids: Tensor | None = None) -> Tensor:
        """Return the vectors of the given classes, or of all, [V, D]."""
        if ids is None:
            ids = torch.arange(self.num_classes, device=self.remainders.weight.device)
        buckets = self.remainders.num_embeddings
        vectors: Tensor = self.quotients(ids // buckets) + self.remainders(ids % buckets)
        return vectors
