"""The n-grams of a model in one sorted table, and the back-off that reads probabilities from it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from widemax.validation import ABSENT

ROOT = 0
"""The place of the empty n-gram."""

ROOT_KEY = -(2**63)
"""Its key: it has no parent, and no key that is looked for is as small."""


@dataclass(frozen=True, eq=False, repr=False)
class Trie:
    """Every n-gram of a model at its place, with log p(its last id | the others) and log back-off.

    The key of an n-gram is (place of its first n − 1 ids) · (V + 1) + last id. Sorted, the keys
    are in the order of length, and what follows one context is together. Id V is the begin
    marker. Every class has a unigram, so that class y is at place 1 + y.
    """

    num_classes: int
    """V."""
    keys: Tensor
    """The keys of all n-grams, rising; int64 [G]."""
    log_probs: Tensor
    """log p of the last id after the others, float64 [G]."""
    log_backoffs: Tensor
    """log of what the n-gram as a context passes on to shorter ones, float64 [G]."""

    @property
    def base(self) -> int:
        """What a place is multiplied by in a key: the number of ids."""
        return self.num_classes + 1

    @cached_property
    def bounds(self) -> list[int]:
        """The place of the first n-gram of each length n = 1, 2, …, and one after the last."""
        bounds = [1, 1 + self.base]
        while bounds[-1] < len(self.keys):
            # The next length begins where the parents are those of the last one.
            bounds.append(int(torch.searchsorted(self.keys, bounds[-1] * self.base)))
        return bounds

    def child(self, places: Tensor, ids: Tensor) -> Tensor:
        """Return the places of n-grams with one id more, −1 where there is none."""
        sought = places * self.base + ids
        found = torch.searchsorted(self.keys, sought).clamp_(max=len(self.keys) - 1)
        return found.masked_fill_(self.keys[found] != sought, ABSENT)

    def children(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """Return where the n-grams that continue ``places`` start and end, begin left out."""
        known = places.clamp(min=0)
        start = torch.searchsorted(self.keys, known * self.base)
        end = torch.searchsorted(self.keys, known * self.base + self.num_classes)
        return start, end.where(places != ABSENT, start)

    def context_places(self, contexts: Tensor, order: int) -> Tensor:
        """Return the places of the last 0 … order − 1 ids of contexts [B, H], [B, order].

        −1 in a context is the begin marker, −1 in the result a context that was never seen.
        """
        ids = contexts.masked_fill(contexts == ABSENT, self.num_classes)
        places = ids.new_full((len(ids), order), ABSENT)
        places[:, 0] = ROOT
        grams = torch.full_like(ids, ROOT)
        for length in range(1, min(order - 1, ids.shape[1]) + 1):
            # Column j of grams: the n-gram of this length that ends at column j + length − 1.
            grams = self.child(grams[:, : ids.shape[1] - length + 1], ids[:, length - 1 :])
            places[:, length] = grams[:, -1]
        return places

    def backoffs(self, places: Tensor) -> Tensor:
        """Return log back-off of contexts, 0 where one was never seen."""
        return self.log_backoffs[places.clamp(min=0)].masked_fill_(places == ABSENT, 0.0)

    def score(self, places: Tensor, ids: Tensor) -> Tensor:
        """Return log p(y | context), float64 [B, S], of ids [B, S] after contexts [B, order]."""
        result = self.log_probs[1 + ids]
        for context in places[:, 1:, None].unbind(1):
            result = self._next_log_probs(result, context, self.child(context, ids))
        return result

    def _next_log_probs(self, shorter: Tensor, contexts: Tensor, found: Tensor) -> Tensor:
        """Return log p with one id more of context: as listed, or backed off where it is not."""
        backed_off = shorter + self.backoffs(contexts)
        return torch.where(found == ABSENT, backed_off, self.log_probs[found.clamp(min=0)])

    def score_stream(self, stream: Tensor, order: int) -> Tensor:
        """Return log p of each id of sentences end to end, each after the begin marker; [T].

        The values at begin markers have no meaning.
        """
        result, places = self.log_probs[1 + stream], 1 + stream
        for _ in range(1, order):
            # What rolls around comes before a begin marker, which follows nothing.
            context = places.roll(1)
            places = self.child(context, stream)
            result = self._next_log_probs(result, context, places)
        return result

    def distribution(self, places: Tensor) -> Tensor:
        """Return log p of every class after contexts [B, order], float64 [B, V]."""
        result = self.log_probs[1 : self.base].repeat(len(places), 1)
        for context in places[:, 1:].unbind(1):
            result += self.backoffs(context)[:, None]
            start, end = self.children(context)
            sizes = end - start
            rows = torch.arange(len(places), device=places.device).repeat_interleave(sizes)
            first = sizes.cumsum(0) - sizes
            entries = torch.arange(len(rows), device=places.device) + (start - first)[rows]
            result[rows, self.keys[entries] % self.base] = self.log_probs[entries]
        return result

    def ids_of(self, places: Tensor, length: int) -> Tensor:
        """Return the ids of n-grams of one length, [M, length]."""
        columns = []
        for _ in range(length):
            keys = self.keys[places]
            columns.append(keys % self.base)
            places = keys.div(self.base, rounding_mode="floor")
        return torch.stack(columns[::-1], dim=1)
