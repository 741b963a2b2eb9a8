"""Candidates of the batches of all processes, as if they were one batch."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from widemax.candidates import Candidates, InnerProduct
from widemax.distributed.wire import Wire, gathered_rows, starts
from widemax.heads.base import learns
from widemax.heads.batch import Batch
from widemax.sampling import Sampler
from widemax.scoring import Scorer
from widemax.scoring.computed import ComputedScorer


class JoinedBatches:
    """Lets a head train on its rows as part of the batch of all processes.

    A sampler that takes candidates from the batch, or learns from it, gets the targets of all
    processes, those of rank 0 first: candidates, log Q and what it has learned are those of one
    process on the joined batch, and a class is masked wherever it is a target. Candidates that are
    drawn for the whole batch are the same in all processes, drawn from a generator in the same
    state: so few rows are exchanged, and any number of processes draws what one would. A sampler
    that draws for each row draws for its own rows, from a generator of its own.

    ``head.joined = JoinedBatches(wire, generator)`` joins a head; all processes then call it
    together, each with one row or more, or with none.

    >>> import torch.distributed as dist
    >>> import widemax as wm
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> sampler = wm.InBatchSampler(9, wm.UniformSampler(9))
    >>> head = wm.SampledHead(wm.TableScorer(9, 2), sampler)
    >>> head.joined = JoinedBatches(Wire(), torch.Generator())
    >>> head(torch.zeros(3, 2), torch.tensor([5, 7, 8])).shape
    torch.Size([3])
    >>> dist.destroy_process_group()
    """

    def __init__(self, wire: Wire, generator: torch.Generator | None) -> None:
        self.wire = wire
        self.generator = generator
        """What all processes draw from, in the same state in each; None: torch's own."""
        self.is_padding = False
        """Whether the rows of this process only stand in for none: they join no batch."""
        self._owners: Tensor | None = None
        self._sizes = [0] * wire.size

    def draw(
        self,
        sampler: Sampler,
        num_samples: int | None,
        batch: Batch,
        generator: torch.Generator | None,
    ) -> Candidates:
        """Return the candidates of all batches, with the counts of the targets of this one."""
        targets, hidden, self._owners = batch.targets, batch.hidden, None
        parts = [each for each in sampler.modules() if isinstance(each, Sampler)]
        if not sampler.from_batch and not learns(sampler):
            shared = not any(_by_row(each) for each in parts)
            drawn_from = self.generator if shared else generator
            found = sampler.sample(num_samples, targets, hidden=hidden, generator=drawn_from)
            if shared and found.ids.dim() == 1:
                self._owners = torch.arange(len(found.ids)) % self.wire.size
            return found
        all_targets = self._joined(targets)
        all_hidden = hidden
        # Which of them are hard, the hidden states of their rows say.
        if not all(each.is_probability_sample for each in parts):
            all_hidden = torch.cat(self.wire.gathered(self._counted(hidden.detach()), self._sizes))
        found = sampler.sample(
            num_samples, all_targets, hidden=all_hidden, generator=self.generator
        )
        if found.ids.dim() == 1:
            self._owners = self._owners_of(found.rows, len(found.ids))
        return self._own(found, len(targets))

    def all_rows(self, values: Tensor) -> Tensor:
        """Return the values of the rows of all batches, those of this one first."""
        joined = torch.cat(self.wire.gathered(self._counted(values), self._sizes))
        return joined.roll(-self._first(), 0)

    def inner_product(
        self, scorer: Scorer, hidden: Tensor, targets: Tensor, ids: Tensor
    ) -> InnerProduct:
        """Return the factors of a scorer; a vector that a network computes, by one process for all.

        That of a candidate from the batch is computed where its row is. Rows of tables each process
        has itself.
        """
        owners = self._owners
        if owners is None or not isinstance(scorer, ComputedScorer):
            return scorer.inner_product(hidden, targets, ids)
        mine = ids[owners == self.wire.rank]
        vectors = scorer.class_vectors(torch.cat([targets, mine]))
        joined = gathered_rows(vectors[len(targets) :], self.wire)
        # They come rank by rank: back into the order of the candidates.
        order = torch.empty_like(owners)
        order[owners.argsort(stable=True)] = torch.arange(len(owners))
        return InnerProduct(
            queries=scorer.queries(hidden),
            vectors=torch.cat([vectors[: len(targets)], joined.index_select(0, order)]),
            biases=scorer.class_biases(torch.cat([targets, ids])),
        )

    def _counted(self, values: Tensor) -> Tensor:
        return values[:0] if self.is_padding else values

    def _joined(self, targets: Tensor) -> Tensor:
        """Return the targets of all batches, and remember how many each has."""
        own = self._counted(targets)
        self._sizes = self.wire.sizes(len(own))
        return torch.cat(self.wire.gathered(own, self._sizes))

    def _first(self) -> int:
        """Return where the rows of this process begin; one that stands in for none is the first."""
        return 0 if self.is_padding else starts(self._sizes)[self.wire.rank]

    def _owners_of(self, rows: Tensor | None, number: int) -> Tensor:
        """Return which process computes the vector of each candidate, [S]."""
        owners = torch.arange(number) % self.wire.size
        if rows is None:
            return owners
        ends = torch.tensor(starts(self._sizes)[1:])
        return torch.where(rows < 0, owners, torch.bucketize(rows, ends, right=True))

    def _own(self, found: Candidates, number: int) -> Candidates:
        """Return the candidates of the joined batch as the rows of this process see them."""
        total = sum(self._sizes)
        own = (self._first() + torch.arange(number)).clamp(max=max(total - 1, 0))
        if found.ids.dim() == 2:
            by_row = {
                name: None if (each := getattr(found, name)) is None else each[own]
                for name in ("ids", "log_expected_count", "rows", "row_log_prob")
            }
            found = replace(found, **by_row)  # type: ignore[arg-type]
        rows, target_log_prob = found.rows, found.target_row_log_prob
        if rows is not None:
            rows = torch.where(rows < 0, rows, (rows - self._first()) % max(total, 1))
        return replace(
            found,
            target_log_expected_count=found.target_log_expected_count[own],
            rows=rows,
            target_row_log_prob=None if target_log_prob is None else target_log_prob[own],
        )


def _by_row(sampler: Sampler) -> bool:
    """Return whether what is drawn belongs to a row."""
    return (
        sampler.per_example or not sampler.is_probability_sample or hasattr(sampler, "set_context")
    )
