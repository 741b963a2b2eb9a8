"""A head behind a layer of its own."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from widemax.candidates import TopK
from widemax.heads.base import Head
from widemax.sampling import Sampler
from widemax.validation import check_whole


class LayeredHead(Head):
    """Any head that reads the hidden state through a layer of its own.

    Formula: that of ``head``, of z = layer(x) instead of x.

    Shapes: hidden [B, ``dimension``]; the layer returns [B, D] as ``head`` takes it. The rest as
    ``Head``.

    Cost: that of the layer, and of ``head`` at the width of z.

    Reference: the tanh layer before the outputs in Bengio et al. 2003.

    Use when: the head computes few outputs for each example, as a tree does along a path: a wider z
    then costs little, and its nodes separate classes that no plane in x separates. Avoid when: all
    outputs are computed (the cost grows with the width of z), or class vectors are to be searched
    (no index looks through the layer).

    >>> from widemax.heads import HierarchicalHead, Tree
    >>> layer = nn.Sequential(nn.Linear(16, 64), nn.ReLU())
    >>> head = LayeredHead(16, layer, HierarchicalHead(64, Tree.balanced(8)))
    >>> round(head(torch.randn(1, 16), torch.tensor([4])).item() / 0.693147, 3)  # bits: path length
    3.0
    """

    def __init__(self, dimension: int, layer: nn.Module, head: Head) -> None:
        for name, given, kind in (("layer", layer, nn.Module), ("head", head, Head)):
            if not isinstance(given, kind):
                raise ValueError(f"{name} must be a {kind.__name__}, got {type(given).__name__}")
        super().__init__()
        self.dimension = check_whole("dimension", dimension, 1, 2**24)
        self.layer = layer
        self.head = head
        self.num_classes, self.ignore_index = head.num_classes, head.ignore_index

    @property
    def proposal(self) -> Sampler | None:
        """What draws the classes for ``head``."""
        return self.head.proposal

    def forward(
        self,
        hidden: Tensor,
        targets: Tensor,
        *,
        weights: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return the training loss of each example, [B]; 0 for an ignored one."""
        losses: Tensor = self.head(
            self._wide(hidden), targets, weights=weights, generator=generator
        )
        return losses

    def scores(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return F(z, y) of the given classes ([S] shared, or [B, S]), or of all, [B, V]."""
        return self.head.scores(self._wide(hidden), ids)

    def log_prob(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return log P(y | x), exactly normalised, of the given classes or of all."""
        return self.head.log_prob(self._wide(hidden), ids)

    @torch.no_grad()
    def topk(self, hidden: Tensor, k: int, *, exclude: Tensor | None = None) -> TopK:
        """Return the k best classes, leaving out ``exclude`` [B, E], padded with -1."""
        return self.head.topk(self._wide(hidden), k, exclude=exclude)

    def _wide(self, hidden: Tensor) -> Tensor:
        wide: Tensor = self.layer(self._check_hidden(hidden))
        return wide
