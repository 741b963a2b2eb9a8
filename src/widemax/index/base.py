"""What every index is: the k best classes of each query, scored as the head scores them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import isfinite
from typing import ClassVar

import torch
from torch import Tensor

from widemax.candidates import TopK, merge_topk
from widemax.heads import ScorerHead
from widemax.index.rows import ClassRows
from widemax.validation import check_exclude, check_tensor, check_whole


class Index(ABC):
    """Finds the best classes for hidden states, by the scores of the head it was built from.

    Queries [B, D], hidden states as ``head.scores`` takes them, must be finite. A row may have
    several queries, as the interests of a user, [B, K, D]: a class then counts at its best. One of
    zeros has no direction: every class scores its bias, or 0. An index holds a copy of the class
    vectors; one of your own needs only ``_best``. Classes come and go without a rebuild: ``add``,
    ``remove``, ``restore``.
    """

    kind: ClassVar[str]
    """Its name in ``build_index`` and on disk."""

    def __init__(self, head: ScorerHead) -> None:
        self.known_rows = ClassRows.of_head(head)
        """Of the head, and after them what was added."""
        self.rows = self.known_rows
        """The same, with a bias of -inf for what was removed."""
        self.num_classes = head.num_classes
        self.head_classes = head.num_classes
        """How many of the classes are of the head; the others were added."""
        self.dimension = head.scorer.dimension
        self._removed = torch.zeros(0, dtype=torch.int64)

    @property
    def removed(self) -> Tensor:
        """The classes that are never found, int64, rising."""
        return self._removed

    def add(self, vectors: Tensor, biases: Tensor | None = None) -> Tensor:
        """Add classes that the head does not have, [N, D], and return their ids, the next ones.

        Vectors are as the head has them, with biases [N] where it has any. Takes a copy of the
        rows: add many at once.

        >>> import widemax as wm
        >>> from widemax.index import ExactIndex
        >>> index = ExactIndex(wm.FullHead(wm.TableScorer(3, 1)))
        >>> index.add(torch.full((1, 1), 9.0)), index.search(torch.ones(1, 1), 1).ids
        (tensor([3]), tensor([[3]]))
        """
        new = self.known_rows.new_rows(vectors, biases)
        self._add_rows(new)
        first = self.num_classes
        self.known_rows = self.known_rows.followed_by(new)
        self.num_classes += len(new.vectors)
        self._leave_out(self._removed)
        return torch.arange(first, self.num_classes)

    def remove(self, ids: Tensor) -> None:
        """Never find these classes again, int64 [N], until they are restored.

        >>> import widemax as wm
        >>> from widemax.index import ExactIndex
        >>> index = ExactIndex(wm.FullHead(wm.TableScorer(3, 1)))
        >>> index.remove(torch.tensor([0, 2]))
        >>> index.search(torch.ones(1, 1), 2).ids
        tensor([[ 1, -1]])
        """
        self._leave_out(torch.unique(torch.cat([self._removed, self._checked(ids)])))

    def restore(self, ids: Tensor) -> None:
        """Find classes again that were removed; others are left as they are."""
        back = self._checked(ids)
        self._leave_out(self._removed[~torch.isin(self._removed, back)])

    def take_changes(
        self, vectors: Tensor | None, biases: Tensor | None, removed: Tensor | None
    ) -> None:
        """Have rows again that were added before this was stored, and lack those removed."""
        if vectors is not None:
            added = self.known_rows.new_rows(vectors, biases)
            # As they were stored: scaled once more, a vector may be rounded otherwise.
            added = ClassRows(vectors.to(added.vectors), added.biases, added.scorer)
            self.known_rows = self.known_rows.followed_by(added)
            self.num_classes += len(vectors)
        self._leave_out(self._removed if removed is None else self._checked(removed))

    def _checked(self, ids: Tensor) -> Tensor:
        ids = check_tensor("ids", ids)
        if ids.dim() != 1 or ids.is_floating_point() or ids.dtype == torch.bool:
            raise ValueError(f"ids must be whole numbers [N], got {ids.dtype} {list(ids.shape)}")
        wrong = ids[(ids < 0) | (ids >= self.num_classes)]
        if len(wrong):
            raise ValueError(
                f"ids must lie between 0 and {self.num_classes - 1:,}, got {int(wrong[0]):,}"
            )
        return ids.cpu().long()

    def _leave_out(self, removed: Tensor) -> None:
        self._removed = removed
        self.rows = self.known_rows.without(removed)

    def _add_rows(self, new: ClassRows) -> None:  # noqa: B027
        """Take new rows into what is searched, if that is something else than ``rows``."""

    @torch.no_grad()
    def search(
        self,
        queries: Tensor,
        k: int,
        *,
        exclude: Tensor | None = None,
        allowed: Tensor | None = None,
    ) -> TopK:
        """Return the k best classes of each row, leaving out ``exclude`` [B, E], padded with -1.

        ``allowed``, bool [V], are the classes that may be found in any row. Both parts of the
        answer are [B, k], ending in id -1 with score -inf where fewer are left.
        """
        _check_queries(queries, self.dimension)
        k = check_whole("k", k, 1, self.num_classes)
        interests = queries.shape[1] if queries.dim() == 3 else 1
        if exclude is not None:
            exclude = check_exclude(exclude, len(queries), self.num_classes)
            exclude = exclude.to(self.rows.vectors.device) if exclude.numel() else None
        if exclude is not None and interests > 1:
            exclude = exclude.repeat_interleave(interests, dim=0)
        flat = self.rows.queries(queries.reshape(-1, self.dimension))
        if allowed is None:
            best = self._best(flat, k, exclude)
        else:
            if allowed.dtype != torch.bool or allowed.shape != (self.num_classes,):
                raise ValueError(
                    f"allowed must be bool [{self.num_classes}], got {allowed.dtype} "
                    f"{list(allowed.shape)}"
                )
            best = self._best_among(flat, k, exclude, allowed.to(flat.device))
        if best.ids.device != queries.device:
            best = TopK(ids=best.ids.to(queries.device), scores=best.scores.to(queries.device))
        if queries.dim() == 2:
            return best
        each = [slice(first, None, interests) for first in range(interests)]
        return merge_topk([TopK(ids=best.ids[own], scores=best.scores[own]) for own in each], k)

    @abstractmethod
    def _best(self, queries: Tensor, k: int, exclude: Tensor | None) -> TopK:
        """Return the k best classes for queries [B, D] as ``Scorer.queries`` makes them."""

    def _best_among(self, queries: Tensor, k: int, exclude: Tensor | None, allowed: Tensor) -> TopK:
        """Return the k best of the allowed classes, bool [V]: by going through all of these."""
        return self.rows.best_among(queries, k, exclude, allowed.nonzero()[:, 0])


def _check_queries(queries: Tensor, dimension: int) -> None:
    shape = list(check_tensor("queries", queries).shape)
    if len(shape) not in (2, 3) or shape[-1] != dimension or 0 in shape[1:]:
        raise ValueError(
            f"queries must have shape [B, {dimension}] or [B, K, {dimension}], got {shape}"
        )
    if not queries.is_floating_point():
        raise ValueError(f"queries must be floating point, got dtype {queries.dtype}")
    # A sum of numbers that are finite may not be: only then is each looked at.
    if isfinite(queries.sum().item()):
        return
    finite = queries.isfinite()
    if not bool(finite.all()):
        row = int((~finite).flatten(1).any(1).nonzero()[0])
        raise ValueError(f"queries must be finite, row {row:,} holds {queries[~finite][0].item()}")
