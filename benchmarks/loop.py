"""What the training loop costs: an epoch through ``Loop`` against the bare steps of that epoch.

Both take the same batches, draws, head and optimiser. The loop also sets the learning rate, scans
losses and gradients for NaN, keeps the time and listens for signals. Its last checkpoint is part
of the run but not of the figure: it is written once, however long the training was.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median

import torch
from torch import Tensor, nn

from _harness import Report, command_line
from widemax.heads import SampledHead
from widemax.optim import RowAdam
from widemax.sampling import LogUniformSampler
from widemax.scoring import TableScorer
from widemax.training.checkpoints import CheckpointStore
from widemax.training.gradients.steps import GradientSteps
from widemax.training.loop import Loop, Plan

BATCH, DIMENSION, NUM_CLASSES, NUM_SAMPLES = 512, 64, 100_000, 1_024
LEARNING_RATE = 0.01
SEED = 0


class Examples:
    """Vectors and their classes, held in memory: reading data is not what is measured."""

    def __init__(self, number: int) -> None:
        generator = torch.Generator().manual_seed(1)
        self.features = torch.randn(number, DIMENSION, generator=generator)
        self.targets = torch.randint(NUM_CLASSES, (number,), generator=generator)

    def __len__(self) -> int:
        return len(self.targets)

    def batch(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        return self.features[rows], self.targets[rows]


class Model(nn.Module):
    """A dense layer and a sampled head with a sparse table: both kinds of gradients."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(SEED)
        self.encoder = nn.Linear(DIMENSION, DIMENSION)
        self.head = SampledHead(
            TableScorer(NUM_CLASSES, DIMENSION, sparse=True),
            LogUniformSampler(NUM_CLASSES, unique=True),
            num_samples=NUM_SAMPLES,
        )

    def forward(self, batch: tuple[Tensor, Tensor], *, generator: torch.Generator) -> Tensor:
        features, targets = batch
        return self.head(self.encoder(features), targets, generator=generator)


class Trained:
    """A fresh model and its optimiser, trained for one epoch in one of two ways."""

    def __init__(self, examples: Examples) -> None:
        self.examples, self.steps = examples, len(examples) // BATCH
        self.model = Model()
        self.optimizer = RowAdam(self.model.parameters(), lr=LEARNING_RATE)

    def bare(self) -> float:
        """Train by the shortest loop there is; return its seconds."""
        generator = torch.Generator().manual_seed(SEED)
        start = time.perf_counter()
        # The order in which the loop goes through its first epoch.
        order = torch.randperm(len(self.examples), generator=torch.Generator().manual_seed(SEED))
        for step in range(self.steps):
            rows = order[step * BATCH : (step + 1) * BATCH]
            self.optimizer.zero_grad()
            self.model(self.examples.batch(rows), generator=generator).mean().backward()
            self.optimizer.step()
        return time.perf_counter() - start

    def loop(self) -> float:
        """Train by ``Loop`` with a store; return the seconds until its last step was done."""
        plan = Plan(total_steps=self.steps, learning_rate=lambda step: LEARNING_RATE)
        steps = GradientSteps(
            self.model, self.optimizer, self.examples, batch_size=BATCH, seed=SEED
        )
        with tempfile.TemporaryDirectory() as folder, CheckpointStore(Path(folder)) as store:
            loop = Loop(steps, plan, store=store)
            # What the loop itself counts: from its start to the end of the last step.
            return loop.run().seconds


def check_results(examples: Examples) -> None:
    """What is timed is the same training: both ways end with the same bits."""
    one, other = Trained(examples), Trained(examples)
    one.bare()
    other.loop()
    before = Model().state_dict()
    for name, tensor in one.model.state_dict().items():
        if not torch.equal(tensor, other.model.state_dict()[name]):
            raise SystemExit(f"{name} differs between the bare steps and the loop")
    if torch.equal(before["head.scorer.weight"], one.model.state_dict()["head.scorer.weight"]):
        raise SystemExit("nothing was trained")


def measure(report: Report, examples: Examples, steps: int, repeats: int) -> None:
    """Take the loop between two bare epochs, each on a fresh model, and compare within a round.

    What the machine does meanwhile then weighs on both; how far the two bare epochs are apart says
    how much of a difference is noise.
    """
    rounds = []
    for _ in range(repeats):
        ways = (Trained.bare, Trained.loop, Trained.bare)
        rounds.append([way(Trained(examples)) for way in ways])
    report.add("bare steps: one step (ms)", 1e3 * median(bare for bare, _, _ in rounds) / steps)
    report.add("loop: one step (ms)", 1e3 * median(loop for _, loop, _ in rounds) / steps)
    noise = median(max(one, two) / min(one, two) for one, _, two in rounds)
    report.add("noise: the slower of two bare epochs / the faster", noise)
    ratio = median(2 * loop / (one + two) for one, loop, two in rounds)
    report.add("an epoch through the loop / bare", ratio, 1.1, "at most")


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--steps", type=int, default=150)
    options = parser.parse_args()
    report = Report(options)
    examples = Examples(options.steps * BATCH)
    check_results(examples)
    measure(report, examples, options.steps, options.repeats)
    report.finish()


if __name__ == "__main__":
    main()
