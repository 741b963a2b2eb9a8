"""Importance sampling that draws until its sample is worth what was asked for."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from widemax.declarations import Need, declare
from widemax.devices import by_kernels
from widemax.heads.base import SamplerHead
from widemax.heads.batch import Batch
from widemax.objectives import effective_sample_size, importance_sampling
from widemax.sampling import Sampler
from widemax.scoring import Scorer
from widemax.validation import (
    MAX_SAMPLES,
    check_num_samples,
    check_positive,
    check_tensor,
    check_whole,
)

_LOGGER = logging.getLogger(__name__)
_MAX_BLOCKS = 64


@dataclass(frozen=True, kw_only=True)
class ImportanceDraw:
    """What one forward of an ``ImportanceHead`` drew, and how well the proposal fits the model."""

    num_drawn: int
    """Candidates drawn for each row."""
    smallest_effective_size: float
    """The smallest ESS of a row, 0 for an empty batch; see ``effective_sample_size``."""
    mean_effective_size: float
    """The mean ESS over the rows, 0 for an empty batch."""


@declare.head(
    "importance",
    slots=["scorer", "sampler"],
    traits=["vectors", "sparse"],
    needs=[Need("sampler", trait="draws", why="draws as many classes as it needs")],
    fixed={"unique": False},
    usual={"unique": False},
)
class ImportanceHead(SamplerHead):
    """Softmax training with log Z from draws alone, as many as the sample needs.

    Formula: L = −F(x, t) + log Σ_i exp(F(x, y_i)) / Q(y_i). With ``effective_size`` the number of
    draws is doubled until ESS = (Σ r)² / Σ r² of **every row** of the batch reaches it, up to
    ``max_samples`` (None: 64 · num_samples). A mean over the rows would hide the one row whose
    log Z is missed, which is the one that diverges.

    Shapes: as ``Head``; ``context`` [B, …] is passed to the sampler (``NGramSampler``).

    Cost: O(B·S·D), S = draws made; memory O(B·S). ``last_draw`` holds S and the ESS.

    Reference: Bengio & Senécal 2003, 2008.

    Use when: the proposal follows the model: the ESS then stays near S. Avoid when: it does not;
    ``SampledHead`` with ``sampled_softmax`` is bounded with any proposal.

    The sampler must draw with replacement and without limit: ESS counts independent draws. ESS is
    an estimate itself: while no likely class has been drawn, it looks better than it is, so
    num_samples must not be tiny. In training mode a sampler with ``adapt`` receives the ratios.

    >>> import widemax as wm
    >>> scorer = wm.TableScorer(1000, 16)
    >>> head = ImportanceHead(scorer, wm.UniformSampler(1000), num_samples=32, effective_size=20)
    >>> _ = scorer.weight.data.zero_()
    >>> loss = head(torch.randn(4, 16), torch.tensor([1, 2, 3, 4])).mean()
    >>> round(loss.item(), 4), head.last_draw.num_drawn, round(head.last_draw.mean_effective_size)
    (6.9078, 32, 32)
    """

    last_draw: ImportanceDraw | None
    """What the last forward drew; None before the first, and where only the device knows it."""

    def __init__(
        self,
        scorer: Scorer,
        sampler: Sampler,
        *,
        num_samples: int,
        effective_size: float | None = None,
        max_samples: int | None = None,
        ignore_index: int = -100,
    ) -> None:
        num_samples = check_num_samples(num_samples)
        super().__init__(scorer, sampler, num_samples, ignore_index)
        _check_draws_with_replacement(sampler)
        self.max_samples = _check_max_samples(max_samples, num_samples, effective_size)
        self.effective_size = effective_size
        self.last_draw = None

    def forward(
        self,
        hidden: Tensor,
        targets: Tensor,
        *,
        weights: Tensor | None = None,
        context: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Draw until the sample is large enough and return the loss of each example, [B]."""
        batch = self._read_batch(hidden, targets, weights, generator)
        self._check_unlimited(batch.targets)
        if context is not None:
            self._set_context(context, batch)
        sample = self._draw_enough(batch, generator)
        losses = importance_sampling(
            self._target_scores(batch),
            sample.scores,
            log_expected_count=sample.log_expected_count,
            target_mask=batch.target_mask,
        )
        if self.training:
            self._adapt(sample)
        return batch.finish(losses)

    def _draw_enough(self, batch: Batch, generator: torch.Generator | None) -> _Sample:
        """Draw a block, and while some row's ESS is too small as many again."""
        sample = self._draw_block(self.num_samples, batch, generator)
        learns, self.sampler.training = self.sampler.training, False
        try:
            # Only the first block teaches a learning sampler: it learns from each batch once.
            while True:
                if self.effective_size is None and not by_kernels(sample.scores):
                    self.last_draw = None
                    return sample
                reached, wanted = sample.effective_size(), self.effective_size
                enough = wanted is None or bool((reached >= wanted).all())
                size = min(sample.size, self.max_samples - sample.size)
                if enough or size == 0:
                    break
                sample = sample.join(self._draw_block(size, batch, generator))
        finally:
            self.sampler.training = learns
        self.last_draw = ImportanceDraw(
            num_drawn=sample.size,
            smallest_effective_size=reached.min().item() if len(reached) else 0.0,
            mean_effective_size=reached.mean().item() if len(reached) else 0.0,
        )
        _LOGGER.debug("%s", self.last_draw)
        return sample

    def _draw_block(
        self, size: int | None, batch: Batch, generator: torch.Generator | None
    ) -> _Sample:
        candidates = self._draw(size, batch, generator)
        scores = self.scorer(batch.hidden, candidates.ids)
        return _Sample(candidates.ids, scores, candidates.log_expected_count)

    def _adapt(self, sample: _Sample) -> None:
        """Let a sampler that can follow the model see what the draws were worth."""
        adapt = getattr(self.sampler, "adapt", None)
        if adapt is not None:
            scores = sample.scores.detach()
            adapt(sample.ids.expand(scores.shape), scores - sample.log_expected_count)

    def _set_context(self, context: Tensor, batch: Batch) -> None:
        set_context = getattr(self.sampler, "set_context", None)
        if set_context is None:
            raise ValueError(
                f"context was given, but {type(self.sampler).__name__} does not depend on one"
            )
        if len(check_tensor("context", context)) != batch.size:
            raise ValueError(f"context must have {batch.size:,} rows, got {len(context):,}")
        set_context(batch.select(context))

    def _check_unlimited(self, targets: Tensor) -> None:
        """Refuse a sampler that lists classes or takes them from the batch, alone or mixed."""
        for sampler in self.sampler.modules():
            if isinstance(sampler, Sampler) and sampler.available(targets) is not None:
                raise ValueError(
                    f"sampler must draw any number of candidates, but {type(sampler).__name__} "
                    f"has {sampler.available(targets):,}: use SampledHead with the objective "
                    "importance_sampling"
                )


