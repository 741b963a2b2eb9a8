"""The exact head against plain cross-entropy and torch's chunked one: time and peak memory."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from _harness import Report, command_line, interleaved
from widemax.heads import FullHead
from widemax.scoring import TableScorer

NUM_CLASSES, DIMENSION, BATCH = 200_000, 128, 1_024
WIDE_CLASSES = 1_000_000
MEGABYTE = 2**20


class Step:
    """One batch of one size, and the ways to go forward and backward through it."""

    def __init__(self, num_classes: int, batch: int, dtype: torch.dtype = torch.float32) -> None:
        torch.manual_seed(0)
        self.head = FullHead(TableScorer(num_classes, DIMENSION)).to(dtype)
        self.hidden = torch.randn(batch, DIMENSION, dtype=dtype, requires_grad=True)
        self.targets = torch.randint(num_classes, (batch,))

    @property
    def weight(self) -> Tensor:
        return self.head.scorer.weight

    def plain(self) -> Tensor:
        return F.cross_entropy(self.hidden @ self.weight.T, self.targets)

    def widemax(self) -> Tensor:
        return self.head(self.hidden, self.targets).mean()

    def torch_chunked(self) -> Tensor:
        options = torch.nn.LinearCrossEntropyOptions()
        return F.linear_cross_entropy(self.hidden, self.weight, self.targets, options=options)

    def run(self, loss: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
        self.hidden.grad = self.weight.grad = None
        loss().backward()
        return self.hidden.grad, self.weight.grad


def worst_gradient_difference() -> float:
    """In float64, against plain torch, at a size whose tiles do not come out even."""
    step = Step(20_011, 257, torch.float64)
    pairs = zip(step.run(step.plain), step.run(step.widemax), strict=True)
    return max(float((left - right).abs().max()) for left, right in pairs)


def peak_memory(way: str) -> float:
    """Return the megabytes that ``way`` needs beyond its inputs, in a process of its own."""
    command = [sys.executable, __file__, "--measure", way]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"this system does not report {field}: memory cannot be measured")


def measure(way: str) -> None:
    """Print how far the resident memory rises while ``way`` runs once."""
    small = Step(3_000, 8)
    step = Step(WIDE_CLASSES if way in ("log_prob", "scores", "topk") else NUM_CLASSES, BATCH)
    ways: dict[str, Callable[[Step], object]] = {
        "plain": lambda step: step.run(step.plain),
        "widemax": lambda step: step.run(step.widemax),
        "torch_chunked": lambda step: step.run(step.torch_chunked),
        "log_prob": lambda step: step.head.log_prob(step.hidden, step.targets[:, None]),
        "scores": lambda step: step.head.scores(step.hidden, step.targets),
        "topk": lambda step: step.head.topk(step.hidden, 100),
    }
    with torch.set_grad_enabled(way in ("plain", "widemax", "torch_chunked")):
        ways[way](small)
        before = status("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew
        ways[way](step)
    print((status("VmHWM") - before) / MEGABYTE)


def time_figures(report: Report, repeats: int) -> None:
    step = Step(NUM_CLASSES, BATCH)
    plain, ours = step.run(step.plain), step.run(step.widemax)
    for left, right in zip(plain, ours, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-6)
    seconds = interleaved(
        {
            "plain": lambda: step.run(step.plain),
            "widemax": lambda: step.run(step.widemax),
        },
        repeats,
        warmup=1,
    )
    # Once, without a warm-up: it takes minutes where the others take seconds.
    seconds |= interleaved({"torch_chunked": lambda: step.run(step.torch_chunked)}, 1, warmup=0)
    report.add("plain cross-entropy, forward + backward (s)", seconds["plain"])
    report.add("FullHead (s)", seconds["widemax"])
    report.add("torch linear_cross_entropy, chunked (s)", seconds["torch_chunked"])
    report.add("time: FullHead / plain", seconds["widemax"] / seconds["plain"], 1.3, "at most")
    report.add("time: torch chunked / plain", seconds["torch_chunked"] / seconds["plain"])


def memory_figures(report: Report) -> None:
    used = {way: peak_memory(way) for way in ("plain", "widemax", "torch_chunked")}
    report.add("plain cross-entropy, peak (MB)", used["plain"])
    report.add("FullHead, peak (MB)", used["widemax"])
    report.add("torch linear_cross_entropy, chunked, peak (MB)", used["torch_chunked"])
    report.add("memory: FullHead / plain", used["widemax"] / used["plain"], 0.15, "at most")
    for way in ("log_prob", "scores", "topk"):
        name = f"{way} at V = {WIDE_CLASSES:,}, B = {BATCH:,}, peak (MB)"
        report.add(name, peak_memory(way), 256, "at most")


def arguments() -> argparse.Namespace:
    parser = command_line(__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if options.measure:
        measure(options.measure)
        return
    report = Report(options)
    report.add(
        "gradients against plain torch, float64", worst_gradient_difference(), 1e-10, "at most"
    )
    memory_figures(report)
    time_figures(report, options.repeats)
    report.finish()


if __name__ == "__main__":
    main()
