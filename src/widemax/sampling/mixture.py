"""Several samplers at once, with the expected counts of the whole."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor, nn

from widemax.candidates import Candidates
from widemax.declarations import Option, Setup, declare
from widemax.sampling.base import NUM_SAMPLES, DrawnSampler, Sampler, absent_as_zero
from widemax.sampling.batch.in_batch import InBatchSampler
from widemax.validation import ABSENT, check_num_samples, check_positive, check_targets


@declare.sampler(
    "mixture",
    options=[
        NUM_SAMPLES,
        Option(
            "mixture",
            "unigram=1, uniform=1",
            "The samplers to mix, with weights, such as in-batch=1, uniform=1.",
            parts="sampler",
        ),
    ],
    # Distinct draws have no n·q(y).
    fixed={"unique": False},
    usual={"unique": False},
)
class MixtureSampler(Sampler):
    """Takes candidates from several samplers and weighs each class by all of them.

    Formula: log Q(y) = log Σ_k n_k · q_k(y) for every candidate and target, whichever sampler it
    came from; n_k is the number taken from sampler k, w_k·num_samples rounded by largest remainder.
    ``log_prob`` is log Σ_k w_k · q_k(y).

    Shapes: candidates [S], sampler by sampler, or [B, S] if every sampler is ``per_example``;
    ``rows`` is -1 for candidates that are not from the batch.

    Cost: the sum of the samplers', and log q_k of every candidate for each k.

    Reference: Yang et al. 2020 (mixed negative sampling).

    Use when: in-batch candidates need rare classes beside them. Avoid when: one proposal is enough.

    A sampler that has fewer than its share gives all it has, and the samplers without a limit draw
    the rest. Because n_k is counted rather than drawn, the expected counts are exact. Give each
    sampler a frequency of its own: one that learns and is shared would learn each batch twice.

    >>> import torch
    >>> from widemax.sampling.uniform import UniformSampler
    >>> from widemax.sampling.unigram import UnigramSampler
    >>> sampler = MixtureSampler([UniformSampler(2), UnigramSampler(2, [1, 0])], [0.5, 0.5])
    >>> sampler.sample(4, torch.tensor([0, 1])).target_log_expected_count.exp().round().tolist()
    [3.0, 1.0]
    """

    def __init__(self, samplers: Sequence[Sampler], weights: Sequence[float]) -> None:
        _check_samplers(samplers, weights)
        super().__init__(samplers[0].num_classes)
        self.samplers = nn.ModuleList(samplers)
        self.weights = tuple(weight / sum(weights) for weight in weights)
        self.per_example = samplers[0].per_example
        self.from_batch = any(sampler.from_batch for sampler in samplers)

    @classmethod
    def build(cls, setup: Setup) -> Self:
        """Return the sampler of a run: that of each part, with its weight."""
        samplers, weights = setup.mixed_samplers()
        return cls(samplers, weights)

    def _from_batch(self) -> Sampler | None:
        """Return the one sampler that takes candidates from the batch; None if several do."""
        found = [each for each in self._components() if isinstance(each, InBatchSampler)]
        return found[0] if len(found) == 1 else None

    def _components(self) -> list[Sampler]:
        return [sampler for sampler in self.samplers if isinstance(sampler, Sampler)]

    def available(self, targets: Tensor) -> int | None:
        """Return how many there are in all, None if one sampler has no limit."""
        limits = [sampler.available(targets) for sampler in self._components()]
        known = [limit for limit in limits if limit is not None]
        return sum(known) if len(known) == len(limits) else None

    def sample(
        self,
        num_samples: int | None,
        targets: Tensor,
        *,
        hidden: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Candidates:
        """Return ``num_samples`` candidates, split over the samplers by their weights."""
        targets = check_targets(targets, self.num_classes)
        sizes = self._split(num_samples, targets)
        taken = [
            _take(sampler, size, targets, hidden, generator)
            for sampler, size in zip(self._components(), sizes, strict=True)
            if size
        ]
        ids = torch.cat([part.ids for part in taken], dim=-1) if taken else targets.new_empty(0)
        known = targets.clamp(min=0)
        rows = _merge_rows(taken)
        from_batch = None if rows is None else self._from_batch()
        candidates = Candidates(
            ids=ids,
            log_expected_count=self._log_sum(ids, sizes),
            target_log_expected_count=absent_as_zero(self._log_sum(known, sizes), targets),
            rows=rows,
            row_log_prob=None if from_batch is None else from_batch.log_prob(ids),
            target_row_log_prob=None if from_batch is None else from_batch.log_prob(known),
        )
        if self.training:
            self.update(targets)
        return candidates

    def update(self, targets: Tensor) -> None:
        """Update the independent samplers; the others were updated when they were sampled."""
        for sampler in self._components():
            if isinstance(sampler, DrawnSampler):
                sampler.update(targets)

    def log_prob(self, ids: Tensor) -> Tensor:
        """Return log Σ w_k q_k(y) for each id."""
        return self._log_sum(ids, self.weights)

    def _log_sum(self, ids: Tensor, factors: Sequence[float]) -> Tensor:
        """Return log Σ factor_k · q_k(y) for each id."""
        terms = [
            sampler.log_prob(ids) + (math.log(factor) if factor else -math.inf)
            for sampler, factor in zip(self._components(), factors, strict=True)
        ]
        return torch.stack(terms).logsumexp(0)

    def _split(self, num_samples: int | None, targets: Tensor) -> list[int]:
        limits = [sampler.available(targets) for sampler in self._components()]
        if num_samples is None and self.available(targets) is not None:
            return [limit or 0 for limit in limits]
        num_samples = check_num_samples(num_samples, rows=len(targets) if self.per_example else 1)
        asked = largest_remainder(num_samples, self.weights)
        sizes = [
            size if limit is None else min(size, limit)
            for size, limit in zip(asked, limits, strict=True)
        ]
        excess = num_samples - sum(sizes)
        unlimited = [k for k, limit in enumerate(limits) if limit is None]
        if excess and not unlimited:
            raise ValueError(
                f"num_samples must be at most {num_samples - excess:,}: the samplers have {limits} "
                f"candidates for this batch and weights {self.weights}, got {num_samples:,}"
            )
        if excess:
            shares = largest_remainder(excess, [self.weights[k] for k in unlimited])
            for k, share in zip(unlimited, shares, strict=True):
                sizes[k] += share
        for k, (size, limit) in enumerate(zip(sizes, limits, strict=True)):
            if size == 0 and limit != 0:
                raise ValueError(
                    f"num_samples must leave samplers[{k}] at least one candidate, "
                    f"got {num_samples:,}, split into {sizes}"
                )
        return sizes


def largest_remainder(number: int, weights: Sequence[float]) -> list[int]:
    """Return integers that sum to ``number``, each within 1 of its share by weight."""
    total = sum(weights)
    quotas = [number * weight / total for weight in weights]
    sizes = [math.floor(quota) for quota in quotas]
    by_remainder = sorted(range(len(weights)), key=lambda k: sizes[k] - quotas[k])
    for k in by_remainder[: number - sum(sizes)]:
        sizes[k] += 1
    return sizes


def _take(
    sampler: Sampler,
    size: int,
    targets: Tensor,
    hidden: Tensor | None,
    generator: torch.Generator | None,
) -> Candidates:
    if not isinstance(sampler, DrawnSampler):
        return sampler.sample(size, targets, hidden=hidden, generator=generator)
    # Only the draws: what the sampler learns from this batch must wait until every q_k is read.
    shape = (targets.shape[0], size) if sampler.per_example else (size,)
    ids = sampler.draw(shape, device=targets.device, generator=generator)
    unused = torch.empty(0, dtype=torch.float64, device=targets.device)
    return Candidates(ids=ids, log_expected_count=unused, target_log_expected_count=unused)


def _merge_rows(taken: Sequence[Candidates]) -> Tensor | None:
    if all(part.rows is None for part in taken):
        return None
    rows = [torch.full_like(part.ids, ABSENT) if part.rows is None else part.rows for part in taken]
    return torch.cat(rows, dim=-1)


def _check_samplers(samplers: Sequence[Sampler], weights: Sequence[float]) -> None:
    for k, sampler in enumerate(samplers):
        if not isinstance(sampler, Sampler):
            raise ValueError(f"samplers[{k}] must be a Sampler, got {type(sampler).__name__}")
    if not samplers or len(samplers) != len(weights):
        raise ValueError(
            f"weights must hold one value per sampler, got {len(weights)} for {len(samplers)}"
        )
    for k, (sampler, weight) in enumerate(zip(samplers, weights, strict=True)):
        check_positive(f"weights[{k}]", weight)
        if sampler.num_classes != samplers[0].num_classes:
            raise ValueError(
                f"samplers must share num_classes = {samplers[0].num_classes:,}, "
                f"got {sampler.num_classes:,} for samplers[{k}]"
            )
        if not sampler.is_probability_sample:
            raise ValueError(f"samplers[{k}] is no probability sample: it has no q(y) to mix")
        if sampler.unique:
            raise ValueError(f"samplers[{k}] must not be unique: distinct draws have no n·q(y)")
        if sampler.per_example != samplers[0].per_example:
            raise ValueError(
                f"samplers[{k}] must draw per_example = {samplers[0].per_example} like the first: "
                "shared and per-example candidates do not join"
            )
        if isinstance(sampler, MixtureSampler):
            raise ValueError(f"samplers[{k}] is a mixture: list its samplers in this one instead")