class _Sample(NamedTuple):
    """Draws, their scores [B, S] and log Q, whole as if they had been asked for at once."""

    ids: Tensor
    scores: Tensor
    log_expected_count: Tensor

    @property
    def size(self) -> int:
        return self.scores.shape[1]

    def join(self, other: _Sample) -> _Sample:
        total = math.log(self.size + other.size)
        log_expected_count = [
            part.log_expected_count + (total - math.log(part.size)) for part in (self, other)
        ]
        return _Sample(
            torch.cat([self.ids, other.ids], dim=-1),
            torch.cat([self.scores, other.scores], dim=-1),
            torch.cat(log_expected_count, dim=-1),
        )

    @torch.no_grad()
    def effective_size(self) -> Tensor:
        return effective_sample_size(self.scores.detach(), self.log_expected_count)


def _check_draws_with_replacement(sampler: Sampler) -> None:
    for part in sampler.modules():
        if getattr(part, "unique", False):
            raise ValueError(
                f"sampler must draw with replacement: {type(part).__name__} has unique=True"
            )
        if not getattr(part, "is_probability_sample", True):
            raise ValueError(
                f"sampler must draw from a distribution: the candidates of {type(part).__name__} "
                "are no probability sample"
            )


def _check_max_samples(
    max_samples: int | None, num_samples: int, effective_size: float | None
) -> int:
    if max_samples is None:
        max_samples = min(_MAX_BLOCKS * num_samples, MAX_SAMPLES)
    max_samples = check_whole("max_samples", max_samples, num_samples, MAX_SAMPLES)
    size = 1.0 if effective_size is None else check_positive("effective_size", effective_size)
    if size > max_samples:
        raise ValueError(
            f"effective_size must be at most max_samples = {max_samples:,}, got {size:,}"
        )
    return max_samples
