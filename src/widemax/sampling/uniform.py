"""Every class equally likely."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from widemax.declarations import declare
from widemax.devices import by_kernels
from widemax.sampling.base import (
    DRAWN,
    DRAWS,
    DrawnSampler,
    log_expected_count,
    log_expected_count_of_one,
    uniform_log_prob,
)


@declare.sampler("uniform", options=DRAWN, traits=[*DRAWS, "kernel"])
class UniformSampler(DrawnSampler):
    """Draws every class with the same probability.

    Formula: p(y) = 1 / V.

    Shapes: candidates [S], or [B, S] with ``per_example=True``.

    Cost: O(S), no table; any number of classes up to 2^40.

    Reference: Bengio & Senécal 2003.

    Use when: the objective ignores popularity, or rare classes must be seen as often as frequent
    ones. Avoid when: few samples must cover a skewed catalogue (``LogUniformSampler``,
    ``UnigramSampler``).

    >>> import torch
    >>> sampler = UniformSampler(1000, unique=True)
    >>> candidates = sampler.sample(50, torch.tensor([7]), generator=torch.manual_seed(0))
    >>> len(set(candidates.ids.tolist())), round(sampler.log_prob(torch.tensor(3)).exp().item(), 4)
    (50, 0.001)
    """

    traced = True

    def draw(
        self,
        shape: tuple[int, ...],
        *,
        device: torch.device | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return independent draws, int64 of the given shape."""
        return torch.randint(self.num_classes, shape, device=device, generator=generator)

    def _log_counts(
        self, ids: Tensor, targets: Tensor, tries: Tensor | None, num_samples: int
    ) -> tuple[Tensor, Tensor]:
        """Return the log expected counts of candidates and targets, which are all the same."""
        if self.per_example:
            return super()._log_counts(ids, targets, tries, num_samples)
        if by_kernels(ids):  # where Python may read how many tries there were
            number = None if tries is None else int(tries)
            log_count = log_expected_count_of_one(-math.log(self.num_classes), num_samples, number)
            of_ids = torch.full((len(ids),), log_count, dtype=torch.float64)
            return of_ids, torch.full(targets.shape, log_count, dtype=torch.float64)
        count = log_expected_count(self.log_prob(ids.new_zeros(1)), num_samples, tries)
        return count.expand(len(ids)).contiguous(), count.expand(targets.shape).contiguous()

    def log_prob(self, ids: Tensor) -> Tensor:
        """Return −log V for each id."""
        return uniform_log_prob(ids, self.num_classes)
