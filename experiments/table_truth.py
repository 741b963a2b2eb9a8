"""What F learns under each objective of the candidate-sampling table, by brute force.

Ten classes and two contexts, each with probabilities P(y | x) and expected counts Q(y | x) of its
own. Each class y is a candidate with probability Q(y | x), independently of the others: all 1,024
sets of candidates are enumerated with all targets, so that the expected loss is exact, in float64.
Newton's method takes it to its minimum, one free score for each context and class, and the scores
found there are compared with what the last column of the table says. The logistic rows are also
held to it with two targets an example, neighbours in a ring of classes; P(y | x) is then the
probability that y is one of them.

    python experiments/table_truth.py [--json FILE] [--check]
"""

from __future__ import annotations

import itertools
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
from widemax import objectives

NUM_CLASSES, NUM_CONTEXTS = 10, 2
LARGEST_ERROR = 1e-6
# Newton's method doubles the digits at each step: some ten take it to the last one.
MAX_STEPS = 100
SMALLEST_GRADIENT = 1e-12


class World(NamedTuple):
    """One context: which targets come how often, and how likely each class is a candidate."""

    targets: Tensor
    """Every possible list of targets, [N, T]."""
    target_prob: Tensor
    """How likely each list is, [N]."""
    count: Tensor
    """Q(y | x), [V]."""

    @property
    def prob(self) -> Tensor:
        """P(y | x): how often y is a target, [V]."""
        spread = self.target_prob[:, None].expand(self.targets.shape)
        sums = torch.zeros(NUM_CLASSES, dtype=torch.float64)
        return sums.index_add(0, self.targets.flatten(), spread.flatten())


class Row(NamedTuple):
    """A row of the table: its objective, which candidates it sees, what its F learns."""

    objective: Callable[..., Tensor]
    negatives: str
    fed: str
    learned: str
    truth: Callable[[World], Tensor]
    up_to_a_constant: bool = False
    """The loss does not see what is added to all scores of a context."""
    all_classes: bool = False
    """Every class is a candidate, once."""
    several_targets: bool = False


def log_prob(world: World) -> Tensor:
    return world.prob.log()


def log_ratio(world: World) -> Tensor:
    return (world.prob / world.count).log()


def log_odds(world: World) -> Tensor:
    return world.prob.logit()


ROWS = {
    "nce": Row(objectives.nce, "S", "F − log Q", "log P", log_prob, several_targets=True),
    "negative_sampling": Row(
        objectives.negative_sampling, "S", "F", "log(P / Q)", log_ratio, several_targets=True
    ),
    "sampled_logistic": Row(
        objectives.sampled_logistic,
        "S − T",
        "F − log Q",
        "log odds",
        log_odds,
        several_targets=True,
    ),
    "full_logistic": Row(
        objectives.full_logistic,
        "L − T",
        "F",
        "log odds",
        log_odds,
        all_classes=True,
        several_targets=True,
    ),
    "full_softmax": Row(
        objectives.full_softmax, "L − {t}", "F", "log P + K(x)", log_prob, True, all_classes=True
    ),
    "sampled_softmax": Row(
        objectives.sampled_softmax, "S − {t}", "F − log Q", "log P + K(x)", log_prob, True
    ),
    "info_nce": Row(objectives.info_nce, "S − {t}", "F", "log(P / Q) + K(x)", log_ratio, True),
}


def make_worlds(num_targets: int) -> list[World]:
    generator = torch.Generator().manual_seed(num_targets)
    neighbours = torch.arange(NUM_CLASSES)[:, None] + torch.arange(num_targets)
    targets = neighbours % NUM_CLASSES
    worlds = []
    for _ in range(NUM_CONTEXTS):
        drawn = torch.randn(len(targets), generator=generator, dtype=torch.float64)
        uniform = torch.rand(NUM_CLASSES, generator=generator, dtype=torch.float64)
        worlds.append(World(targets, (1.5 * drawn).softmax(0), 0.05 + 0.9 * uniform))
    return worlds


