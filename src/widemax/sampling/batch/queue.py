"""The targets of the last batches as candidates."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from widemax.declarations import Option, Setup, declare
from widemax.sampling.batch.in_batch import Frequency, InBatchSampler, frequency_of
from widemax.validation import ABSENT, MAX_SAMPLES, check_whole


@declare.sampler(
    "queue",
    options=[
        Option("queue_size", 2048, "Targets of earlier batches that compete.", least=1, most=2**28)
    ],
    traits=["mixes"],
)
class QueueSampler(InBatchSampler):
    """Lets the targets of a batch compete with each other and with those of the last batches.

    Formula: log Q(y) = log n + log p(y), n candidates, p from ``frequency``.

    Shapes: candidates [S], first the batch's own targets (``rows`` says whose), then the latest
    ``capacity`` earlier ones, newest first (``rows`` = -1).

    Cost: O(S); 8 bytes for each place of the queue.

    Reference: Wang et al. 2020 (cross-batch memory).

    Use when: a batch alone has too few candidates. Avoid when: independent draws are possible and
    cheap (``UnigramSampler``).

    Only ids are queued: class vectors are read from the scorer as they are now, so none is stale.
    The queue is part of ``state_dict`` and moves only in training mode, after the candidates are
    taken.

    >>> import torch
    >>> from widemax.sampling.uniform import UniformSampler
    >>> sampler = QueueSampler(10, UniformSampler(10), capacity=3)
    >>> _ = sampler.sample(None, torch.tensor([1, 2]))
    >>> sampler.sample(None, torch.tensor([7])).ids.tolist()
    [7, 2, 1]
    """

    queue: Tensor
    position: Tensor
    filled: Tensor

    def __init__(self, num_classes: int, frequency: Frequency, *, capacity: int) -> None:
        super().__init__(num_classes, frequency)
        self.capacity = check_whole("capacity", capacity, 1, MAX_SAMPLES)
        self.register_buffer("queue", torch.full((self.capacity,), ABSENT))
        self.register_buffer("position", torch.zeros((), dtype=torch.int64))
        self.register_buffer("filled", torch.zeros((), dtype=torch.int64))

    @classmethod
    def build(cls, setup: Setup) -> Self:
        """Return the sampler of a run, by the counts of its targets where they are known."""
        return cls(setup.num_classes, frequency_of(setup), capacity=setup.options.queue_size)

    def available(self, targets: Tensor) -> int:
        """Return the number of targets present and queued."""
        return super().available(targets) + int(self.filled)

    def pool(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the ids to choose from and the row of the batch of each, both [S]."""
        ids, rows = super().pool(targets)
        age = torch.arange(int(self.filled), device=ids.device)
        queued = self.queue[(self.position - 1 - age) % self.capacity]
        return torch.cat([ids, queued]), torch.cat([rows, torch.full_like(queued, ABSENT)])

    def update(self, targets: Tensor) -> None:
        """Push the targets present into the queue, the oldest falling out."""
        fresh = targets[targets != ABSENT][-self.capacity :]
        places = (self.position + torch.arange(len(fresh), device=fresh.device)) % self.capacity
        self.queue[places] = fresh
        self.position.add_(len(fresh)).remainder_(self.capacity)
        self.filled.add_(len(fresh)).clamp_(max=self.capacity)
