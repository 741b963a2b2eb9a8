"""Every class once: the sampler that turns a sampled objective into the exact one."""

from __future__ import annotations

import torch
from torch import Tensor

from widemax.candidates import Candidates
from widemax.declarations import declare
from widemax.sampling.base import Sampler, uniform_log_prob, with_log_count_zero
from widemax.validation import MAX_TABLE_CLASSES, check_targets


@declare.sampler("all")
class AllClassesSampler(Sampler):
    """Lists every class once.

    Formula: Q(y) = 1 for every y; p(y) = 1 / V.

    Shapes: candidates [V].

    Cost: O(V), and so is the loss.

    Reference: with it ``sampled_softmax`` equals ``full_softmax``.

    Use when: an objective must be exact, in tests and small catalogues. Avoid when: V is large.

    >>> import torch
    >>> AllClassesSampler(5).sample(None, torch.tensor([3])).ids.tolist()
    [0, 1, 2, 3, 4]
    """

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes, limit=MAX_TABLE_CLASSES)

    def available(self, targets: Tensor) -> int:
        """Return the number of classes."""
        return self.num_classes

    def sample(
        self,
        num_samples: int | None,
        targets: Tensor,
        *,
        hidden: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Candidates:
        """Return all classes; ``num_samples`` must be None or ``num_classes``."""
        targets = check_targets(targets, self.num_classes)
        check_takes_all(num_samples, self.num_classes)
        return with_log_count_zero(torch.arange(self.num_classes, device=targets.device), targets)

    def log_prob(self, ids: Tensor) -> Tensor:
        """Return −log V for each id."""
        return uniform_log_prob(ids, self.num_classes)


def check_takes_all(num_samples: int | None, available: int) -> None:
    """Refuse a number of samples other than all there are."""
    if num_samples is not None and num_samples != available:
        raise ValueError(
            f"num_samples must be None or {available:,}, got {num_samples!r}: "
            "this sampler lists each of its classes once"
        )
