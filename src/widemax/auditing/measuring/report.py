"""What an audit found, and how it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rich import box
from rich.console import Console
from rich.table import Table

from widemax.auditing.measuring.meaning import Aim
from widemax.auditing.measuring.spaces import Space

_WIDTH = 80


@dataclass(frozen=True, kw_only=True)
class GradientFigures:
    """How far the expected gradient g of some examples is from the exact one, g*."""

    bias: float
    """‖E g − g*‖ / ‖g*‖."""
    bias_low: float
    """The low end of the 95 % confidence interval of the bias."""
    bias_high: float
    """The high end."""
    spread: float
    """sqrt(E ‖g − E g‖²) / ‖g*‖ of one draw."""
    cosine: float
    """The cosine of E g and g*."""
    length: float
    """⟨E g, g*⟩ / ‖g*‖²: below 1 a step goes less far in the right direction."""


@dataclass(frozen=True, kw_only=True)
class AuditFigures:
    """What was found for some examples."""

    num_examples: int
    """How many there are."""
    gradients: Mapping[Space, GradientFigures]
    """By what the gradient is taken for: "scores", "hidden", "class vectors"."""
    effective_sample_size: float | None
    """Mean over the examples; None without a proposal or for distinct draws."""
    divergence: float | None
    """Mean KL(P ‖ q), in nats; None where q does not sum to 1."""
    log_normalizer: float | None
    """Mean log Z; None where there is none, as in a tree."""
    log_normalizer_spread: float | None
    """Standard deviation of log Z over the examples."""


@dataclass(frozen=True, kw_only=True)
class AuditReport:
    """How far a head's expected gradient is from the exact softmax's; ``print`` shows a table.

    >>> scores = GradientFigures(bias=0.31, bias_low=0.29, bias_high=0.33, spread=0.8, cosine=0.97,
    ...     length=0.8)
    >>> overall = AuditFigures(num_examples=8, gradients={"scores": scores}, divergence=0.4,
    ...     effective_sample_size=None, log_normalizer=None, log_normalizer_spread=None)
    >>> report = AuditReport(space="scores", aim="softmax", num_classes=100, num_candidates=20,
    ...     draws=1000, tolerance=0.05, overall=overall, notes=())
    >>> report.biased, report.bias
    (True, 0.31)
    """

    space: Space
    """What the first gradient is taken for: the scores F of every class, or the hidden states."""
    aim: Aim
    """What the head is trained for: "softmax", "exact" or "other"."""
    num_classes: int
    """Classes of the head."""
    num_candidates: float | None
    """Classes that compete with the target of an example; None if nothing is drawn."""
    draws: int
    """How often each example was trained on."""
    tolerance: float
    """The bias above which the head is called biased."""
    overall: AuditFigures
    """All examples."""
    groups: Mapping[str, AuditFigures] = field(default_factory=dict)
    """The same for each group of examples."""
    notes: tuple[str, ...]
    """What explains a bias without being a fault."""

    @property
    def gradient(self) -> GradientFigures:
        """The figures of all examples in ``space``."""
        return self.overall.gradients[self.space]

    @property
    def bias(self) -> float:
        """‖E g − g*‖ / ‖g*‖."""
        return self.gradient.bias

    @property
    def bias_low(self) -> float:
        """The low end of the 95 % confidence interval of the bias."""
        return self.gradient.bias_low

    @property
    def bias_high(self) -> float:
        """The high end."""
        return self.gradient.bias_high

    @property
    def spread(self) -> float:
        """sqrt(E ‖g − E g‖²) / ‖g*‖."""
        return self.gradient.spread

    @property
    def cosine(self) -> float:
        """The cosine of E g and g*."""
        return self.gradient.cosine

    @property
    def num_examples(self) -> int:
        """Examples with a positive."""
        return self.overall.num_examples

    @property
    def effective_sample_size(self) -> float | None:
        """Mean over the examples; None without a proposal or for distinct draws."""
        return self.overall.effective_sample_size

    @property
    def divergence(self) -> float | None:
        """Mean KL(P ‖ q), in nats; None where q does not sum to 1."""
        return self.overall.divergence

    @property
    def biased(self) -> bool:
        """Whether even the low end of the bias lies above the tolerance."""
        return self.bias_low > self.tolerance

    def __rich__(self) -> Table:
        verdict = "biased" if self.biased else "no bias found"
        table = Table(
            title=f"Gradient audit: {verdict} above {self.tolerance:g}",
            caption="\n".join(self.notes) or None,
            caption_justify="left",
            box=box.SIMPLE,
            show_header=False,
        )
        table.add_column()
        table.add_column(justify="right")
        for space, each in self.overall.gradients.items():
            interval = f"{each.bias:.4f} ({each.bias_low:.4f} to {each.bias_high:.4f})"
            table.add_row(f"relative bias by {space} (95 % interval)", interval)
        table.add_row("relative spread of one draw", f"{self.spread:.3f}")
        table.add_row("cosine of mean and exact gradient", f"{self.cosine:.4f}")
        if self.divergence is not None:
            table.add_row("KL(P ‖ q) of the proposal, nats", f"{self.divergence:.3f}")
        if self.effective_sample_size is not None:
            table.add_row("effective sample size", f"{self.effective_sample_size:.1f}")
        if self.overall.log_normalizer is not None:
            mean, spread = self.overall.log_normalizer, self.overall.log_normalizer_spread
            table.add_row("log Z, mean and spread", f"{mean:.3f} ± {spread:.3f}")
        table.add_row("classes", f"{self.num_classes:,}")
        table.add_row("examples", f"{self.num_examples:,}")
        table.add_row("draws", f"{self.draws:,}")
        return table

    def __str__(self) -> str:
        console = Console(width=_WIDTH, color_system=None)
        with console.capture() as shown:
            console.print(self)
        return shown.get().rstrip()
