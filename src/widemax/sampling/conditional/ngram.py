"""An interpolated n-gram model as a proposal that knows the context."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from widemax.declarations import Need, Option, Setup, declare
from widemax.ngrams.counting import MAX_ORDER, MOST_KEYS, count_ngrams
from widemax.sampling.base import NUM_SAMPLES, DrawnSampler
from widemax.validation import (
    ABSENT,
    check_ids,
    check_not_negative,
    check_num_classes,
    check_positive,
    check_tensor,
    check_whole,
)

PROPOSAL_ORDER = Option(
    "proposal_order", 3, "Length of the n-grams that classes are drawn by.", least=1, most=16
)


@declare.sampler(
    "n-gram",
    options=[NUM_SAMPLES, PROPOSAL_ORDER],
    traits=["draws", "corpus", "per-example"],
    needs=[Need("model", trait="context", why="draws by what came before the target")],
)
class NGramSampler(DrawnSampler):
    """Draws from an interpolated n-gram model of the context, which may follow the model's P.

    Formula: p(y | c) = w_0/V + Σ_n w_n · count(c_n, y) / count(c_n), with c_n the last n − 1 ids of
    the context; the weights of orders whose c_n was never seen are shared among the others.
    ``adapt`` moves w by one EM step towards the model's P, of which a weighted sample is given.

    Shapes: ``weights`` [order + 1]; context [B, order − 1], oldest id first, −1 where there is
    none; candidates [B, S]. A context of one row holds for every row.

    Cost: O(1) a draw; log p by O(order · log N) for a corpus of N ids; 8·order bytes an id and 16
    bytes a different n-gram.

    Reference: Bengio & Senécal 2003, 2008; Jelinek & Mercer 1980 (interpolation by EM).

    Use when: classes follow a short context (words in text) and importance sampling needs a
    proposal close to the model. Avoid when: there is no such context (``UnigramSampler``).

    ``sample`` has no argument for the context: call ``set_context`` before the head's forward, with
    the rows the head will see (an ignored example has none; ``ImportanceHead`` takes ``context``
    and does both). Without a context the unigram remains.

    >>> import torch
    >>> sampler = NGramSampler.from_corpus(torch.tensor([0, 1, 0, 1, 0, 2]), 3, order=2)
    >>> sampler.set_context(torch.tensor([[0], [1]]))
    >>> every_class = torch.arange(3).expand(2, 3)
    >>> sampler.log_prob(every_class).exp().round(decimals=3).tolist()
    [[0.278, 0.444, 0.278], [0.611, 0.222, 0.167]]
    """

    weights: Tensor
    """Interpolation weights: [0] of the uniform distribution, [n] of the n-gram."""

    _keys: Tensor
    _distinct: Tensor
    _counts: Tensor
    _contexts: Tensor
    _starts: Tensor
    _sizes: Tensor

    def __init__(
        self,
        num_classes: int,
        tables: Sequence[Tensor],
        *,
        weights: Sequence[float] | None = None,
        least_uniform: float = 0.01,
    ) -> None:
        super().__init__(num_classes, per_example=True)
        if not len(tables) or not len(tables[0]):
            raise ValueError("tables must hold the n-grams of at least one id, got none")
        self.order = len(tables)
        if not check_positive("least_uniform", least_uniform) < 1:
            raise ValueError(f"least_uniform must lie between 0 and 1, got {least_uniform!r}")
        self.least_uniform = least_uniform
        start = torch.tensor(_normalized_weights(weights, self.order), dtype=torch.float64)
        self.register_buffer("weights", _with_floor(start, least_uniform))
        self._levels = _slices(tables)
        self.register_buffer("_keys", torch.cat(list(tables)), persistent=False)
        # Counted once, so that a probability is one search in a table and not two.
        distinct, counts = zip(*(_counted(table) for table in tables), strict=True)
        self._distinct_levels = _slices(distinct)
        self.register_buffer("_distinct", torch.cat(distinct), persistent=False)
        self.register_buffer("_counts", torch.cat(counts), persistent=False)
        for name in ("_contexts", "_starts", "_sizes"):
            self.register_buffer(name, torch.empty(0, dtype=torch.int64), persistent=False)
        self.set_context(None)

    @classmethod
    def build(cls, setup: Setup) -> Self:
        """Return the sampler of a run: the n-grams of what is trained on."""
        corpus = setup.corpus
        # A mark after each sequence, which no n-gram crosses.
        ids = torch.full((len(corpus.values) + len(corpus),), ABSENT)
        places = torch.arange(len(corpus.values)) + torch.repeat_interleave(corpus.lengths)
        ids[places] = corpus.values
        return cls.from_corpus(ids, setup.num_classes, order=setup.options.proposal_order)

    @classmethod
    def from_corpus(
        cls,
        ids: Tensor,
        num_classes: int,
        *,
        order: int = 3,
        weights: Sequence[float] | None = None,
        least_uniform: float = 0.01,
    ) -> Self:
        """Count the n-grams of a 1-D corpus; −1 ends a text, and no n-gram crosses it."""
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
        tables = [torch.from_numpy(table) for table in count_ngrams(corpus, num_classes, order)]
        return cls(num_classes, tables, weights=weights, least_uniform=least_uniform)

    def set_context(self, context: Tensor | None) -> None:
        """Set what came before each row of the next batch: [B, order − 1], or [1, …] for all."""
        if context is None:
            context = torch.full((1, self.order - 1), ABSENT)
        context = check_preceding(context, self.num_classes, self.order).to(self._keys.device)
        found = [self._find(context[:, self.order - n :], n) for n in range(1, self.order + 1)]
        self._contexts = torch.stack([place.context for place in found], dim=1)
        self._starts = torch.stack([place.start for place in found], dim=1)
        self._sizes = torch.stack([place.size for place in found], dim=1)

    def draw(
        self,
        shape: tuple[int, ...],
        *,
        device: torch.device | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return independent draws, int64; their first dimension is that of the context."""
        size = (2, *table_shape(len(self._sizes), shape))
        uniform = torch.rand(
            size, dtype=torch.float64, device=self._keys.device, generator=generator
        )
        # The uniform component comes last: its share is above 0, whatever rounding does.
        cumulative = self._shares().flip(-1).cumsum(-1)
        picked = torch.searchsorted(cumulative, uniform[0], right=True).clamp_(max=self.order)
        order = self.order - picked
        level = (order - 1).clamp_(min=0)
        count = torch.where(order > 0, self._sizes.gather(1, level), self.num_classes)
        place = (uniform[1] * count).long().clamp_(max=count - 1)
        # Every occurrence of a context is one entry: a random one is a draw by count.
        entry = torch.where(order > 0, self._starts.gather(1, level) + place, 0)
        return torch.where(order > 0, self._keys[entry] % self.num_classes, place).view(shape)

    def log_prob(self, ids: Tensor) -> Tensor:
        """Return log p(y | context) for ids [B] or [B, S], or of any shape with one context."""
        return self._weighted(ids).sum(-1).log().view(ids.shape)

    @torch.no_grad()
    def adapt(self, ids: Tensor, log_ratios: Tensor, *, rate: float = 0.1) -> None:
        """Move ``weights`` by ``rate`` of an EM step towards the model's P(y | context).

        ``ids`` [B, S] are draws, ``log_ratios`` [B, S] = F(x, y) − log q(y) up to a constant of
        the row: their softmax makes the draws a sample of P.
        """
        if not 0 < rate <= 1:
            raise ValueError(f"rate must be above 0 and at most 1, got {rate!r}")
        if ids.dim() != 2 or ids.shape != log_ratios.shape:
            raise ValueError(
                f"ids and log_ratios must have one shape [B, S], got {list(ids.shape)} and "
                f"{list(log_ratios.shape)}"
            )
        if not ids.numel():
            return
        parts = self._weighted(ids).view(*ids.shape, -1)
        responsibility = parts / parts.sum(-1, keepdim=True)
        expected = (log_ratios.double().softmax(-1).unsqueeze(-1) * responsibility).sum(1)
        # An order that was never seen counts as picked and rejected, w_n / W times for each draw
        # that was kept: the EM of a truncated mixture.
        seen = self._seen()
        kept = (self.weights * seen).sum(-1, keepdim=True)
        counts = torch.where(seen, expected, self.weights / kept).sum(0)
        if bool(counts.isfinite().all()):
            moved = torch.lerp(self.weights, counts / counts.sum(), rate)
            self.weights.copy_(_with_floor(moved, self.least_uniform))

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
        return _Place(gram, start + self._levels[order - 1].start, size)

    def _seen(self) -> Tensor:
        """Return which components each context has, bool [R, order + 1]."""
        always = torch.ones_like(self._sizes[:, :1], dtype=torch.bool)
        return torch.cat([always, self._sizes > 0], dim=1)

    def _shares(self) -> Tensor:
        """Return the weights of each context's components, 0 where unseen, [R, order + 1]."""
        share = self.weights * self._seen()
        return share / share.sum(-1, keepdim=True)

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
            count = torch.where(table[place] == key, self._counts[level][place], 0)
            parts.append(count / self._sizes[:, index, None].clamp(min=1).double())
        return torch.stack(parts, dim=-1) * self._shares().unsqueeze(1)


