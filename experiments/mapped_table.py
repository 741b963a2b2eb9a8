"""A table larger than memory: 10^8 classes of dimension 64 in a file, trained in less than 4 GB.

The file has holes where nothing was learned, so it takes far less disk than its size. At the end a
second process opens it and must find every row that was touched, to the bit.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.progress import track
from torch import Tensor

import widemax as wm
from widemax.optim import RowwiseAdagrad

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
from _harness import Report, command_line

DIMENSION, BATCH, NUM_SAMPLES, NUM_GROUPS = 64, 1_024, 1_024, 256
MAX_RESIDENT_GB = 4.0

SAMPLERS: dict[str, Callable[[int], wm.Sampler]] = {
    # Every candidate on a page of its own: the most memory that a step can ask for.
    "uniform": wm.UniformSampler,
    "log-uniform": wm.LogUniformSampler,
}


@dataclass(frozen=True)
class Trained:
    touched: Tensor
    """All classes that had a gradient, in order."""

    losses: list[float]
    seconds: float


def train(scorer: wm.TableScorer, sampler: wm.Sampler, steps: int) -> Trained:
    """Learn which group a class belongs to from hidden states that tell the group."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    groups = torch.randn(NUM_GROUPS, DIMENSION)
    popular = wm.LogUniformSampler(scorer.num_classes)
    head = wm.SampledHead(scorer, sampler, num_samples=NUM_SAMPLES)
    optimizer = RowwiseAdagrad(head.parameters(), lr=0.1)
    touched, losses, started = [], [], time.perf_counter()
    for _ in track(range(steps), description="training"):
        targets = popular.draw((BATCH,), generator=generator)
        optimizer.zero_grad()
        loss = head(groups[targets % NUM_GROUPS], targets, generator=generator).mean()
        loss.backward()
        touched.append(scorer.weight.grad._indices()[0])
        optimizer.step()
        losses.append(loss.item())
    return Trained(torch.cat(touched).unique(), losses, time.perf_counter() - started)


def fingerprint(scorer: wm.TableScorer, ids: Tensor) -> str:
    """Return a checksum of the vectors and biases of these classes."""
    digest = hashlib.sha256()
    with torch.no_grad():
        for part in ids.split(2**16):
            digest.update(scorer.class_vectors(part).numpy().data)
            digest.update(scorer.class_biases(part).numpy().data)
    return digest.hexdigest()


def found_by_another(path: Path, num_classes: int, ids: list[int]) -> str:
    """Open the file as it is, in a process that has learned nothing."""
    scorer = wm.TableScorer.mapped(path, num_classes, DIMENSION, bias=True)
    return fingerprint(scorer, torch.tensor(ids))


def resident_gb() -> float:
    """Return the most memory this process ever had, its pages of the file included."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def measure(report: Report, folder: Path, num_classes: int, sampler: str, steps: int) -> None:
    path = folder / "vectors.npy"
    started = time.perf_counter()
    scorer = wm.TableScorer.mapped(path, num_classes, DIMENSION, bias=True)
    report.add("seconds to create the table", time.perf_counter() - started, 1.0, "at most")
    trained = train(scorer, SAMPLERS[sampler](num_classes), steps)
    started = time.perf_counter()
    scorer.flush()
    flushed = time.perf_counter() - started
    vectors = scorer.class_vectors(trained.touched)
    report.add("classes touched", len(trained.touched))
    report.add("of which learned", vectors.ne(0).any(1).double().mean(), 0.99)
    report.add("ms a step", 1e3 * trained.seconds / steps)
    report.add("seconds to flush", flushed)
    tenth = max(1, steps // 10)
    first, last = (sum(part) / tenth for part in (trained.losses[:tenth], trained.losses[-tenth:]))
    report.add("loss in the first tenth", first)
    report.add("loss in the last tenth", last, first, "at most")

    expected = fingerprint(scorer, trained.touched)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        found = pool.submit(found_by_another, path, num_classes, trained.touched.tolist()).result()
    report.add("rows as a second process finds them (1: exact)", found == expected, 1)

    size, blocks = path.stat().st_size / 1e9, path.stat().st_blocks * 512 / 1e9
    report.add("GB of the file", size)
    report.add("GB it takes on disk", blocks, max(size / 4, 0.1), "at most")
    report.add("GB resident at most", resident_gb(), MAX_RESIDENT_GB, "at most")


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--num-classes", type=int, default=10**8)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--sampler", choices=list(SAMPLERS), default="uniform")
    parser.add_argument(
        "--folder", type=Path, help="where the file is made, and removed (default: temporary files)"
    )
    options = parser.parse_args()
    report = Report(options)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        measure(report, Path(folder), options.num_classes, options.sampler, options.steps)
    report.finish()


if __name__ == "__main__":
    main()
