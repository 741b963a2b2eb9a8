"""What an audit of a run comes to: a verdict, and a sentence that says what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from widemax.auditing.examining.cost import StepCost
from widemax.auditing.examining.remedies import Remedy
from widemax.auditing.examining.series import SampleSeries
from widemax.auditing.measuring.report import AuditReport, GradientFigures

Verdict = Literal["faithful", "too few samples", "biased", "exact", "other aim"]

_LEAST_EXAMPLES = 8
"""A group of fewer examples is not judged alone."""
_MOSTLY_LENGTH = 0.8
"""Where so much of a bias lies along the exact gradient, it is too long or too short."""
_STAYS = 0.6
"""A bias that falls less than to this part of itself with four times the samples stays."""
_HELPS = 0.67
_SPOKEN = {"head": "popular", "torso": "middling", "tail": "rare"}


@dataclass(frozen=True, kw_only=True)
class RunAudit:
    """How far the output layer of a run is from the exact softmax, and what would help.

    ``print(audit.sentence)`` says it in words; ``audit.report`` has the figures.
    """

    report: AuditReport
    """The figures, of all examples and by the popularity of the target."""
    cost: StepCost
    """What a step costs."""
    remedies: tuple[Remedy, ...]
    """What was tried, best first; nothing where nothing is amiss."""
    by_samples: SampleSeries | None
    """The figures against the number of samples, where that was asked for."""
    objects: str
    """What the classes are: "items" or "words"."""
    step: int
    """The step of the checkpoint."""
    seed: int
    """That of the draws and the choice of examples."""
    most_samples: int | None = None
    """How many can be drawn, where so few more were no remedy to try; None: more, or no number."""

    @property
    def verdict(self) -> Verdict:
        """What is to be thought of the head.

        "faithful": no bias above the tolerance; "too few samples": a bias that falls as they grow;
        "biased": one that does not; "exact": none by construction; "other aim": it learns something
        else than the softmax.
        """
        if self.report.aim == "exact":
            return "exact"
        if self.report.aim == "other":
            return "other aim"
        if self.worst is None:
            return "faithful"
        return "biased" if self._stays() else "too few samples"

    @property
    def worst(self) -> str | None:
        """The group with the largest bias above the tolerance, "" for all; None: there is none."""
        space, judged = self.report.space, {"": self.report.overall, **self.report.groups}
        biased = {
            name: each.gradients[space].bias
            for name, each in judged.items()
            if each.num_examples >= _LEAST_EXAMPLES or not name
            if space in each.gradients
            if each.gradients[space].bias_low > self.report.tolerance
        }
        return max(biased, key=biased.__getitem__) if biased else None

    def _stays(self) -> bool:
        """Return whether more samples do not help: then what is drawn or learned is wrong."""
        tried = [each for each in self.remedies if set(each.settings) == {"num_samples"}]
        if not tried:
            # Nothing can be drawn more often: judged by whether another objective is right.
            return any(self.bias_with(each) < _HELPS * self.bias_now for each in self.remedies)
        return self.bias_with(tried[0]) > _STAYS * self.bias_now

    @property
    def bias_now(self) -> float:
        """The bias of the worst group."""
        return _figures(self.report, self.worst or "").bias

    def bias_with(self, remedy: Remedy) -> float:
        """Return the bias of that group with a remedy."""
        return _figures(remedy.report, self.worst or "").bias

    @property
    def helpful(self) -> list[Remedy]:
        """The remedies that help, best first; of two that help alike what is learned, then cost."""
        good = [each for each in self.remedies if self.bias_with(each) < _HELPS * self.bias_now]

        def order(remedy: Remedy) -> tuple[float, bool, float]:
            bias = max(self.bias_with(remedy), self.report.tolerance)
            return bias, "objective" not in remedy.settings, remedy.cost.outputs

        return sorted(good, key=order)

    @property
    def sentence(self) -> str:
        """What the figures mean, and what would help."""
        report = self.report
        if self.verdict in ("exact", "other aim"):
            return " ".join(report.notes) or "The head learns something else than the softmax."
        if self.worst is None:
            return (
                f"The expected gradient is within {_percent(report.bias_high)} of the exact "
                f"softmax's, for popular and rare {self.objects} alike or too close to tell: "
                "drawing more would not make it more right, only less noisy."
            )
        found = _figures(report, self.worst)
        whose = f"of {_SPOKEN.get(self.worst, self.worst)} {self.objects}" if self.worst else ""
        return f"The gradient {whose} {_described(found)}; {self._advice()}.".replace("  ", " ")

    def _advice(self) -> str:
        helpful = self.helpful[:2]
        if self.most_samples is not None:
            start = f"more samples cannot be tried, at most {self.most_samples:,} are drawn"
        elif self.verdict == "biased":
            samples = next((e for e in self.remedies if set(e.settings) == {"num_samples"}), None)
            many = (
                f"with {samples} it is still {_percent(self.bias_with(samples))}, so "
                if (samples)
                else ""
            )
            start = f"{many}the number of samples is not what is wrong"
        else:
            start = ""
        end = "" if self.most_samples is None else f"; {self._exact()}"
        if not helpful:
            tried = ", ".join(map(str, self.remedies)) or ("" if start else "nothing")
            none = f"what was tried does not help ({tried})" if tried else ""
            return "; ".join(filter(None, (start, none))) + end
        brings = " or ".join(f"{each} ({_percent(self.bias_with(each))})" for each in helpful)
        verb = "brings" if len(helpful) == 1 else "bring"
        return (f"{start}: " if start else "") + f"{brings} {verb} it down{end}"

    def _exact(self) -> str:
        """Say what the exact softmax would cost, where nearly all classes are drawn anyway."""
        return (
            "the exact softmax (--head full) has no bias, and evaluates "
            f"{self.report.num_classes:,} outputs for an example where this evaluates "
            f"{self.cost.outputs:,.0f}"
        )


def _figures(report: AuditReport, group: str) -> GradientFigures:
    figures = report.groups.get(group, report.overall)
    return figures.gradients[report.space]


def _described(found: GradientFigures) -> str:
    """Return in words how a gradient differs from the exact one."""
    short = 1 - found.length
    if abs(short) >= _MOSTLY_LENGTH * found.bias:
        return f"is {_percent(abs(short))} too {'small' if short > 0 else 'large'}"
    return f"is {_percent(found.bias)} off the exact softmax's"


def _percent(share: float) -> str:
    """Return a share as a percentage of two digits.

    >>> _percent(0.1234), _percent(0.0042), _percent(2.5)
    ('12 %', '0.42 %', '250 %')
    """
    return f"{100 * share:.0f} %" if share >= 0.0995 else f"{100 * share:.2g} %"


def best_first(remedies: Sequence[Remedy], group: str) -> tuple[Remedy, ...]:
    """Return remedies by the bias that they leave a group of examples."""
    return tuple(sorted(remedies, key=lambda each: _figures(each.report, group).bias))
