"""Does the sampled softmax have to be corrected for the target, which is always among the classes?

The target is added to the draws, so it competes more often than it was drawn. What each way to
treat that teaches is computed here without noise: a few classes, no context, the expected loss
summed over all targets and all samples that there can be, minimised, and the distribution it
learned compared with the true one. Distinct classes are drawn independently, each with its Q.

    python experiments/added_target.py [--json FILE] [--check]
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from _harness import Report, command_line
from widemax.objectives import corrected_log_q, sampled_softmax

NUM_CLASSES = 8
NUM_DRAWS = 4


class Sample(NamedTuple):
    """Every sample that there can be, one a row; a place without a class is -1."""

    ids: Tensor
    """[N, S]."""
    prob: Tensor
    """How likely each is, [N]."""
    log_count: Tensor
    """log Q of all classes, [V]."""


class Rule(NamedTuple):
    """A way to treat the target: which loss, and what stands for its log Q."""

    name: str
    sample: Callable[[], Sample]
    objective: Callable[..., Tensor] = sampled_softmax
    corrects_target: bool = True
    corrects_draws: bool = True
    limit: float | None = None
    """What --check lets the divergence be at most."""


def truth() -> Tensor:
    """P of a few classes, the first of them far more likely than the others, float64 [V]."""
    weights = 1 / torch.arange(1, NUM_CLASSES + 1, dtype=torch.float64)
    return weights / weights.sum()


def proposal() -> Tensor:
    """Probability of each class in one draw: popular ones more often, but less so than in P."""
    weights = truth().sqrt()
    return weights / weights.sum()


def distinct() -> Sample:
    """All subsets of the classes."""
    count = NUM_DRAWS * proposal()
    count = count / (1 + count)
    rows, probs = [], []
    for kept in itertools.product([True, False], repeat=NUM_CLASSES):
        mask = torch.tensor(kept)
        rows.append(torch.where(mask, torch.arange(NUM_CLASSES), -1))
        probs.append(torch.where(mask, count, 1 - count).prod())
    return Sample(torch.stack(rows), torch.stack(probs), count.log())


def with_replacement() -> Sample:
    """All multisets of draws, with how many orders each has."""
    share = proposal()
    rows = list(itertools.combinations_with_replacement(range(NUM_CLASSES), NUM_DRAWS))
    orders = [
        math.factorial(NUM_DRAWS) / math.prod(math.factorial(row.count(y)) for y in set(row))
        for row in rows
    ]
    ids = torch.tensor(rows)
    prob = share[ids].prod(1) * torch.tensor(orders, dtype=torch.float64)
    return Sample(ids, prob, (NUM_DRAWS * share).log())


RULES = (
    Rule("−log Q of target and draws, distinct draws", distinct, limit=1e-6),
    Rule("−log Q of the draws alone, distinct draws", distinct, corrects_target=False),
    Rule("no log Q, distinct draws", distinct, corrects_target=False, corrects_draws=False),
    Rule("−log Q of target and draws, draws with replacement", with_replacement),
    Rule("corrected_log_q, draws with replacement", with_replacement, corrected_log_q),
)


def expected_loss(scores: Tensor, rule: Rule, sample: Sample) -> Tensor:
    """Return the loss of scores [V], over all targets and samples with their probabilities."""
    rows = len(sample.ids)
    ids, targets = sample.ids.repeat(NUM_CLASSES, 1), torch.arange(NUM_CLASSES)
    targets = targets.repeat_interleave(rows)
    weights = (truth()[:, None] * sample.prob).flatten()
    known = ids.clamp(min=0)
    log_count = sample.log_count if rule.corrects_draws else torch.zeros_like(sample.log_count)
    of_target = sample.log_count if rule.corrects_target else torch.zeros_like(sample.log_count)
    losses = rule.objective(
        scores[targets],
        scores[known].masked_fill(ids < 0, -math.inf),
        target_log_expected_count=of_target[targets],
        log_expected_count=log_count[known],
        hits=ids == targets[:, None],
    )
    return (weights * losses).sum()


def learned(rule: Rule) -> Tensor:
    """Return the distribution at which the expected gradient vanishes, [V]."""
    sample = rule.sample()
    scores = truth().log().requires_grad_()
    # Small steps down the gradient: the value of corrected_log_q is a surrogate.
    for _ in range(3000):
        (gradient,) = torch.autograd.grad(expected_loss(scores, rule, sample), scores)
        if float(gradient.norm()) < 1e-10:
            break
        scores = (scores - 4 * gradient).detach().requires_grad_()
    return scores.detach().softmax(-1)


def divergence(found: Tensor) -> float:
    """Return KL(P ‖ learned), in nats."""
    return float((truth() * (truth() / found).log()).sum())


def main() -> None:
    torch.set_num_threads(1)
    report = Report(command_line(__doc__.split("\n")[0] if __doc__ else None).parse_args())
    print("KL(P ‖ learned)   learned / P of the most likely class")
    for rule in RULES:
        found = learned(rule)
        kl, ratio = divergence(found), float(found[0] / truth()[0])
        print(f"{kl:15.5f}   {ratio:10.3f}   {rule.name}")
        report.add(f"KL, {rule.name}", kl, rule.limit, "at most")
        report.add(f"most likely class, learned / P, {rule.name}", ratio)
    report.finish()


if __name__ == "__main__":
    main()
