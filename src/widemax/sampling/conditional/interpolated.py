"""What the interpolated n-gram proposals share: their tables, and the contexts found in them."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from widemax.declarations import Option
from widemax.devices import by_kernels
from widemax.kernels.sampling.ngram import Slices, interpolated, responsibilities
from widemax.ngrams.counting import MAX_ORDER, MOST_KEYS, count_ngrams
from widemax.sampling.base import DrawnSampler
from widemax.validation import (
    ABSENT,
    check_ids,
    check_num_classes,
    check_positive,
    check_tensor,
    check_whole,
)

_MOST_UNSEEN = 4
"""All classes are listed as unigrams if they are at most so many times the ids of the corpus."""

PROPOSAL_ORDER = Option(
    "proposal_order", 3, "Length of the n-grams that classes are drawn by.", least=1, most=16
)


class InterpolatedSampler(DrawnSampler):
    """p(y | c) = Σ_n share_n(c) · q_n(y | c_n), c_n the last n − 1 ids of the context, q_0 = 1/V.

    ``tables`` are those of ``count_ngrams``; q_n is count(c_n, y) / count(c_n) at first.
    """

    _keys: Tensor
    _distinct: Tensor
    _probabilities: Tensor
    _contexts: Tensor
    _starts: Tensor
    _sizes: Tensor
    _firsts: Tensor
    _lasts: Tensor

    def __init__(
        self,
        num_classes: int,
        tables: Sequence[Tensor],
        *,
        least_uniform: float,
        follows: bool = False,
    ) -> None:
        super().__init__(num_classes, per_example=True)
        if not len(tables) or not len(tables[0]):
            raise ValueError("tables must hold the n-grams of at least one id, got none")
        self.order = len(tables)
        if not check_positive("least_uniform", least_uniform) < 1:
            raise ValueError(f"least_uniform must lie between 0 and 1, got {least_uniform!r}")
        self.least_uniform = least_uniform
        self._levels = _slices(tables)
        self.register_buffer("_keys", torch.cat(list(tables)), persistent=False)
        # Counted once, so that a probability is one search in a table and not two.
        counted = [_counted(table, num_classes) for table in tables]
        if num_classes <= _MOST_UNSEEN * len(tables[0]):
            counted[0] = _with_unseen(*counted[0], num_classes)
        distinct, probabilities = zip(*counted, strict=True)
        self._distinct_levels = _slices(distinct)
        self.register_buffer("_distinct", torch.cat(distinct), persistent=False)
        # Those that follow the model are learned, and part of the state.
        self.register_buffer("_probabilities", torch.cat(probabilities), persistent=follows)
        for name in ("_contexts", "_starts", "_sizes", "_firsts", "_lasts"):
            self.register_buffer(name, torch.empty(0, dtype=torch.int64), persistent=False)
        self.set_context(None)

    @abstractmethod
    def _shares(self) -> Tensor:
        """Return the weights of each context's components, 0 where unseen, [R, order + 1]."""

    def set_context(self, context: Tensor | None) -> None:
        """Set what came before each row of the next batch: [B, order − 1], or [1, …] for all."""
        if context is None:
            context = torch.full((1, self.order - 1), ABSENT)
        context = check_preceding(context, self.num_classes, self.order).to(self._keys.device)
        found = [self._find(context[:, self.order - n :], n) for n in range(1, self.order + 1)]
        self._contexts = torch.stack([place.context for place in found], dim=1)
        self._starts = torch.stack([place.start for place in found], dim=1)
        self._sizes = torch.stack([place.size for place in found], dim=1)
        self._firsts = torch.stack([place.first for place in found], dim=1)
        self._lasts = torch.stack([place.last for place in found], dim=1)

    def log_prob(self, ids: Tensor) -> Tensor:
        """Return log p(y | context) for ids [B] or [B, S], or of any shape with one context."""
        if not by_kernels(ids):
            return self._weighted(ids).sum(-1).log().view(ids.shape)
        rows = ids.reshape(table_shape(len(self._sizes), ids.shape))
        found = interpolated(self._present(), self._shares().numpy(), rows.numpy())
        return torch.from_numpy(found).log_().view(ids.shape)

    def _responsibilities(self, ids: Tensor, weights: Tensor) -> Tensor:
        """Return what each component accounts for of weighted classes [B, S], [B, order + 1]."""
        if by_kernels(ids):
            rows = ids.reshape(table_shape(len(self._sizes), ids.shape))
            weights = weights.view(rows.shape).contiguous()
            shares = self._shares().numpy()
            found = responsibilities(self._present(), shares, rows.numpy(), weights.numpy())
            return torch.from_numpy(found)
        parts = self._weighted(ids).view(*ids.shape, -1)
        return (weights.unsqueeze(-1) * parts / parts.sum(-1, keepdim=True)).sum(1)

    def _present(self) -> Slices:
        """Return the n-grams after the present contexts, for the kernels."""
        return Slices(
            self._distinct.numpy(),
            self._probabilities.numpy(),
            self._contexts.numpy(),
            self._firsts.numpy(),
            self._lasts.numpy(),
            self.num_classes,
        )

    def _find(self, context: Tensor, order: int) -> _Place:
        """Return where the n-grams of given contexts [B, order − 1] lie in their table."""
        gram = torch.zeros(len(context), dtype=torch.int64, device=context.device)
        for column, level in zip(context.unbind(1), self._levels, strict=False):
            table = self._keys[level]
            key = gram * self.num_classes + column
            gram = torch.searchsorted(table, key)
            found = torch.searchsorted(table, key, right=True) > gram
            # An unseen gram stays unseen: no key is as small as −1 · V + id.
            gram = gram.masked_fill(~found | (column == ABSENT), ABSENT)
        table = self._keys[self._levels[order - 1]]
        start = torch.searchsorted(table, gram * self.num_classes)
        end = torch.searchsorted(table, (gram + 1) * self.num_classes)
        size = (end - start).masked_fill(gram == ABSENT, 0)
        level = self._distinct_levels[order - 1]
        first, last = (
            torch.searchsorted(self._distinct[level], each * self.num_classes) + level.start
            for each in (gram, gram + 1)
        )
        return _Place(gram, start + self._levels[order - 1].start, size, first, last)

    def _weighted(self, ids: Tensor) -> Tensor:
        """Return share · p of each component for ids, [R, n, order + 1]."""
        ids = ids.reshape(table_shape(len(self._sizes), ids.shape))
        parts = [
            torch.full(ids.shape, 1 / self.num_classes, dtype=torch.float64, device=ids.device)
        ]
        for index, level in enumerate(self._distinct_levels):
            table = self._distinct[level]
            key = self._contexts[:, index, None] * self.num_classes + ids
            place = torch.searchsorted(table, key)
            own = self._probabilities[level][place]
            parts.append(torch.where(table[place] == key, own, 0.0))
        return torch.stack(parts, dim=-1) * self._shares().unsqueeze(1)


