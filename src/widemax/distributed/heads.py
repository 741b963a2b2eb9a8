"""Heads over tables that are divided over processes: exact sums and best classes, merged."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from widemax.candidates import TopK, merge_topk
from widemax.distributed.slices import log_sum_over_ranks, summed
from widemax.distributed.tables import SlicedTableScorer
from widemax.distributed.wire import Wire, gathered_rows, starts
from widemax.heads.base import ScorerHead
from widemax.heads.batch import Batch, label_shares
from widemax.heads.exact.linear import (
    linear_log_normalizer,
    linear_scores,
    linear_sums,
    linear_topk,
)
from widemax.heads.full import FullHead
from widemax.heads.sampled import SampledHead
from widemax.validation import ABSENT


class SlicedEvaluation(ScorerHead):
    """Exact evaluation over the slices of all processes, for rows that each process has itself.

    Formula: log Z = max_r + log Σ_r exp(log Z_r − max_r), log Z_r over the classes of process r:
    a largest and a sum of [B] numbers are all that is reduced. The k best are the best of the k
    best of each slice.

    Cost: each process scores the rows of all, B·V·D / n, and [B, D] hidden states travel. Scores of
    all classes, [B, V], have no gradient; those of given classes and log Z do.

    Use when: the scorer is a ``SlicedTableScorer``. Avoid when: a process can hold the table.
    """

    scorer: SlicedTableScorer

    @classmethod
    def of(cls, head: ScorerHead) -> Self:
        """Return a head with the parts of another; nothing is copied."""
        sliced = cls.__new__(cls)
        sliced.__dict__.update(head.__dict__)
        return sliced

    @property
    def _wire(self) -> Wire:
        return self.scorer.slices.wire

    def scores(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return F(x, y) of the given classes, or of all, [B, V], each slice from its holder."""
        self._check_hidden(hidden)
        if ids is not None:
            scores: Tensor = self.scorer(hidden, self._check_ids(hidden, ids))
            return scores
        sizes = self._wire.sizes(len(hidden))
        block = self.scorer.own_block(torch.cat(self._wire.gathered(hidden.detach(), sizes)))
        return self._own_rows_of_all(linear_scores(*block).detach(), sizes)

    def log_normalizer(self, hidden: Tensor) -> Tensor:
        """Return log Z(x), [B], exactly."""
        block = self.scorer.own_block(gathered_rows(self._check_hidden(hidden), self._wire))
        first = self._first(len(hidden))
        log_sums = log_sum_over_ranks(linear_log_normalizer(*block), self._wire)
        return log_sums[first : first + len(hidden)]

    def log_prob(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return log P(y | x), exactly normalised, of the given classes or of all."""
        log_normalizer = self.log_normalizer(hidden)[:, None]
        return self.scores(hidden, ids) - log_normalizer

    @torch.no_grad()
    def topk(self, hidden: Tensor, k: int, *, exclude: Tensor | None = None) -> TopK:
        """Return the k best classes, leaving out ``exclude`` [B, E], padded with -1."""
        k, exclude = self._check_topk(hidden, k, exclude)
        wire, own = self._wire, self.scorer.slices.own
        sizes = wire.sizes(len(hidden))
        block = self.scorer.own_block(torch.cat(wire.gathered(hidden, sizes)))
        left_out = None if exclude is None else self._all_excluded(exclude, sizes) - own.start
        if left_out is not None:
            left_out = left_out.masked_fill((left_out < 0) | (left_out >= len(own)), ABSENT)
        found = linear_topk(*block, min(k, len(own)), exclude=left_out)
        ids = torch.where(found.ids < 0, found.ids, found.ids + own.start)
        # Padded to k, so that all processes send as many columns.
        missing = (0, k - ids.shape[1])
        ids = torch.nn.functional.pad(ids, missing, value=ABSENT)
        scores = torch.nn.functional.pad(found.scores, missing, value=-torch.inf)
        parts = [
            torch.split(wire.exchanged(each, sizes, [len(hidden)] * wire.size), len(hidden))
            if len(hidden)
            else [wire.exchanged(each, sizes, [0] * wire.size)]
            for each in (ids, scores)
        ]
        answers = [TopK(ids=i, scores=s) for i, s in zip(*parts, strict=True)]
        return merge_topk(answers, k)

    def _all_excluded(self, exclude: Tensor, sizes: list[int]) -> Tensor:
        """Return what the rows of all processes leave out, as wide as the widest."""
        widest = max(self._wire.sizes(exclude.shape[1]))
        missing = (0, widest - exclude.shape[1])
        padded = torch.nn.functional.pad(exclude, missing, value=ABSENT)
        return torch.cat(self._wire.gathered(padded, sizes))

    def _first(self, rows: int) -> int:
        return starts(self._wire.sizes(rows))[self._wire.rank]

    def _own_rows_of_all(self, scores: Tensor, sizes: list[int]) -> Tensor:
        """Return own rows against all classes, [b, V], from all rows against own classes."""
        wire, own = self._wire, sizes[self._wire.rank]
        widest = self.scorer.slices.rows_each
        padded = torch.nn.functional.pad(scores, (0, widest - scores.shape[1]))
        parts = wire.exchanged(padded, sizes, [own] * wire.size).view(wire.size, own, widest)
        return torch.cat(
            [
                part[:, :width]
                for part, width in zip(parts, self.scorer.slices.sizes(), strict=True)
            ],
            dim=1,
        )


class SlicedFullHead(SlicedEvaluation, FullHead):
    """The exact softmax over a table that is divided over processes.

    Formula: L = log Z − F(x, t), log Z from a largest and a sum over the processes.

    Shapes: as ``Head``; each process has rows of its own, as many as it likes.

    Cost: O(B·V·D / n) a process for B rows of all, and [B, D] hidden states and gradients travel;
    no gradient of a table does.

    Reference: Shoeybi et al. 2019 (Megatron-LM), the parallel cross-entropy.

    Use when: V is so large that a process cannot hold the table, and the exact loss is wanted.
    Avoid when: a sampled loss will do (``SlicedSampledHead`` moves the rows of its candidates).

    >>> import torch.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> head = SlicedFullHead(SlicedTableScorer(1000, 16, Wire()))
    >>> _ = head.scorer.weight.data.zero_()
    >>> round(head(torch.randn(1, 16), torch.tensor([3])).item(), 4)  # log 1000
    6.9078
    >>> dist.destroy_process_group()
    """

    def batch_losses(self, batch: Batch, generator: torch.Generator | None) -> Tensor:
        """Return the exact loss of each example, [B]; nothing is drawn."""
        wire, slices, smoothing = self._wire, self.scorer.slices, self.label_smoothing
        sizes = wire.sizes(len(batch.hidden))
        block = self.scorer.own_block(gathered_rows(batch.hidden, wire))
        shares = label_shares(batch.targets, block.queries) * (1 - smoothing)
        targets = torch.cat(wire.gathered(batch.target_ids, sizes))
        weights = torch.cat(wire.gathered(shares, sizes))
        inside = slices.inside(targets)
        sums = linear_sums(
            *block,
            (targets - slices.own.start).clamp(0, len(slices.own) - 1),
            weights.masked_fill(~inside, 0.0),
            mean_weight=smoothing * len(slices.own) / slices.num_rows,
        )
        losses = log_sum_over_ranks(sums[0], wire) - summed(sums[1], wire)
        first = starts(sizes)[wire.rank]
        return losses[first : first + len(batch.hidden)]


class SlicedSampledHead(SlicedEvaluation, SampledHead):
    """A ``SampledHead`` over a table that is divided over processes.

    Formula: that of ``SampledHead``; candidates are the same in all processes (``JoinedBatches``),
    their vectors come from the processes that hold them.

    Shapes: as ``SampledHead``; each process has rows of its own.

    Cost: O(b·S·D) for b rows; the rows of the b targets and S candidates travel, whatever V is.

    Reference: Jean et al. 2015, over the tables of Naumov et al. 2019.

    Use when: no process can hold the table. Avoid when: one can.

    >>> import torch.distributed as dist
    >>> import widemax as wm
    >>> from widemax.distributed import JoinedBatches
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> scorer = SlicedTableScorer(1000, 16, Wire())
    >>> head = SlicedSampledHead(scorer, wm.UniformSampler(1000), num_samples=99)
    >>> head.joined = JoinedBatches(scorer.slices.wire, torch.Generator().manual_seed(0))
    >>> _ = scorer.weight.data.zero_()
    >>> round(head(torch.randn(8, 16), torch.arange(8)).mean().item(), 1)  # log 100
    4.6
    >>> dist.destroy_process_group()
    """
