"""The parts of an adaptive softmax: tail clusters, and a part opened for some rows."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from widemax.candidates import TopK
from widemax.heads.adaptive.kept import cluster_cross_entropy
from widemax.heads.exact import linear_scores, linear_topk
from widemax.validation import ABSENT


class TailCluster(nn.Module):
    """One cluster of rarer classes: F(x, y) = (P x)·v_y with few dimensions."""

    def __init__(self, dimension: int, reduced: int, start: int, stop: int) -> None:
        super().__init__()
        self.start, self.stop = start, stop
        self.projection = nn.Parameter(torch.empty(reduced, dimension))
        self.vectors = nn.Parameter(torch.empty(stop - start, reduced))
        nn.init.normal_(self.projection, std=dimension**-0.5)
        nn.init.normal_(self.vectors, std=reduced**-0.5)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the queries of this cluster, [B, reduced dimension]."""
        return hidden @ self.projection.T

    def losses(self, hidden: Tensor, targets: Tensor, shares: Tensor) -> Tensor:
        """Return Σ_t share_t · −log P(t | x, cluster); targets elsewhere have share 0."""
        mass = shares.sum(-1)
        local = (targets - self.start).clamp(0, self.stop - self.start - 1)
        return mass * cluster_cross_entropy(
            self(hidden), self.vectors, None, local, shares / mass[:, None]
        )


class OpenPart(NamedTuple):
    """The shortlist or a cluster, open for some rows: log P(y | x) = query·vector + offset."""

    start: int
    queries: Tensor
    vectors: Tensor
    biases: Tensor | None
    offset: Tensor

    def log_prob(self, ids: Tensor) -> Tensor:
        """Return [B, S] for ids [S] of this part."""
        local = ids - self.start
        biases = None if self.biases is None else self.biases[local]
        return linear_scores(self.queries, self.vectors[local], biases) + self.offset[:, None]

    def pair_log_prob(self, rows: Tensor, ids: Tensor) -> Tensor:
        """Return [N] for N pairs of a row and a class of this part."""
        local = ids - self.start
        biases = None if self.biases is None else self.biases[local, None]
        scores = linear_scores(self.queries[rows], self.vectors[local, None], biases)
        return scores[:, 0] + self.offset[rows]

    def topk(self, k: int, exclude: Tensor | None) -> TopK:
        """Return the best classes of this part by log-probability."""
        local = None if exclude is None else exclude - self.start
        k = min(k, len(self.vectors))
        best = linear_topk(self.queries, self.vectors, self.biases, k, exclude=local)
        ids = torch.where(best.ids == ABSENT, ABSENT, best.ids + self.start)
        return TopK(ids=ids, scores=best.scores + self.offset[:, None])
