"""The exact softmax of a differentiated scorer against that of a table of the same width.

A step is forward and backward of ``FullHead``; ``log_prob`` is of all classes. Times are processor
time, so that other programs on the machine change little.
"""

from __future__ import annotations

import functools
import time

import torch
from torch import Tensor

from _harness import Report, command_line, interleaved
from widemax.heads import FullHead, as_table
from widemax.scoring import DifferentiatedScorer, TableScorer

NUM_CLASSES, DIMENSION, BATCH, K = 100_000, 512, 128, 100
BLOCKS = [(10_000, 384), (30_000, 96), (60_000, 32)]
# Float32 sums of 512 products, added up in another order, differ by about this much.
ROUNDING = 1e-4


class Batch:
    """One batch, and what is timed of a head."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.hidden = torch.randn(BATCH, DIMENSION, generator=generator)
        self.targets = torch.randint(NUM_CLASSES, (BATCH,), generator=generator)

    def gradients(self, head: FullHead) -> tuple[Tensor, ...]:
        """Return the loss and its gradients, as in a step of training."""
        hidden = self.hidden.clone().requires_grad_()
        loss = head(hidden, self.targets).mean()
        return loss.detach(), *torch.autograd.grad(loss, [hidden, *head.parameters()])

    @torch.no_grad()
    def log_prob(self, head: FullHead) -> Tensor:
        """Return the log-probabilities of all classes."""
        return head.log_prob(self.hidden)

    def best(self, head: FullHead) -> Tensor:
        """Return the scores of the best classes."""
        return head.topk(self.hidden, K).scores


def check_same(batch: Batch, head: FullHead) -> None:
    """Hold loss, gradients, probabilities and best scores to those of the padded table."""
    padded = FullHead(as_table(head))
    loss, by_hidden, *by_blocks = batch.gradients(head)
    plain_loss, plain_by_hidden, by_table = batch.gradients(padded)
    close = functools.partial(torch.testing.assert_close, rtol=ROUNDING, atol=ROUNDING)
    close(loss, plain_loss)
    close(by_hidden, plain_by_hidden)
    rows = torch.split(by_table, [size for size, _ in BLOCKS])
    columns = 0
    for own, part, (_, dimension) in zip(by_blocks, rows, BLOCKS, strict=True):
        close(own, part[:, columns : columns + dimension])
        columns += dimension
    close(batch.log_prob(head), batch.log_prob(padded))
    close(batch.best(head), batch.best(padded))


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    report, batch = Report(options), Batch()
    torch.manual_seed(0)
    heads = {
        "table": FullHead(TableScorer(NUM_CLASSES, DIMENSION)),
        "differentiated": FullHead(DifferentiatedScorer(NUM_CLASSES, BLOCKS)),
    }
    check_same(batch, heads["differentiated"])
    for what, call, bar in (
        ("step", batch.gradients, 4),
        ("log_prob", batch.log_prob, 3),
        ("topk", batch.best, 3),
    ):
        timed = {name: functools.partial(call, head) for name, head in heads.items()}
        seconds = interleaved(timed, options.repeats, warmup=1, clock=time.process_time)
        for name, value in seconds.items():
            report.add(f"{what}, {name} (ms)", 1e3 * value)
        report.add(
            f"{what}, table / differentiated", seconds["table"] / seconds["differentiated"], bar
        )
    report.finish()


if __name__ == "__main__":
    main()