class _Place(NamedTuple):
    """The number of a context, and where it is in the tables of n-grams; each [B]."""

    context: Tensor
    start: Tensor
    """Its first n-gram among all, repeats included."""
    size: Tensor
    """How many those are."""
    first: Tensor
    """Its first n-gram among the different ones."""
    last: Tensor
    """The one after its last."""


def counted_tables(ids: Tensor, num_classes: int, order: int) -> list[Tensor]:
    """Return the tables of the n-grams of a 1-D corpus; −1 ends a text."""
    num_classes = check_num_classes(num_classes)
    order = check_whole("order", order, 1, MAX_ORDER)
    if check_tensor("ids", ids).dim() != 1 or not bool((ids != ABSENT).any()):
        raise ValueError(f"ids must be 1-D with at least one id, got shape {list(ids.shape)}")
    if len(ids) * num_classes > MOST_KEYS:
        raise ValueError(
            f"ids must number at most {MOST_KEYS // num_classes:,} for "
            f"{num_classes:,} classes, got {len(ids):,}"
        )
    corpus = check_ids("ids", ids, num_classes, absent=True).cpu().numpy()
    return [torch.from_numpy(table) for table in count_ngrams(corpus, num_classes, order)]


def check_draws(ids: Tensor, log_ratios: Tensor) -> None:
    """Refuse draws and weights of different shapes."""
    if ids.dim() != 2 or ids.shape != log_ratios.shape:
        raise ValueError(
            f"ids and log_ratios must have one shape [B, S], got {list(ids.shape)} and "
            f"{list(log_ratios.shape)}"
        )


def marked(corpus: Any) -> Tensor:
    """Return the ids of ``Sequences`` with −1 after each, which no n-gram crosses."""
    ids = torch.full((len(corpus.values) + len(corpus),), ABSENT)
    places = torch.arange(len(corpus.values)) + torch.repeat_interleave(corpus.lengths)
    ids[places] = corpus.values
    return ids


def check_preceding(context: Tensor, num_classes: int, order: int) -> Tensor:
    """Return ``context`` as int64 [B, order − 1] if each id names a class or is −1."""
    if check_tensor("context", context).dim() != 2 or context.shape[1] != order - 1:
        raise ValueError(
            f"context must have shape [B, {order - 1}] (order − 1), got {list(context.shape)}"
        )
    return check_ids("context", context, num_classes, absent=True)


def table_shape(rows: int, shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the shape [rows, …] of ids of any shape, if these can have that many contexts."""
    if rows == 1 or shape[:1] == (rows,):
        return rows, math.prod(shape) // max(rows, 1)
    raise ValueError(
        f"context has {rows:,} rows, but the batch has shape {list(shape)}: call set_context "
        "with one row for each example that is not ignored"
    )


def _slices(tables: Sequence[Tensor]) -> list[slice]:
    """Return where each table lies in the concatenation of all."""
    ends = np.cumsum([len(table) for table in tables]).tolist()
    return [slice(a, b) for a, b in zip([0, *ends[:-1]], ends, strict=True)]


def _counted(table: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Return the distinct keys of a table and their shares of their contexts.

    A largest key with a share of 0 ends them, so that every search ends at a key.
    """
    keys, counts = torch.unique_consecutive(table, return_counts=True)
    contexts = keys.div(num_classes, rounding_mode="floor")
    _, context = torch.unique_consecutive(contexts, return_inverse=True)
    sizes = torch.bincount(context, counts.double())
    above = keys.new_tensor([torch.iinfo(keys.dtype).max])
    return torch.cat([keys, above]), torch.cat([counts / sizes[context], sizes.new_zeros(1)])


def _with_unseen(keys: Tensor, shares: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Return unigrams with those that were never seen, so that each lies at its own place."""
    dense = shares.new_zeros(num_classes + 1)
    dense[keys[:-1]] = shares[:-1]
    return torch.cat([torch.arange(num_classes), keys[-1:]]), dense
