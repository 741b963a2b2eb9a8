"""What in-batch negatives learn of popularity, by how log Q is estimated.

100 classes of Zipf popularity, no context, batches of 512 targets that compete with each other: the
most popular class is in a batch a hundred times. The scores of the classes are trained on it and
compared with the true popularity. "Once a batch" is log Q from the share of batches that have a
class, which stops at 1 (Yi et al. 2019, with every copy kept); "copies" is ``StreamingFrequency``;
"counts" knows the popularity; "distinct" keeps one copy of each class, Q the share of batches.

    python experiments/in_batch_log_q.py [--json FILE] [--check]
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from _harness import Report, command_line
from widemax.objectives import corrected_log_q, sampled_softmax
from widemax.sampling import StreamingFrequency

NUM_CLASSES, BATCH, STEPS = 100, 512, 600
OBJECTIVES = {"sampled_softmax": sampled_softmax, "corrected_log_q": corrected_log_q}
LIMITS = {
    ("copies", "sampled_softmax"): 0.02,
    ("copies", "corrected_log_q"): 0.002,
    ("counts", "corrected_log_q"): 0.002,
}
"""What --check lets the divergence be at most."""


def popularity() -> Tensor:
    weights = 1 / torch.arange(1, NUM_CLASSES + 1, dtype=torch.float64)
    return weights / weights.sum()


def share_of_batches() -> Tensor:
    """How likely a batch has a class at all, [V]."""
    return -torch.expm1(BATCH * torch.log1p(-popularity()))


class Estimate(NamedTuple):
    """The candidates of a batch [B] and log Q of all classes [V], after each batch."""

    candidates: Callable[[Tensor], Tensor]
    log_count: Callable[[Tensor], Tensor]


def once_a_batch() -> Estimate:
    return Estimate(lambda targets: targets, lambda targets: share_of_batches().log())


def counts() -> Estimate:
    log_count = popularity().log() + math.log(BATCH)
    return Estimate(lambda targets: targets, lambda targets: log_count)


def copies() -> Estimate:
    frequency, every_class = StreamingFrequency(NUM_CLASSES), torch.arange(NUM_CLASSES)

    def log_count(targets: Tensor) -> Tensor:
        frequency.update(targets)
        return frequency.log_prob(every_class) + math.log(BATCH)

    return Estimate(lambda targets: targets, log_count)


def distinct() -> Estimate:
    return Estimate(torch.unique, lambda targets: share_of_batches().log())


ESTIMATES: dict[str, Callable[[], Estimate]] = {
    "once a batch": once_a_batch,
    "copies": copies,
    "counts": counts,
    "distinct": distinct,
}


def learned(estimate: Estimate, objective: Callable[..., Tensor], steps: int = STEPS) -> Tensor:
    """Return the distribution of the scores, averaged over the last quarter of the steps, [V]."""
    generator = torch.Generator().manual_seed(0)
    prob = popularity()
    scores = torch.zeros(NUM_CLASSES, dtype=torch.float64, requires_grad=True)
    # Steps as large as the classes are rare: all of them arrive at about the same time.
    rate = 0.3 / (prob + 1 / NUM_CLASSES)
    total = torch.zeros_like(prob)
    for step in range(steps):
        targets = torch.multinomial(prob, BATCH, replacement=True, generator=generator)
        log_count, ids = estimate.log_count(targets), estimate.candidates(targets)
        losses = objective(
            scores[targets],
            scores[ids].expand(BATCH, -1),
            target_log_expected_count=log_count[targets],
            log_expected_count=log_count[ids],
            hits=ids == targets[:, None],
        )
        (gradient,) = torch.autograd.grad(losses.mean(), scores)
        falling = 1.0 if step < steps / 2 else 0.3
        scores = (scores - falling * rate * gradient).detach().requires_grad_()
        if step >= 3 * steps // 4:
            total += scores.detach()
    return (total / (steps - 3 * steps // 4)).softmax(-1)


def divergence(found: Tensor) -> float:
    """Return KL(P ‖ learned), in nats."""
    return float((popularity() * (popularity() / found).log()).sum())


def main() -> None:
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", "sampled_softmax")
    report = Report(command_line(__doc__.split("\n")[0] if __doc__ else None).parse_args())
    for objective_name, objective in OBJECTIVES.items():
        for name, make in ESTIMATES.items():
            found = learned(make(), objective)
            title, limit = f"{name}, {objective_name}", LIMITS.get((name, objective_name))
            report.add(f"KL, {title}", divergence(found), limit, "at most")
            ratio = float(found[0] / popularity()[0])
            report.add(f"most popular class, learned / P, {title}", ratio)
    report.finish()


if __name__ == "__main__":
    main()
