"""The index that goes through all classes."""

from __future__ import annotations

from torch import Tensor

from widemax.candidates import TopK
from widemax.index.base import Index


class ExactIndex(Index):
    """Goes through all classes tile by tile: the reference of every other index.

    Of equal scores the smaller id is the better. A search takes O(B·V·D) time and a few tiles of
    memory: quick enough below some 50,000 classes.

    >>> import torch
    >>> import widemax as wm
    >>> scorer = wm.TableScorer(3, 1)
    >>> _ = scorer.weight.data.copy_(torch.tensor([[1.0], [3.0], [2.0]]))
    >>> ExactIndex(wm.FullHead(scorer)).search(torch.ones(1, 1), 2)
    TopK(ids=tensor([[1, 2]]), scores=tensor([[3., 2.]]))
    """

    kind = "exact"

    def _best(self, queries: Tensor, k: int, exclude: Tensor | None) -> TopK:
        return self.rows.best(queries, k, exclude)