class Examples(NamedTuple):
    """Every case there is: who is the target, who is a candidate, and how likely that is."""

    targets: Tensor
    is_candidate: Tensor
    weights: Tensor
    count: Tensor
    hits: Tensor

    @classmethod
    def of(cls, world: World, *, all_classes: bool) -> Examples:
        if all_classes:
            sets, set_prob = torch.ones(1, NUM_CLASSES, dtype=torch.bool), torch.ones(1).double()
        else:
            sets = torch.tensor(list(itertools.product([False, True], repeat=NUM_CLASSES)))
            set_prob = torch.where(sets, world.count, 1 - world.count).prod(-1)
        targets = world.targets.repeat_interleave(len(sets), dim=0)
        return cls(
            targets,
            sets.repeat(len(world.targets), 1),
            torch.outer(world.target_prob, set_prob).flatten(),
            torch.ones_like(world.count) if all_classes else world.count,
            (targets[:, :, None] == torch.arange(NUM_CLASSES)).any(1),
        )

    def expected_loss(self, objective: Callable[..., Tensor], scores: Tensor) -> Tensor:
        """Return the mean over all cases of the loss at these scores [V]."""
        target_scores, target_count = scores[self.targets], self.count.log()[self.targets]
        if self.targets.shape[1] == 1:
            target_scores, target_count = target_scores[:, 0], target_count[:, 0]
        losses = objective(
            target_scores,
            torch.where(self.is_candidate, scores, -torch.inf),
            target_log_expected_count=target_count,
            log_expected_count=self.count.log(),
            hits=self.hits,
        )
        return (self.weights * losses).sum()


def minimise(loss: Callable[[Tensor], Tensor]) -> tuple[Tensor, float]:
    """Return where a convex function of V scores is smallest, and how large its gradient is there.

    A softmax is flat along one direction, which the pseudo-inverse leaves alone.
    """
    scores = torch.zeros(NUM_CLASSES, dtype=torch.float64, requires_grad=True)
    for _ in range(MAX_STEPS):
        value = loss(scores)
        (gradient,) = torch.autograd.grad(value, scores, create_graph=True)
        size = float(gradient.detach().abs().max())
        if size < SMALLEST_GRADIENT:
            break
        by_class = [torch.autograd.grad(g, scores, retain_graph=True)[0] for g in gradient]
        curvature = torch.linalg.pinv(torch.stack(by_class), rtol=1e-10, hermitian=True)
        with torch.no_grad():
            step = curvature @ gradient
            # Far from the minimum a whole step may lead uphill.
            while loss(scores - step) > value and step.abs().max() > 1e-9:
                step /= 2
            scores -= step
    return scores.detach(), size


def error_of(row: Row, world: World) -> float:
    """Return how far the scores at the minimum are from what the row says; inf if none is found."""
    examples = Examples.of(world, all_classes=row.all_classes)
    found, gradient = minimise(lambda scores: examples.expected_loss(row.objective, scores))
    difference = found - row.truth(world)
    if row.up_to_a_constant:
        difference = difference - difference.mean()
    return float(difference.abs().max()) if gradient < 1e-9 else float("inf")


def largest_error(row: Row, num_targets: int) -> float:
    return max(error_of(row, world) for world in make_worlds(num_targets))


def main() -> None:
    torch.set_num_threads(1)
    report = Report(command_line(__doc__.split("\n")[0] if __doc__ else None).parse_args())
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    for column in ("objective", "negatives", "G(x, y)", "F learns", "largest error", ""):
        table.add_column(column)
    for name, row in ROWS.items():
        errors = {"": largest_error(row, 1)}
        if row.several_targets:
            errors[", two targets"] = largest_error(row, 2)
        for what, error in errors.items():
            report.add(f"{name}{what}: largest error of F", error, LARGEST_ERROR, "at most")
        worst = max(errors.values())
        verdict = "verified" if worst <= LARGEST_ERROR else "WRONG"
        table.add_row(name, row.negatives, row.fed, row.learned, f"{worst:.1e}", verdict)
    Console(width=110).print(table)
    report.finish()


if __name__ == "__main__":
    main()
