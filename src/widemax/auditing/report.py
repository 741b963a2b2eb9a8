"""What an audit found, and how it is shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rich import box
from rich.console import Console
from rich.table import Table

_WIDTH = 80


@dataclass(frozen=True, kw_only=True)
class AuditReport:
    """How far a head's expected gradient is from the exact softmax's; ``print`` shows a table.

    g is the gradient of one draw and g* the exact one, over all examples.

    >>> report = AuditReport(space="scores", num_classes=100, num_examples=8, draws=1000,
    ...     tolerance=0.05, bias=0.31, bias_low=0.29, bias_high=0.33, spread=0.8, cosine=0.97,
    ...     effective_sample_size=None, divergence=0.4, notes=())
    >>> report.biased, report.bias
    (True, 0.31)
    """

    space: Literal["scores", "hidden"]
    """What the gradient is taken for: the scores F of every class, or the hidden states."""
    num_classes: int
    """Classes of the head."""
    num_examples: int
    """Examples with a positive."""
    draws: int
    """How often each example was trained on."""
    tolerance: float
    """The bias above which the head is called biased."""
    bias: float
    """‖E g − g*‖ / ‖g*‖."""
    bias_low: float
    """The low end of the 95 % confidence interval of the bias."""
    bias_high: float
    """The high end."""
    spread: float
    """sqrt(E ‖g − E g‖²) / ‖g*‖."""
    cosine: float
    """The cosine of E g and g*."""
    effective_sample_size: float | None
    """Mean over the examples; None without a proposal or for distinct draws."""
    divergence: float | None
    """Mean KL(P ‖ q), in nats; None where q does not sum to 1."""
    notes: tuple[str, ...]
    """What explains a bias without being a fault."""

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
        interval = f"{self.bias:.4f} ({self.bias_low:.4f} to {self.bias_high:.4f})"
        table.add_row("relative bias (95 % interval)", interval)
        table.add_row("relative spread of one draw", f"{self.spread:.3f}")
        table.add_row("cosine of mean and exact gradient", f"{self.cosine:.4f}")
        if self.divergence is not None:
            table.add_row("KL(P ‖ q) of the proposal, nats", f"{self.divergence:.3f}")
        if self.effective_sample_size is not None:
            table.add_row("effective sample size", f"{self.effective_sample_size:.1f}")
        table.add_row("gradient compared", f"d loss / d {self.space}")
        table.add_row("classes", f"{self.num_classes:,}")
        table.add_row("examples", f"{self.num_examples:,}")
        table.add_row("draws", f"{self.draws:,}")
        return table

    def __str__(self) -> str:
        console = Console(width=_WIDTH, color_system=None)
        with console.capture() as shown:
            console.print(self)
        return shown.get().rstrip()
