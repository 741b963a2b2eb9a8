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
    """How far a head's expected gradient is from the exact softmax's.

    Formula: with g the gradient of one draw and g* the exact one, over all examples:
    ``bias`` = ‖E g − g*‖ / ‖g*‖, ``spread`` = sqrt(E ‖g − E g‖²) / ‖g*‖, ``cosine`` that of E g
    and g*; ``bias_low`` and ``bias_high`` end the 95 % confidence interval of the bias.

    Shapes: numbers. ``space`` is "scores" (d loss / d F of every class) or "hidden".
    ``effective_sample_size`` and ``divergence`` = KL(P ‖ q) are means over the examples, None where
    they have no meaning (no proposal; distinct draws; probabilities that do not add up to 1).

    Cost: it only holds numbers; ``print`` shows them as a table.

    Reference: none.

    Use when: reading what ``audit`` returns; ``biased`` is the verdict. Avoid when: only the
    trained model's quality counts (measure that).

    >>> report = AuditReport(space="scores", num_classes=100, num_examples=8, draws=1000,
    ...     tolerance=0.05, bias=0.31, bias_low=0.29, bias_high=0.33, spread=0.8, cosine=0.97,
    ...     effective_sample_size=None, divergence=0.4, notes=())
    >>> report.biased, report.bias
    (True, 0.31)
    """

    space: Literal["scores", "hidden"]
    num_classes: int
    num_examples: int
    draws: int
    tolerance: float
    bias: float
    bias_low: float
    bias_high: float
    spread: float
    cosine: float
    effective_sample_size: float | None
    divergence: float | None
    notes: tuple[str, ...]

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
        for name, figure in self._figures():
            table.add_row(name, figure)
        return table

    def __str__(self) -> str:
        console = Console(width=_WIDTH, color_system=None)
        with console.capture() as shown:
            console.print(self)
        return shown.get().rstrip()

    def _figures(self) -> list[tuple[str, str]]:
        where = f"d loss / d {self.space}"
        figures = [
            (
                "relative bias (95 % interval)",
                f"{self.bias:.4f} ({self.bias_low:.4f} to {self.bias_high:.4f})",
            ),
            ("relative spread of one draw", f"{self.spread:.3f}"),
            ("cosine of mean and exact gradient", f"{self.cosine:.4f}"),
            ("KL(P ‖ q) of the proposal, nats", _optional(self.divergence, ".3f")),
            ("effective sample size", _optional(self.effective_sample_size, ".1f")),
            ("gradient compared", where),
            ("classes", f"{self.num_classes:,}"),
            ("examples", f"{self.num_examples:,}"),
            ("draws", f"{self.draws:,}"),
        ]
        return [(name, figure) for name, figure in figures if figure]


def _optional(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
