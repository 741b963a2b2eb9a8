"""A head with a layer of its own before it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from widemax.candidates import TopK
from widemax.heads.base import Head
from widemax.validation import check_hidden, check_whole


class LayeredHead(Head):
    """Any head that reads the hidden state through a layer of its own.

    Formula: that of ``head``, of z = layer(x) instead of x.

    Shapes: hidden [B, ``dimension``]; the layer gives [B, D] as ``head`` takes it. The rest as
    ``Head``.

    Cost: that of the layer, and of ``head`` at the width of z.

    Reference: none.

    Use when: a head's outputs are cheap, and those of the encoder's width say too little: a node of
    a tree parts classes that no plane parts, and a wider z costs it little, for a path has few
    nodes. Avoid when: all outputs are computed (the wider z costs as much more), or class vectors
    are to be searched (no index looks through the layer).

    >>> from widemax.heads import HierarchicalHead, Tree
    >>> layer = nn.Sequential(nn.Linear(16, 64), nn.ReLU())
    >>> head = LayeredHead(16, layer, HierarchicalHead(64, Tree.balanced(8)))
    >>> head(torch.randn(2, 16), torch.tensor([0, 4])).shape
    torch.Size([2])
    """

    def __init__(self, dimension: int, layer: nn.Module, head: Head) -> None:
        for name, given, kind in (("layer", layer, nn.Module), ("head", head, Head)):
            if not isinstance(given, kind):
                raise ValueError(f"{name} must be a {kind.__name__}, got {type(given).__name__}")
        super().__init__()
        self.dimension = check_whole("dimension", dimension, 1, 2**24)
        self.layer = layer
        self.head = head
        self.num_classes = head.num_classes

    @property
    def ignore_index(self) -> int:
        """The target that does not count, as in ``head``."""
        return int(getattr(self.head, "ignore_index", -100))

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

    def topk(self, hidden: Tensor, k: int, *, exclude: Tensor | None = None) -> TopK:
        """Return the k best classes, leaving out ``exclude`` [B, E], padded with -1."""
        return self.head.topk(self._wide(hidden), k, exclude=exclude)

    def _wide(self, hidden: Tensor) -> Tensor:
        check_hidden(hidden, self.dimension)
        wide: Tensor = self.layer(hidden)
        return wide