class _Place(NamedTuple):
    """The number of a context, and its first entry and number of entries in the keys; each [B]."""

    context: Tensor
    start: Tensor
    size: Tensor


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


def _counted(table: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct keys of a table and their counts, then a largest key with count 0."""
    keys, counts = torch.unique_consecutive(table, return_counts=True)
    above = keys.new_tensor([torch.iinfo(keys.dtype).max])
    return torch.cat([keys, above]), torch.cat([counts, torch.zeros_like(above)])


def _normalized_weights(weights: Sequence[float] | None, order: int) -> list[float]:
    """Return ``order`` + 1 interpolation weights that sum to 1; None: all equal."""
    if weights is None:
        return [1 / (order + 1)] * (order + 1)
    if len(weights) != order + 1:
        raise ValueError(f"weights must hold order + 1 = {order + 1} values, got {len(weights)}")
    values = [check_not_negative(f"weights[{n}]", weight) for n, weight in enumerate(weights)]
    if not any(values):
        raise ValueError(f"weights must not all be 0, got {values}")
    return [value / sum(values) for value in values]


def _with_floor(weights: Tensor, floor: float) -> Tensor:
    """Return weights that sum to 1 with the first, the uniform one, at least ``floor``."""
    uniform = weights[:1].clamp(min=floor)
    rest = weights[1:].sum()
    scaled = weights[1:] * torch.where(rest > 0, (1 - uniform) / rest, 0.0)
    return torch.cat([uniform if bool(rest > 0) else torch.ones_like(uniform), scaled])
