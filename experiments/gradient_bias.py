"""How far the mean gradient of a sampled loss is from the exact one, and how much it scatters.

One example: 200 classes of Zipf popularity, scores normal with a popularity tilt, a unigram
proposal. Bias is ‖E g − g*‖ / ‖g*‖ and spread is sqrt(E ‖g − E g‖²) / ‖g*‖, g* the exact softmax
gradient for the scores of all classes. A rare target shows the bias of few samples; a likely one
shows what many draws with replacement do to the sampled softmax. In the third
example the targets are drawn from the popularity, and the mean gradient over them is compared: what
a training step follows. What is too much for one target is too little for another.

    python experiments/gradient_bias.py [--json FILE] [--check]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from rich import box
from rich.console import Console
from rich.table import Table
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from _harness import Report, command_line
from widemax.candidates import Candidates
from widemax.objectives import (
    corrected_log_q,
    importance_sampling,
    info_nce,
    sampled_softmax,
)
from widemax.sampling import UnigramSampler

NUM_CLASSES = 200
SIZES = (5, 20, 80, 320)
DISTINCT_SIZES = (5, 20, 80)
# Scores drawn for each size: the error of the bias is then a few thousandths.
SCORES_PER_SIZE = 2_000_000
CHUNKS = 20


class Row(NamedTuple):
    name: str
    objective: Callable[..., Tensor]
    unique: bool = False


ROWS = (
    Row("sampled_softmax", sampled_softmax),
    Row("sampled, distinct", sampled_softmax, unique=True),
    Row("corrected_log_q", corrected_log_q),
    Row("importance_sampling", importance_sampling),
    Row("info_nce (no log Q)", info_nce),
)
# Their bias must fall with the samples, whatever the target.
CONSISTENT = ("sampled, distinct", "corrected_log_q", "importance_sampling")


class Example(NamedTuple):
    name: str
    target: int | None
    """The class that is the target; None: they are drawn like the classes."""
    scores: Tensor
    proposal: Tensor

    @property
    def prob(self) -> Tensor:
        return self.scores.softmax(-1)

    @property
    def exact(self) -> Tensor:
        return self.prob - self.target_prob

    @property
    def target_prob(self) -> Tensor:
        """How likely each class is the target, [V]."""
        if self.target is None:
            return self.proposal
        return torch.nn.functional.one_hot(torch.tensor(self.target), NUM_CLASSES).double()


class Estimate(NamedTuple):
    bias: float
    spread: float
    error: float


def examples() -> tuple[Example, ...]:
    generator = torch.Generator().manual_seed(0)
    popularity = 1 / torch.arange(1, NUM_CLASSES + 1, dtype=torch.float64)
    scores = torch.randn(NUM_CLASSES, generator=generator, dtype=torch.float64)
    scores = scores + 0.5 * popularity.log()
    proposal = popularity / popularity.sum()
    likely = scores.clone()
    likely[0] += 6
    return (
        Example("rare", 100, scores, proposal),
        Example("likely", 0, likely, proposal),
        Example("drawn", None, scores, proposal),
    )


def gradients(
    example: Example, objective: Callable[..., Tensor], targets: Tensor, drawn: Candidates
) -> Tensor:
    """Return the gradient for the scores of all classes, one for each row of draws, [N, V]."""
    scores = example.scores.expand(len(drawn.ids), NUM_CLASSES).clone().requires_grad_()
    losses = objective(
        scores.gather(1, targets[:, None])[:, 0],
        scores.gather(1, drawn.ids),
        target_log_expected_count=drawn.target_log_expected_count,
        log_expected_count=drawn.log_expected_count,
        hits=drawn.ids == targets[:, None],
    )
    (found,) = torch.autograd.grad(losses.sum(), scores)
    return found


def estimate(
    example: Example, row: Row, num_samples: int, *, scores: int = SCORES_PER_SIZE
) -> Estimate:
    generator = torch.Generator().manual_seed(num_samples)
    sampler = UnigramSampler(
        NUM_CLASSES, example.proposal, distortion=1.0, unique=row.unique, per_example=True
    )
    rows = scores // CHUNKS // num_samples
    means, squares = [], []
    for _ in range(CHUNKS):
        targets = example.target_prob.multinomial(rows, replacement=True, generator=generator)
        drawn = sampler.sample(num_samples, targets, generator=generator)
        found = gradients(example, row.objective, targets, drawn)
        means.append(found.mean(0))
        squares.append(found.square().sum(-1).mean())
    mean, size = torch.stack(means).mean(0), example.exact.norm()
    variance = torch.stack(squares).mean() - mean.square().sum()
    spread = variance.sqrt() / size
    return Estimate(
        bias=float((mean - example.exact).norm() / size),
        spread=float(spread),
        error=float(spread / (CHUNKS * rows) ** 0.5),
    )


def measure(example: Example) -> dict[str, dict[int, Estimate]]:
    return {
        row.name: {
            size: estimate(example, row, size) for size in (DISTINCT_SIZES if row.unique else SIZES)
        }
        for row in ROWS
    }


def show(console: Console, example: Example, found: dict[str, dict[int, Estimate]]) -> None:
    title = "targets drawn from the popularity: the mean gradient over them"
    if example.target is not None:
        prob, chance = float(example.prob[example.target]), float(example.proposal[example.target])
        title = f"{example.name} target: P = {prob:.3f}, p of one draw = {chance:.4f}"
    table = Table(title=title, box=box.SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("bias (spread)")
    for size in SIZES:
        table.add_column(f"S = {size}", justify="right")
    for name, by_size in found.items():
        cells = [
            f"{by_size[size].bias:.3f} ({by_size[size].spread:.2f})" if size in by_size else "–"
            for size in SIZES
        ]
        table.add_row(name, *cells)
    console.print(table)


def add_bars(report: Report, example: Example, found: dict[str, dict[int, Estimate]]) -> None:
    for name, by_size in found.items():
        for size, figure in by_size.items():
            report.add(f"{example.name} target, bias, {name}, S={size}", figure.bias)
            report.add(f"{example.name} target, spread, {name}, S={size}", figure.spread)
    for name in CONSISTENT:
        biases = found[name]
        first, last = min(biases), max(biases)
        report.add(
            f"{example.name} target, bias S={last} / S={first}, {name}",
            biases[last].bias / biases[first].bias,
            0.35,
            "at most",
        )
    plain, corrected = (found[name][5].bias for name in ("sampled_softmax", "corrected_log_q"))
    if example.name == "rare":
        report.add(
            "rare target, bias corrected / sampled, S=5", corrected / plain, 1 / 3, "at most"
        )


def main() -> None:
    torch.set_num_threads(1)
    report = Report(command_line(__doc__.split("\n")[0] if __doc__ else None).parse_args())
    console = Console()
    for example in examples():
        found = measure(example)
        show(console, example, found)
        add_bars(report, example, found)
    report.finish()


if __name__ == "__main__":
    main()
