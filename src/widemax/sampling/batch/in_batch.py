"""The batch's own targets as candidates."""

from __future__ import annotations

import math
from typing import Protocol, Self

import torch
from torch import Tensor

from widemax.candidates import Candidates
from widemax.declarations import Setup, declare
from widemax.sampling.base import Sampler, absent_as_zero
from widemax.sampling.batch.streaming import StreamingFrequency
from widemax.sampling.unigram import UnigramSampler
from widemax.validation import ABSENT, check_num_samples, check_targets


class Frequency(Protocol):
    """Anything that knows how likely each class is to be a target, such as a ``UnigramSampler``.

    If it also has ``update(targets)``, that is called with the targets of each training batch,
    before ``log_prob``.
    """

    def log_prob(self, ids: Tensor) -> Tensor:
        """Return log p(y) of one target, float64 like ``ids``."""


@declare.sampler("in-batch", traits=["mixes"])
class InBatchSampler(Sampler):
    """Lets the targets of a batch compete with each other.

    Formula: log Q(y) = log n + log p(y), n candidates, p from ``frequency``: the targets of a
    batch are draws from the frequency of the targets. Every copy of a class is a candidate, so
    Q(y) is a number of copies and may be above 1.

    Shapes: candidates [S], S = number of targets present in [B] or [B, T]; ``rows`` [S] says which
    row each came from. ``num_samples=None`` takes all in order, a smaller number a random subset.

    Cost: O(S), and no class vector beyond those of the batch.

    Reference: Yi et al. 2019.

    A row's own target is always among the candidates. Objectives that remove hits never see it;
    for those that keep them (``nce``) ``SampledHead`` leaves the row's own out, and counts the
    others.

    Use when: class vectors come from a tower and are costly. Avoid when: batches are small, or
    rare classes must be pushed down too (``MixtureSampler`` with a ``UniformSampler``).

    A candidate to which ``frequency`` gives probability 0 is an error: it has just been seen.

    >>> import torch
    >>> from widemax.sampling.unigram import UnigramSampler
    >>> sampler = InBatchSampler(4, UnigramSampler(4, [4, 2, 1, 1], distortion=1.0))
    >>> candidates = sampler.sample(None, torch.tensor([1, 0]))
    >>> candidates.ids.tolist(), candidates.log_expected_count.exp().tolist()
    ([1, 0], [0.5, 1.0])
    """

    from_batch = True

    def __init__(self, num_classes: int, frequency: Frequency) -> None:
        super().__init__(num_classes)
        if not callable(getattr(frequency, "log_prob", None)):
            raise ValueError(f"frequency must have a method log_prob(ids), got {frequency!r}")
        known = getattr(frequency, "num_classes", num_classes)
        if known != num_classes:
            raise ValueError(
                f"frequency must have num_classes = {num_classes:,} classes, got {known:,}"
            )
        self.frequency = frequency

    @classmethod
    def build(cls, setup: Setup) -> Self:
        """Return the sampler of a run, by the counts of its targets where they are known."""
        return cls(setup.num_classes, frequency_of(setup))

    def available(self, targets: Tensor) -> int:
        """Return the number of targets present."""
        return int((targets != ABSENT).sum())

    def sample(
        self,
        num_samples: int | None,
        targets: Tensor,
        *,
        hidden: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Candidates:
        """Return ``num_samples`` of the targets, or all of them in order when it is None."""
        targets = check_targets(targets, self.num_classes)
        ids, rows = self.pool(targets)
        num_samples = len(ids) if num_samples is None else check_num_samples(num_samples)
        if num_samples > len(ids):
            raise ValueError(
                f"num_samples must be at most {len(ids):,}, the candidates there are for this "
                f"batch, got {num_samples:,}"
            )
        if num_samples < len(ids):
            order = torch.randperm(len(ids), device=ids.device, generator=generator)
            ids, rows = ids[order[:num_samples]], rows[order[:num_samples]]
        if self.training and hasattr(self.frequency, "update"):
            self.frequency.update(targets)
        log_size = math.log(num_samples) if num_samples else -math.inf
        log_prob = _check_seen(ids, self.log_prob(ids))
        target_log_prob = self.log_prob(targets.clamp(min=0))
        candidates = Candidates(
            ids=ids,
            log_expected_count=log_prob + log_size,
            target_log_expected_count=absent_as_zero(target_log_prob + log_size, targets),
            rows=rows,
            row_log_prob=log_prob,
            target_row_log_prob=target_log_prob,
        )
        if self.training:
            self.update(targets)
        return candidates

    def log_prob(self, ids: Tensor) -> Tensor:
        """Return log p(y) of each id by ``frequency``."""
        return self.frequency.log_prob(ids)

    def pool(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the ids to choose from and the row of the batch of each, both [S]."""
        present = targets != ABSENT
        return targets[present], present.nonzero()[:, 0]


def frequency_of(setup: Setup) -> Frequency:
    """Return how likely each class is to be a target of a run.

    Where the model's targets are the interactions that were counted, by the counts, in which a
    class that was never seen counts once; else by following the targets as they come.
    """
    counts = setup.target_counts
    if counts is None:
        return StreamingFrequency(setup.num_classes)
    return UnigramSampler(setup.num_classes, counts.clamp(min=1), distortion=1.0)


def _check_seen(ids: Tensor, log_prob: Tensor) -> Tensor:
    never = ids[log_prob == -math.inf]
    if len(never):
        raise ValueError(
            f"frequency gives probability 0 to class {int(never[0]):,}, which is a candidate: "
            "its counts do not belong to these targets"
        )
    return log_prob
