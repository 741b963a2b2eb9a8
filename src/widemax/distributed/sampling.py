"""Classes by their counts, each process drawing from those it holds."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from widemax.candidates import Candidates
from widemax.distributed.slices import Slices
from widemax.distributed.wire import Wire
from widemax.sampling import Sampler, UnigramSampler
from widemax.sampling.base import absent_as_zero
from widemax.validation import Counts, check_counts, check_num_samples, check_targets


class SlicedUnigramSampler(Sampler):
    """A ``UnigramSampler`` with replacement of which each process knows the classes it holds.

    Formula: p(y) = n(y)^distortion / Σ n^distortion over the classes of all processes. How many of
    the draws fall into each slice is drawn by all processes alike, from the sum of each slice;
    which classes they are, by the process that holds them. log Q(y) = log num_samples + log p(y) is
    thus the expected count over all processes, that of one ``UnigramSampler`` of all counts.

    Shapes: ``counts`` are those of this process' slice, [V_r]; candidates [S], the same everywhere.

    Cost: 12 bytes for each class of the slice; S ids and S + B probabilities travel.

    Reference: Mikolov et al. 2013; a multinomial draw in two stages.

    Use when: the counts of all classes are more than a process should hold. Avoid when: they are
    not (``UnigramSampler``), or no counts are needed (``LogUniformSampler``).

    All processes call ``sample`` together, with generators in the same state.

    >>> import torch.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> sampler = SlicedUnigramSampler(4, [100, 0, 16, 16], Wire(), distortion=0.5)
    >>> found = sampler.sample(9, torch.tensor([2]), generator=torch.Generator())
    >>> round(found.target_log_expected_count.exp().item(), 4)  # 9 · 4 / 18
    2.0
    >>> dist.destroy_process_group()
    """

    def __init__(
        self, num_classes: int, counts: Counts, wire: Wire, *, distortion: float = 0.75
    ) -> None:
        super().__init__(num_classes)
        self.slices = Slices(num_classes, wire)
        own = check_counts(counts, len(self.slices.own), all_zero=True)
        weights = torch.from_numpy(own).double()
        masses = torch.where(weights > 0, weights.clamp(min=1e-300) ** distortion, 0.0).sum()
        every = torch.cat(wire.gathered(masses.reshape(1), [1] * wire.size))
        if not float(every.sum()) > 0:
            raise ValueError("counts must have a class above 0 in some process, got none")
        self._shares = every / every.sum()
        self._own = UnigramSampler(len(own), own, distortion=distortion) if masses > 0 else None

    def sample(
        self,
        num_samples: int | None,
        targets: Tensor,
        *,
        hidden: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Candidates:
        """Draw ``num_samples`` candidates, each process those of its slice."""
        targets = check_targets(targets, self.num_classes)
        number, wire, first = (
            check_num_samples(num_samples),
            self.slices.wire,
            self.slices.own.start,
        )
        drawn = torch.multinomial(self._shares, number, replacement=True, generator=generator)
        sizes: list[int] = torch.bincount(drawn, minlength=wire.size).tolist()
        seed = int(torch.randint(2**62, (1,), generator=generator))
        own = torch.empty(0, dtype=torch.int64)
        if sizes[wire.rank] and self._own is not None:
            seeded = torch.Generator().manual_seed(seed + wire.rank)
            own = first + self._own.draw((sizes[wire.rank],), generator=seeded)
        ids = torch.cat(wire.gathered(own, sizes))
        flat = targets.reshape(-1).clamp(min=0)
        log_prob = self.log_prob(torch.cat([ids, flat])) + math.log(number)
        target_log_count = log_prob[len(ids) :].view(targets.shape)
        return Candidates(
            ids=ids,
            log_expected_count=log_prob[: len(ids)],
            target_log_expected_count=absent_as_zero(target_log_count, targets),
        )

    def log_prob(self, ids: Tensor) -> Tensor:
        """Return log p(y) of each id, from the process that holds it."""
        share = float(self._shares[self.slices.wire.rank])

        def own_log_prob(own: Tensor) -> Tensor:
            if self._own is None:
                return torch.full(own.shape, -math.inf, dtype=torch.float64)
            return self._own.log_prob(own) + math.log(share)

        return self.slices.answered(ids, own_log_prob)
