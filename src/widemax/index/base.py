"""What every index is: the k best classes of each query, scored as the head scores them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from widemax.candidates import TopK, merge_topk
from widemax.heads import ScorerHead
from widemax.index.rows import ClassRows
from widemax.validation import check_ids, check_tensor, check_whole


class Index(ABC):
    """Finds the best classes for hidden states, by the scores of the head it was built from.

    Formula: the k classes with the largest F(x, y); of K queries for one row, a class counts at
    its best, max over j of F(x_j, y).

    Shapes: queries [B, D] or, of several interests, [B, K, D] → ``TopK`` of [B, k], ending in id -1
    with score -inf where fewer than k classes are left. ``exclude`` [B, E] is padded with -1.

    Cost: see each index. It holds a copy of the class vectors.

    Reference: none.

    Use when: writing an index of your own: ``_best`` is all it needs. Avoid when: one is wanted
    (``build_index``).

    Queries are hidden states as ``head.scores`` takes them; they must be finite. One of zeros has
    no direction: by dot product and by cosine alike every class scores its bias, or 0.

    >>> from widemax.index import ExactIndex, HNSWIndex, IVFIndex
    >>> all(issubclass(each, Index) for each in (ExactIndex, HNSWIndex, IVFIndex))
    True
    """

    kind: ClassVar[str]
    """Its name in ``build_index`` and on disk."""

    def __init__(self, head: ScorerHead) -> None:
        self.rows = ClassRows.of_head(head)
        self.num_classes = head.num_classes
        self.dimension = head.scorer.dimension

    @torch.no_grad()
    def search(self, queries: Tensor, k: int, *, exclude: Tensor | None = None) -> TopK:
        """Return the k best classes of each row, leaving out ``exclude`` [B, E], padded with -1."""
        _check_queries(queries, self.dimension)
        k = check_whole("k", k, 1, self.num_classes)
        exclude = _checked_exclude(exclude, len(queries), self.num_classes)
        device = self.rows.vectors.device
        interests = queries.shape[1] if queries.dim() == 3 else 1
        if exclude is not None:
            exclude = exclude.to(device).repeat_interleave(interests, dim=0)
        flat = self.rows.queries(queries.reshape(-1, self.dimension))
        best = self._best(flat, k, exclude)
        best = TopK(ids=best.ids.to(queries.device), scores=best.scores.to(queries.device))
        if queries.dim() == 2:
            return best
        each = [slice(first, None, interests) for first in range(interests)]
        return merge_topk([TopK(ids=best.ids[own], scores=best.scores[own]) for own in each], k)

    @abstractmethod
    def _best(self, queries: Tensor, k: int, exclude: Tensor | None) -> TopK:
        """Return the k best classes for queries [B, D] as ``Scorer.queries`` makes them."""


def _check_queries(queries: Tensor, dimension: int) -> None:
    shape = list(check_tensor("queries", queries).shape)
    if len(shape) not in (2, 3) or shape[-1] != dimension or 0 in shape[1:]:
        raise ValueError(
            f"queries must have shape [B, {dimension}] or [B, K, {dimension}], got {shape}"
        )
    if not queries.is_floating_point():
        raise ValueError(f"queries must be floating point, got dtype {queries.dtype}")
    finite = queries.isfinite()
    if not bool(finite.all()):
        row = int((~finite).flatten(1).any(1).nonzero()[0])
        raise ValueError(f"queries must be finite, row {row:,} holds {queries[~finite][0].item()}")


def _checked_exclude(exclude: Tensor | None, rows: int, num_classes: int) -> Tensor | None:
    if exclude is None:
        return None
    if check_tensor("exclude", exclude).dim() != 2 or len(exclude) != rows:
        raise ValueError(f"exclude must have shape [{rows}, E], got {list(exclude.shape)}")
    exclude = check_ids("exclude", exclude, num_classes, absent=True)
    return exclude if exclude.numel() else None
