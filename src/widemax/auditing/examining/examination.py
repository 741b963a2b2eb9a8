"""The audit of a trained model: its head, what a step costs, and remedies that are tried."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from widemax.auditing.examining.cost import StepCost, measure_cost
from widemax.auditing.examining.findings import RunAudit, best_first
from widemax.auditing.examining.remedies import Change, Remedy, Workshop, in_words
from widemax.auditing.examining.series import SampleSeries
from widemax.auditing.measuring.drawing import BeforeBatch
from widemax.auditing.measuring.gradient import audit
from widemax.auditing.measuring.report import AuditReport
from widemax.config.flags import minimal_settings
from widemax.heads import Head, LayeredHead
from widemax.models.base import ReadsContext, last_ids
from widemax.validation import check_whole

Stage = Callable[[str, int, int], None]
"""Told what is being done, and how much of it."""


@dataclass(frozen=True, kw_only=True)
class AuditedExamples:
    """What a head is audited on."""

    hidden: Tensor
    """The states that it is trained on, [N, D]."""
    targets: Tensor
    """Int64 [N]."""
    contexts: Tensor | None
    """The classes before each target, [N, H], for a proposal that reads them."""
    groups: Mapping[str, Tensor]
    """Bool [N] each: which examples are judged alone too."""
    batch_size: int
    """Examples of a training step."""
    objects: str
    """What the classes are: "items" or "words"."""


class Examination:
    """Audits the head of a trained model, and heads that differ from it in a setting."""

    def __init__(
        self,
        head: Head,
        workshop: Workshop,
        examples: AuditedExamples,
        *,
        draws: int,
        tolerance: float,
        seed: int,
        progress: Stage | None = None,
    ) -> None:
        if isinstance(head, LayeredHead):
            # What is sampled lies behind the layer.
            with torch.no_grad():
                hidden = head.layer(examples.hidden)
            head, examples = head.head, replace(examples, hidden=hidden)
        self.head, self.workshop, self.examples = head, workshop, examples
        self.draws, self.tolerance = draws, tolerance
        self.seed = check_whole("seed", seed, 0, 2**63 - 1)
        self.progress = progress

    def make(self, step: int, num_samples: Sequence[int] = ()) -> RunAudit:
        """Return all findings; with ``num_samples`` also the figures against their number."""
        changes = self._series(num_samples)
        report = self._audit("the run as it is", self.head, self.draws)
        found = RunAudit(
            report=report,
            cost=self._cost(self.head),
            remedies=(),
            by_samples=None,
            objects=self.examples.objects,
            step=step,
            seed=self.seed,
            most_samples=self.workshop.most_samples,
        )
        if report.aim == "softmax" and found.worst is not None:
            remedies = [self._tried(change) for change in self.workshop.cheapest()]
            found = replace(found, remedies=best_first(remedies, found.worst))
        if changes:
            reports = tuple(
                self._audit(f"{number:,} samples", change.head, self.draws)
                for number, change in zip(num_samples, changes, strict=True)
            )
            series = SampleSeries(num_samples=tuple(num_samples), reports=reports)
            found = replace(found, by_samples=series)
        return found

    def _series(self, num_samples: Sequence[int]) -> list[Change]:
        """Return the heads with other numbers of samples; refuse a number before any is audited."""
        if list(num_samples) != sorted({*num_samples}):
            raise ValueError(
                f"samples must rise, each number once, got {', '.join(map(str, num_samples))}"
            )
        changes = []
        for number in num_samples:
            change = self.workshop.with_samples(check_whole("samples", number, 1, 2**28))
            if change is None:
                most = getattr(self.head.proposal, "max_samples", None)
                limit = (
                    "the output layer draws none"
                    if self.head.proposal is None
                    else f"at most {most:,} are drawn of these classes (unique)"
                    if most
                    else "the sampler has as many as it has"
                )
                raise ValueError(f"samples cannot be {number:,}: {limit}")
            changes.append(change)
        return changes

    def _tried(self, change: Change) -> Remedy:
        head = change.head
        remedy_draws = max(20, self.draws // 2)
        settings = minimal_settings(change.config, self.workshop.data.kind)
        report = self._audit(f"trying {in_words(change.settings)}", head, remedy_draws)
        return Remedy(
            settings=change.settings, minimal=settings, report=report, cost=self._cost(head)
        )

    def _audit(self, what: str, head: Head, draws: int) -> AuditReport:
        examples, progress = self.examples, self.progress
        if progress is not None:
            progress(what, 0, draws)
        return audit(
            head,
            examples.hidden,
            examples.targets,
            draws=draws,
            batch_size=self._batch_size(head),
            tolerance=self.tolerance,
            groups=examples.groups,
            generator=self._generator(),
            before_batch=self._before_batch(head),
            progress=None if progress is None else lambda done, all_: progress(what, done, all_),
        )

    def _batch_size(self, head: Head) -> int | None:
        """Return the size of random batches where the candidates come from them."""
        sampler, number = head.proposal, len(self.examples.targets)
        if sampler is None or not sampler.from_batch:
            return None
        if number < 4:
            raise ValueError(
                f"candidates come from the batch, and {number:,} held-out examples are too few to "
                "make batches of"
            )
        return min(self.examples.batch_size, number // 2)

    def _cost(self, head: Head) -> StepCost:
        return measure_cost(
            head,
            self.examples.hidden,
            self.examples.targets,
            batch_size=self.examples.batch_size,
            generator=self._generator(),
            before_batch=self._before_batch(head),
        )

    def _generator(self) -> torch.Generator:
        return torch.Generator(self.examples.hidden.device).manual_seed(self.seed)

    def _before_batch(self, head: Head) -> BeforeBatch | None:
        sampler, contexts = head.proposal, self.examples.contexts
        if not isinstance(sampler, ReadsContext) or contexts is None:
            return None
        before = last_ids(contexts, sampler.order - 1)
        return lambda rows: sampler.set_context(before[rows])
