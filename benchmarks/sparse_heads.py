"""A training step of the 1.5-entmax against one of sparsemax, from peaked scores to flat ones.

At the start of training scores may be so flat that the 1.5-entmax gives thousands of classes
probability. Steps are forward and backward at V = 20,000; times are processor time.

    python benchmarks/sparse_heads.py [--json FILE] [--check]
"""

from __future__ import annotations

import time
from collections.abc import Callable

import entmax
import torch

from _harness import Report, command_line, interleaved
from widemax.heads import Entmax15Head, SparsemaxHead
from widemax.scoring import TableScorer

NUM_CLASSES, DIMENSION, ROWS = 20_000, 64, 256
SPREADS = (1.0, 0.2, 0.05)
HEADS = {
    "sparsemax": (SparsemaxHead, entmax.sparsemax),
    "1.5-entmax": (Entmax15Head, entmax.entmax15),
}
MOST = 3.0


def step_of(name: str, spread: float) -> Callable[[], None]:
    """Return a step whose scores have about this standard deviation, its result checked."""
    make_head, project = HEADS[name]
    torch.manual_seed(0)
    head = make_head(TableScorer(NUM_CLASSES, DIMENSION))
    hidden = torch.randn(ROWS, DIMENSION)
    with torch.no_grad():
        hidden *= spread / head.scores(hidden[:8]).std()
        found = head.log_prob(hidden[:8]).exp()
        wanted = project(head.scores(hidden[:8]), dim=-1)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-6)
    print(f"{name}, spread {spread:g}: {(found > 0).sum(1).float().mean():,.0f} classes")
    targets = torch.randint(NUM_CLASSES, (ROWS,))

    def step() -> None:
        head.zero_grad()
        head(hidden, targets).mean().backward()

    return step


def main() -> None:
    parser = command_line(__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    report = Report(options)
    for spread in SPREADS:
        steps = {name: step_of(name, spread) for name in HEADS}
        seconds = interleaved(steps, options.repeats, warmup=1, clock=time.process_time)
        for name, each in seconds.items():
            report.add(f"{name}, spread {spread:g}: one step (ms)", 1e3 * each)
        ratio = seconds["1.5-entmax"] / seconds["sparsemax"]
        report.add(f"spread {spread:g}: 1.5-entmax / sparsemax", ratio, MOST, "at most")
    report.finish()


if __name__ == "__main__":
    main()
