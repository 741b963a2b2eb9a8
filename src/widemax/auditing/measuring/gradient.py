"""The gradient audit: many draws of a head's loss against the exact softmax."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from widemax.auditing.measuring.drawing import BeforeBatch, Draws, Progress, held_still
from widemax.auditing.measuring.exact import ExactFigures, measure_exact
from widemax.auditing.measuring.meaning import meaning_of, notes_on
from widemax.auditing.measuring.moments import (
    NUM_GROUPS,
    Moments,
    cosine,
    relative_bias,
    relative_length,
    relative_spread,
)
from widemax.auditing.measuring.proposal import ProposalFit, measure_proposal
from widemax.auditing.measuring.report import AuditFigures, AuditReport, GradientFigures
from widemax.auditing.measuring.spaces import ClassSums, GradientSums, HiddenSums, Part, ScoreSums
from widemax.heads import Head, LayeredHead, ScorerHead
from widemax.heads.base import SamplerHead
from widemax.heads.batch import label_shares
from widemax.scoring.rows import widened
from widemax.validation import ABSENT, check_fraction, check_targets

MAX_EXAMPLES = 2**14
"""More than this share too few places to be told apart."""


def audit(
    head: Head,
    hidden: Tensor,
    targets: Tensor,
    *,
    draws: int = 1000,
    batch_size: int | None = None,
    tolerance: float = 0.03,
    groups: Mapping[str, Tensor] | None = None,
    generator: torch.Generator | None = None,
    before_batch: BeforeBatch | None = None,
    progress: Progress | None = None,
) -> AuditReport:
    """Measure how far a head's expected gradient is from the exact softmax's, on your data.

    bias² = ⟨ḡ_j − g*, ḡ_k − g*⟩ / ‖g*‖², the mean over pairs of independent groups of draws, which
    the noise of the draws does not inflate. For a head with a sampler g is taken for the scores of
    all classes, g* = softmax(F) − label, for the hidden states and for the class vectors; for any
    other head for the hidden states, and g* is that of the softmax of its scores or, where it has
    none, of its own −log P. Logistic losses such as ``nce``, and label smoothing, are far from the
    softmax without being wrong; ``notes`` of the report says so.

    In each draw every example (hidden [N, D], targets [N] or [N, T]) is trained on once: all
    together, or in random batches of ``batch_size``, which must be given where candidates come
    from the batch. ``draws`` is rounded up to a multiple of 20; where nothing is random, 20 are
    made. It costs O(draws·N·S·D + N·V·D) time and at most some 200 MB, whatever V is: beyond some
    thousand classes gradients are kept as sketches, whose error is part of the interval.
    ``groups`` names examples, bool [N] each, that are judged alone too. ``before_batch(rows)`` is
    called before each batch, ``progress(done, total)`` after each draw.

    The head is not changed: its samplers do not learn from the audit, no gradient is written.

    >>> import widemax as wm
    >>> _ = torch.manual_seed(0)
    >>> head = wm.SampledHead(wm.TableScorer(50, 4), wm.sampling.AllClassesSampler(50))
    >>> hidden, targets = torch.randn(8, 4), torch.arange(8)
    >>> report = audit(head, hidden, targets)  # every class competes: nothing is random
    >>> round(report.bias, 3), report.biased
    (0.0, False)
    """
    check_fraction("tolerance", tolerance)
    if draws < NUM_GROUPS:
        raise ValueError(f"draws must be at least {NUM_GROUPS}, got {draws:,}")
    if isinstance(head, LayeredHead):
        # What is sampled lies behind the layer.
        with torch.no_grad():
            hidden = head.layer(hidden)
        head = head.head
    examples = _read(head, hidden, targets, groups or {}, before_batch)
    hidden, targets, before_batch = examples.hidden, examples.targets, examples.before_batch
    if batch_size is not None and not 1 <= batch_size <= len(hidden):
        raise ValueError(
            f"batch_size must be between 1 and {len(hidden):,} (examples), got {batch_size:,}"
        )
    rounds = math.ceil(draws / NUM_GROUPS)
    with held_still(head):
        fit = None
        if isinstance(head, SamplerHead):
            fit = measure_proposal(
                head,
                hidden,
                targets,
                batch_size=batch_size,
                generator=generator,
                before_batch=before_batch,
            )
            _check_batches(fit, batch_size, len(hidden))
        sums = _sums(head, hidden, examples.parts)
        exact = _exact(head, hidden, targets, sums)
        made = Draws(
            head,
            hidden,
            targets,
            batch_size=batch_size,
            generator=generator,
            before_batch=before_batch,
        ).make(sums, rounds, progress)
    found = _Found(sums, made, exact, fit)
    overall = found.figures(None, len(hidden), examples.parts)
    if sums[0].space not in overall.gradients:
        raise ValueError("the exact gradient is 0: the model is certain of every target")
    return AuditReport(
        space=sums[0].space,
        aim=meaning_of(head).aim,
        num_classes=head.num_classes,
        num_candidates=fit.num_candidates if fit else None,
        draws=made * NUM_GROUPS,
        tolerance=tolerance,
        overall=overall,
        groups={
            part.name: found.figures(part, part.stop - part.start, examples.parts)
            for part in examples.parts
            if part.name
        },
        notes=notes_on(head, fit, overall.divergence),
    )


class _Examples(NamedTuple):
    hidden: Tensor
    targets: Tensor
    parts: list[Part]
    before_batch: BeforeBatch | None


def _read(
    head: Head,
    hidden: Tensor,
    targets: Tensor,
    groups: Mapping[str, Tensor],
    before_batch: BeforeBatch | None,
) -> _Examples:
    """Return the examples with a positive, those of a group side by side; refuse none at all."""
    ignored = targets == head.ignore_index
    check_targets(targets.masked_fill(ignored, 0), head.num_classes, absent=False)
    if hidden.dim() != 2 or len(hidden) != len(targets):
        raise ValueError(f"hidden must have shape [{len(targets)}, D], got {list(hidden.shape)}")
    kept = ~ignored if targets.dim() == 1 else ~ignored.all(-1)
    if not bool(kept.any()):
        raise ValueError("targets must hold at least one example with a positive, got none")
    if len(hidden) > MAX_EXAMPLES:
        raise ValueError(f"there must be at most {MAX_EXAMPLES:,} examples, got {len(hidden):,}")
    order: list[Tensor] = []
    parts: list[Part] = []
    rest = kept.clone()
    for name, chosen in groups.items():
        if chosen.shape != kept.shape or chosen.dtype != torch.bool:
            raise ValueError(
                f"groups[{name!r}] must be bool of shape [{len(targets)}], got {chosen.dtype} of "
                f"shape {list(chosen.shape)}"
            )
        rows = (chosen & rest).nonzero()[:, 0]
        rest &= ~chosen
        start = sum(len(each) for each in order)
        if len(rows):
            parts.append(Part(name, start, start + len(rows)))
            order.append(rows)
    if bool(rest.any()):
        start = sum(len(each) for each in order)
        order.append(rest.nonzero()[:, 0])
        parts.append(Part("", start, start + len(order[-1])))
    taken = torch.cat(order)
    told = before_batch
    if told is not None:
        given = told

        def told(rows: Tensor) -> None:
            given(taken[rows])

    targets = targets.long().masked_fill(ignored, ABSENT)[taken]
    return _Examples(hidden.detach()[taken], targets, parts, told)


def _check_batches(fit: ProposalFit, batch_size: int | None, examples: int) -> None:
    if fit.from_batch and batch_size in (None, examples):
        raise ValueError(
            f"batch_size must be given, and below {examples:,} (examples), got {batch_size}: "
            "the candidates come from the batch, and are random only if the batches are"
        )


def _sums(head: Head, hidden: Tensor, parts: list[Part]) -> list[GradientSums]:
    like = widened(hidden)[:0]
    by_hidden = HiddenSums(len(hidden), hidden.shape[1], like)
    if not isinstance(head, SamplerHead):
        return [by_hidden]
    with torch.no_grad():
        queries = widened(head.scorer.queries(hidden))
    by_class = ClassSums(queries, head.num_classes, parts, like)
    return [ScoreSums(head.num_classes, len(hidden), like), by_hidden, by_class]


def _exact(
    head: Head, hidden: Tensor, targets: Tensor, sums: list[GradientSums]
) -> ExactFigures | None:
    """Add the exact gradient to ``sums``: of the softmax, or of −log P where there is none."""
    if isinstance(head, ScorerHead):
        return measure_exact(head, hidden, targets, sums, head.proposal)
    leaf = hidden.detach().requires_grad_()
    ids = (targets if targets.dim() == 2 else targets[:, None]).clamp(min=0)
    losses = -(head.log_prob(leaf, ids) * label_shares(targets, hidden)).sum(-1)
    (gradient,) = torch.autograd.grad(losses.sum(), leaf)
    (by_hidden,) = sums
    assert isinstance(by_hidden, HiddenSums)
    rows = torch.arange(len(hidden), device=hidden.device)
    by_hidden.add_hidden(rows, gradient, None)
    return None


class _Found(NamedTuple):
    """All that was measured, to be read for all examples or for a part of them."""

    sums: list[GradientSums]
    rounds: int
    exact: ExactFigures | None
    fit: ProposalFit | None

    def figures(self, part: Part | None, num_examples: int, parts: list[Part]) -> AuditFigures:
        rows = slice(None) if part is None else part.rows
        sizes = self.fit.effective_sample_size if self.fit else None
        divergence = self.exact.divergence if self.exact else None
        normalizer = self.exact.log_normalizer[rows] if self.exact else None
        return AuditFigures(
            num_examples=num_examples,
            gradients={
                each.space: figures
                for each in self.sums
                if (figures := self._gradient(each, part, parts)) is not None
            },
            effective_sample_size=None if sizes is None else float(sizes[rows].mean()),
            divergence=None if divergence is None else float(divergence[rows].mean()),
            log_normalizer=None if normalizer is None else float(normalizer.mean()),
            log_normalizer_spread=(
                None if normalizer is None else float(normalizer.std(correction=0))
            ),
        )

    def _gradient(
        self, sums: GradientSums, part: Part | None, parts: list[Part]
    ) -> GradientFigures | None:
        """Return the figures of a part or of all in one space; None: there is no gradient."""
        if part is None and not isinstance(sums, ClassSums):
            # They add up over examples: a part at a time takes less memory than all.
            each = [sums.moments(one, self.rounds) for one in parts]
            moments = functools.reduce(Moments.plus, each)
        else:
            moments = sums.moments(part, self.rounds)
        if not (math.isfinite(float(moments.gram.sum())) and math.isfinite(moments.size)):
            raise ValueError(
                "the gradients hold NaN or infinity: check hidden and the class vectors"
            )
        if moments.size == 0:
            return None
        sketch = sums.sketch
        error = sketch.relative_error(moments.effective_rows) if sketch else 0.0
        bias = relative_bias(moments, error)
        return GradientFigures(
            bias=bias.value,
            bias_low=bias.low,
            bias_high=bias.high,
            spread=relative_spread(moments, self.rounds),
            cosine=cosine(moments),
            length=relative_length(moments),
        )
