"""A training step of MIND and SDM against one of YouTubeDNN on the same examples.

Four interests and an LSTM of ten items cost more than a mean does; the bars say how much more. The
histories are 50 long, of 5,000 items, the popular ones in most of them; steps are whole ones, with
the optimiser, and times are processor time, so that other programs on the machine change little.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from _harness import Report, command_line, interleaved
from widemax.data import Sequences
from widemax.models import MIND, SDM, Model, YouTubeDNN
from widemax.optim import RowAdam
from widemax.training.gradients.steps import GradientSteps

NUM_CLASSES, USERS, LENGTH = 5_000, 2_000, 60
MODELS: dict[str, type[Model]] = {"YouTubeDNN": YouTubeDNN, "MIND, K = 4": MIND, "SDM": SDM}
MOST = {"MIND, K = 4": 4.0, "SDM": 12.0}


def log() -> tuple[Sequences, torch.Tensor]:
    """Return histories of independent items, drawn by 1 / rank, and the counts of the items."""
    generator = torch.Generator().manual_seed(0)
    shares = 1 / torch.arange(1.0, NUM_CLASSES + 1)
    items = shares.multinomial(USERS * LENGTH, replacement=True, generator=generator)
    counts = items.bincount(minlength=NUM_CLASSES)
    return Sequences(items, torch.arange(USERS + 1) * LENGTH), counts


def stepper(kind: type[Model], sequences: Sequences, counts: torch.Tensor) -> Callable[[], None]:
    """Return what takes the next step of a model, as its usual settings are."""
    torch.manual_seed(0)
    model = kind.create(counts)
    examples = model.windows(sequences, max_history=50, window=1)
    steps = GradientSteps(model, RowAdam(model.parameters()), examples, batch_size=512)
    done = 0

    def take() -> None:
        nonlocal done
        steps.take(done, 0.001)
        done += 1

    return take


def check_results(kind: type[Model], sequences: Sequences, counts: torch.Tensor) -> None:
    """What is timed learns: the loss of a batch falls while it is trained on."""
    torch.manual_seed(0)
    model = kind.create(counts)
    batch = model.windows(sequences, max_history=50, window=1).batch(torch.arange(256))
    optimizer, losses = RowAdam(model.parameters(), lr=0.01), []
    for step in range(10):
        optimizer.zero_grad()
        loss = model(batch, generator=torch.Generator().manual_seed(step)).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if not losses[-1] < 0.9 * losses[0]:
        raise SystemExit(f"{kind.__name__} does not learn: {losses}")


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    report = Report(options)
    sequences, counts = log()
    for kind in MODELS.values():
        check_results(kind, sequences, counts)
    steps = {name: stepper(kind, sequences, counts) for name, kind in MODELS.items()}
    seconds = interleaved(steps, options.repeats, calls=5, clock=time.process_time)
    for name, each in seconds.items():
        report.add(f"{name}: one step (ms)", 1e3 * each)
    for name, most in MOST.items():
        report.add(f"{name} / YouTubeDNN", seconds[name] / seconds["YouTubeDNN"], most, "at most")
    report.finish()


if __name__ == "__main__":
    main()
