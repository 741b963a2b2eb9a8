"""Target sampling: a consecutive part of the corpus competes only with its own targets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

import numpy as np
import torch
from torch import Tensor

from widemax.candidates import Candidates
from widemax.declarations import Need, Option, Setup, declare
from widemax.kernels.sampling.partition import partition_starts
from widemax.sampling.all_classes import check_takes_all
from widemax.sampling.base import Sampler, uniform_log_prob, with_log_count_zero
from widemax.validation import (
    ABSENT,
    MAX_CLASSES,
    MAX_TABLE_CLASSES,
    check_ids,
    check_num_classes,
    check_targets,
    check_tensor,
    check_whole,
)


@declare.sampler(
    "partition",
    options=[
        Option(
            "max_classes", 8192, "Most distinct targets in a part of the data.", least=2, most=2**28
        ),
        Option(
            "share_correction",
            False,
            "Whether log Q is that of the share of the data whose part holds a class.",
        ),
    ],
    traits=["corpus"],
    needs=[Need("model", trait="windows", why="reads the data part by part, target by target")],
)
class PartitionSampler(Sampler):
    """Lists the classes of the selected part of the corpus, each once.

    Formula: p(y) = 1 / |V'_i| for y in V'_i, the distinct targets of part i, else 0; Q(y) = 1, so
    that the correction cancels and the loss is a softmax over V'_i, as published. A class then
    competes only where it occurs, and comes out about 1/π(y) times too likely, π(y) = Σ_{i: y ∈
    V'_i} n_i / Σ_i n_i for parts of n_i targets. With ``share_correction`` Q(y) = π(y), which is
    how often y is to be expected over all parts: F then learns nearly log P + K(x), and exactly
    that only if Σ_{y ∈ V'_i} P(y | x)/π(y) is alike in all parts.

    Shapes: ``parts`` is a sequence of 1-D ids, ``sizes`` their numbers of targets (None: alike);
    candidates [|V'_i|]. ``ranges`` holds (start, stop) of each part in the corpus, and is empty
    when the parts were given.

    Cost: O(|V'_i|) a batch; ``from_targets`` O(N log N) once.

    Reference: Jean et al. 2015.

    Use when: a corpus is read in order and the device holds few class vectors. Avoid when: the
    batches are shuffled over the whole corpus; a target outside the selected part is an error.
    Without ``share_correction``, when probabilities matter: rare classes are too likely.

    >>> import torch
    >>> corpus = torch.tensor([3, 3, 1, 0, 1, 0])
    >>> sampler = PartitionSampler.from_targets(corpus, 4, max_classes=2)
    >>> sampler.ranges, sampler.sample(None, torch.tensor([3])).ids.tolist()
    (((0, 3), (3, 6)), [1, 3])
    >>> sampler = PartitionSampler.from_targets(corpus, 4, max_classes=2, share_correction=True)
    >>> sampler.sample(None, torch.tensor([3])).log_expected_count.exp().tolist()
    [1.0, 0.5]
    """

    part: Tensor
    ranges: tuple[tuple[int, int], ...]
    _log_share: Tensor | None

    def __init__(
        self,
        num_classes: int,
        parts: Sequence[Tensor],
        *,
        sizes: Sequence[int] | None = None,
        share_correction: bool = False,
    ) -> None:
        super().__init__(num_classes)
        if not len(parts):
            raise ValueError("parts must hold at least one part, got none")
        self._parts: list[Tensor] = []
        for index, ids in enumerate(parts):
            if check_tensor(f"parts[{index}]", ids).dim() != 1 or not len(ids):
                raise ValueError(
                    f"parts[{index}] must be 1-D with at least one id, got shape {list(ids.shape)}"
                )
            self._parts.append(torch.unique(check_ids(f"parts[{index}]", ids, num_classes)))
        self.ranges = ()
        self.register_buffer("part", torch.zeros((), dtype=torch.int64))
        share = _log_shares(num_classes, self._parts, sizes) if share_correction else None
        self.register_buffer("_log_share", share, persistent=False)

    @classmethod
    def build(cls, setup: Setup) -> Self:
        """Return the sampler of a run: parts of what is trained on, in its order."""
        return cls.from_targets(
            setup.corpus.values,
            setup.num_classes,
            max_classes=setup.options.max_classes,
            share_correction=setup.options.share_correction,
        )

    @classmethod
    def from_targets(
        cls,
        targets: Tensor,
        num_classes: int,
        *,
        max_classes: int,
        share_correction: bool = False,
    ) -> Self:
        """Cut a 1-D corpus into consecutive ranges of at most ``max_classes`` distinct targets."""
        if check_tensor("targets", targets).dim() != 1 or not len(targets):
            raise ValueError(
                f"targets must be 1-D with at least one entry, got shape {list(targets.shape)}"
            )
        num_classes = check_num_classes(num_classes, limit=MAX_TABLE_CLASSES)
        max_classes = check_whole("max_classes", max_classes, 1, MAX_CLASSES)
        corpus = check_ids("targets", targets, num_classes).cpu().numpy()
        starts = partition_starts(corpus, num_classes, max_classes).tolist()
        ranges = tuple(zip(starts, [*starts[1:], len(corpus)], strict=True))
        parts = [torch.from_numpy(np.unique(corpus[start:stop])) for start, stop in ranges]
        sizes = [stop - start for start, stop in ranges]
        sampler = cls(num_classes, parts, sizes=sizes, share_correction=share_correction)
        sampler.ranges = ranges
        return sampler

    @property
    def num_parts(self) -> int:
        """How many parts there are."""
        return len(self._parts)

    @property
    def classes(self) -> Tensor:
        """The ids of the selected part, in rising order."""
        return self._parts[int(self.part)].to(self.part.device)

    def select(self, part: int) -> None:
        """Make ``part`` the current one."""
        self.part.fill_(check_whole("part", part, 0, self.num_parts - 1))

    def available(self, targets: Tensor) -> int:
        """Return the number of classes of the selected part."""
        return len(self._parts[int(self.part)])

    def sample(
        self,
        num_samples: int | None,
        targets: Tensor,
        *,
        hidden: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Candidates:
        """Return all classes of the part; ``num_samples`` must be None or their number."""
        targets = check_targets(targets, self.num_classes)
        ids = self.classes
        check_takes_all(num_samples, len(ids))
        outside = targets[~_contains(ids, targets) & (targets != ABSENT)]
        if len(outside):
            raise ValueError(
                f"targets must lie in part {int(self.part):,}, which has {len(ids):,} classes; "
                f"{int(outside[0]):,} does not: select the part these targets belong to"
            )
        if self._log_share is None:
            return with_log_count_zero(ids, targets)
        return Candidates(
            ids=ids,
            log_expected_count=self._log_share[ids],
            target_log_expected_count=torch.where(
                targets == ABSENT, 0.0, self._log_share[targets.clamp(min=0)]
            ),
        )

    def log_prob(self, ids: Tensor) -> Tensor:
        """Return −log |V'_i| for the ids of the selected part, −inf for all others."""
        classes = self.classes
        outside = ~_contains(classes, ids)
        return uniform_log_prob(ids, len(classes)).masked_fill(outside, -math.inf)


def _log_shares(num_classes: int, parts: Sequence[Tensor], sizes: Sequence[int] | None) -> Tensor:
    """Return the logarithm of the share of the targets whose part holds each class, [V]."""
    if sizes is None:
        sizes = [1] * len(parts)
    if len(sizes) != len(parts):
        raise ValueError(f"sizes must have one number a part, {len(parts):,}, got {len(sizes):,}")
    share = torch.zeros(num_classes, dtype=torch.float64)
    for index, (ids, size) in enumerate(zip(parts, sizes, strict=True)):
        share[ids] += check_whole(f"sizes[{index}]", size, 1, 2**62)
    return (share / sum(sizes)).log()


def _contains(ordered: Tensor, ids: Tensor) -> Tensor:
    """Return a mask, like ``ids``, of those that the rising ``ordered`` holds."""
    place = torch.searchsorted(ordered, ids).clamp_(max=len(ordered) - 1)
    return ordered[place] == ids
