"""Zipf's law in closed form: no table, whatever the number of classes."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from widemax.candidates import Candidates
from widemax.declarations import declare
from widemax.devices import by_kernels
from widemax.kernels.sampling.log_uniform import distinct_log_uniform
from widemax.sampling.base import DRAWN, DRAWS, DrawnSampler
from widemax.validation import Counts, check_counts, check_num_samples, check_targets


@declare.sampler("log-uniform", options=DRAWN, traits=[*DRAWS, "kernel"])
class LogUniformSampler(DrawnSampler):
    """Draws classes by rank, the first ids most often (Zipf's law).

    Formula: p(y) = (ln(y+2) − ln(y+1)) / ln(V+1).

    Shapes: candidates [S], or [B, S] with ``per_example=True``.

    Cost: O(S), no table; any number of classes up to 2^40.

    Reference: TensorFlow's ``log_uniform_candidate_sampler``; Jozefowicz et al. 2016.

    Use when: ids are in falling count and the counts are near Zipf's law. Avoid when: ids are in
    any other order (``UnigramSampler``); pass ``counts`` and the order is checked.

    >>> import torch
    >>> sampler = LogUniformSampler(1_000_000)
    >>> candidates = sampler.sample(4, torch.tensor([7]), generator=torch.manual_seed(0))
    >>> candidates.ids.shape, round(sampler.log_prob(torch.tensor(0)).exp().item(), 4)
    (torch.Size([4]), 0.0502)
    """

    traced = True

    def __init__(
        self,
        num_classes: int,
        *,
        counts: Counts | None = None,
        unique: bool = False,
        per_example: bool = False,
    ) -> None:
        super().__init__(num_classes, unique=unique, per_example=per_example)
        if counts is not None:
            _check_falling(counts, num_classes)
        self._log_total = math.log1p(num_classes)

    def draw(
        self,
        shape: tuple[int, ...],
        *,
        device: torch.device | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return independent draws, int64 of the given shape."""
        # At V = 2^40 one step of u·ln(V+1) moves the last ids by 1/256, so that float64 gives each
        # its probability to 1 in 256 and any range of ids its probability to 1e-15.
        uniform = torch.rand(shape, dtype=torch.float64, device=device, generator=generator)
        ids = torch.expm1(uniform.mul_(self._log_total)).long()
        # u just below 1 rounds up to exactly V; no other id can be out of range.
        return ids.clamp_(max=self.num_classes - 1)

    def sample(
        self,
        num_samples: int | None,
        targets: Tensor,
        *,
        hidden: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Candidates:
        """Draw ``num_samples`` candidates, shared by the batch or for each example."""
        if self.unique and not self.per_example and by_kernels(targets):
            drawn = self._sample_by_kernel(num_samples, targets, generator)
            if drawn is not None:
                return drawn
        return super().sample(num_samples, targets, hidden=hidden, generator=generator)

    def _sample_by_kernel(
        self, num_samples: int | None, targets: Tensor, generator: torch.Generator | None
    ) -> Candidates | None:
        """Return distinct draws and their counts by one kernel; None where most are asked for."""
        targets = check_targets(targets, self.num_classes)
        size = check_num_samples(num_samples, rows=1)
        # Half of all classes are found in a few rounds; for more, only the general way gives up.
        if targets.dim() != 1 or not 0 < size <= self.num_classes // 2:
            return None
        # One row of them, as in the general way: the same seed then gives the same draws.
        uniform = torch.rand(1, 2 * size, dtype=torch.float64, generator=generator)
        while True:
            ids, _, log_count, target_log_count = distinct_log_uniform(
                uniform[0].numpy(), size, self.num_classes, targets.numpy()
            )
            if len(ids) == size:
                break
            more = torch.rand(uniform.shape, dtype=torch.float64, generator=generator)
            uniform = torch.cat([uniform, more], dim=1)
        return Candidates(
            ids=torch.from_numpy(ids),
            log_expected_count=torch.from_numpy(log_count),
            target_log_expected_count=torch.from_numpy(target_log_count),
        )

    def log_prob(self, ids: Tensor) -> Tensor:
        """Return log p(y) for each id; log1p keeps it exact for the last of 2^40 classes."""
        width = torch.log1p(1.0 / (ids.double() + 1.0))
        return width.log() - math.log(self._log_total)


def _check_falling(counts: Counts, num_classes: int) -> None:
    array = check_counts(counts, num_classes)
    rising = np.flatnonzero(array[1:] > array[:-1])
    if len(rising):
        first = int(rising[0])
        raise ValueError(
            "LogUniformSampler needs ids in falling count, but counts rises from "
            f"{array[first]} (class {first:,}) to {array[first + 1]} (class {first + 1:,}); "
            "renumber the classes, or use UnigramSampler, which takes any order"
        )
