"""How time and memory grow with rows and with classes, from ten thousand to ten million.

Each measure is a process of its own, which prepares what it needs and then times one thing: reading
a log, a training step, a validation, an evaluation, an index, a recommendation. Sizes go up tenfold
until one takes longer than --most seconds. The exponent is the slope of the last tenfold step, of
processor time and of the memory that came on top of what was there before; what lies below a floor
has none. Memory is that of a second process, whose allocator gives back what is freed: otherwise it
keeps up to 40 MB of it, or none, by chance. --check fails where a power is higher than need be.

    python benchmarks/growth.py --check --out docs

writes docs/growth.svg and the table of docs/growth.md. --most and --largest make it shorter.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from _harness import Report, command_line
from widemax.data import Holdout, Sequences, read_source
from widemax.heads import FullHead
from widemax.index import ExactIndex, IVFIndex
from widemax.models import YouTubeDNN
from widemax.optim import RowAdam
from widemax.runs.judging.held_out import judge_users
from widemax.runs.judging.validation import validation_of
from widemax.scoring import TableScorer
from widemax.training.gradients.steps import GradientSteps

DIMENSION, USERS, HISTORY = 32, 256, 20
SECONDS_FLOOR, BYTES_FLOOR = 0.02, 2**24
"""What is below is start-up and the allocator's whims, and has no exponent."""

GIVES_BACK = {"MALLOC_MMAP_THRESHOLD_": "65536"}
"""Lets glibc return every larger piece of memory to the system when it is freed."""

SLACK = 0.25
"""So much more than it must a slope may be: caches end between two sizes."""

Work = Callable[[], object]


@dataclass(frozen=True)
class Growing:
    """Something that is measured: what makes it ready, and how fast it may grow."""

    ready: Callable[[int, Path], Work]
    of: str
    exponent: float
    memory: float
    largest: int = 10**7


class Point(NamedTuple):
    """What one size took: processor seconds, and bytes on top of what was there."""

    size: int
    seconds: float
    bytes: int


def read_log(rows: int, folder: Path) -> Work:
    """A log of ten rows a user, of a tenth as many items as users."""
    rng, path = np.random.default_rng(0), folder / "log.csv"
    with path.open("w") as file:
        file.write("user,item\n")
        for start in range(0, rows, 10**6):
            places = np.arange(start, min(rows, start + 10**6))
            items = rng.integers(0, max(1, rows // 100), len(places))
            np.savetxt(file, np.stack([places // 10, items], 1), fmt="%d", delimiter=",")
    return lambda: read_source(path)


def model_of(num_classes: int) -> YouTubeDNN:
    torch.manual_seed(0)
    counts = torch.ones(num_classes, dtype=torch.int64)
    return YouTubeDNN.create(counts, dimension=DIMENSION, num_samples=256, sampler="uniform")


def histories_of(num_classes: int, users: int) -> Sequences:
    items = torch.randint(
        num_classes, (users * HISTORY,), generator=torch.Generator().manual_seed(0)
    )
    return Sequences(items, torch.arange(users + 1) * HISTORY)


def holdout_of(num_classes: int, users: int) -> Holdout:
    targets = Sequences(torch.arange(users) % num_classes, torch.arange(users + 1))
    return Holdout(histories_of(num_classes, users), targets, torch.arange(users))


def train_step(num_classes: int, folder: Path) -> Work:
    model, log = model_of(num_classes), histories_of(num_classes, 1000)
    examples = model.windows(log, max_history=HISTORY, window=1)
    steps = GradientSteps(model, RowAdam(model.parameters()), examples, batch_size=512)
    # Once over all examples: the optimiser's state is memory that the first use of a row pays for,
    # page by page, and that is a cost of rows, not of steps.
    for step in range(steps.per_epoch):
        steps.take(step, 0.001)

    def take() -> None:
        for step in range(steps.per_epoch, steps.per_epoch + 10):
            steps.take(step, 0.001)

    return take


def validate(num_classes: int, folder: Path) -> Work:
    model = model_of(num_classes).eval()
    asked = holdout_of(num_classes, USERS)
    judge = validation_of(model, asked, "ndcg@20", max_history=HISTORY)
    assert judge is not None
    return judge


def evaluate(users: int, folder: Path) -> Work:
    num_classes = 1000
    model, asked = model_of(num_classes).eval(), holdout_of(num_classes, users)
    counts = torch.ones(num_classes, dtype=torch.int64)
    return lambda: judge_users(model, asked, ks=(20,), max_history=HISTORY, counts=counts)


def head_of(num_classes: int) -> FullHead:
    torch.manual_seed(0)
    return FullHead(TableScorer(num_classes, DIMENSION))


def index(num_classes: int, folder: Path) -> Work:
    head = head_of(num_classes)
    return lambda: IVFIndex(head)


def recommend(num_classes: int, folder: Path) -> Work:
    exact, queries = ExactIndex(head_of(num_classes)), torch.randn(16, DIMENSION)
    exact.search(queries, 10)
    return lambda: exact.search(queries, 10)


GROWING = {
    "read": Growing(read_log, "rows", 1.0, 1.0),
    "train step": Growing(train_step, "classes", 0.0, 0.0),
    "validate": Growing(validate, "classes", 1.0, 0.0),
    "evaluate": Growing(evaluate, "rows", 1.0, 1.0, largest=10**6),
    "index": Growing(index, "classes", 1.5, 1.0, largest=10**6),
    "recommend": Growing(recommend, "classes", 1.0, 0.0),
}
"""IVF has as many cells as the root of the classes, to each of which all are compared: 1.5."""


def measure(name: str, size: int) -> Point:
    """Return what one thing takes in this process, which does nothing else."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        GROWING[name].ready(min(size, 1000), Path(folder))()  # compiles what there is to compile
        work = GROWING[name].ready(size, Path(folder))
        before = _begin_peak()
        start = time.process_time()
        work()
        return Point(size, time.process_time() - start, max(0, _peak() - before))


def _begin_peak() -> int:
    """Return the resident memory in bytes, and let ``_peak`` count from there."""
    # Where the system does not, the largest of all time is what is left to compare with.
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return int(fields["VmHWM"].split()[0]) * 1024


def measured(name: str, most: float, largest: int) -> list[Point]:
    """Return the points of one thing, each from a process of its own."""
    points: list[Point] = []
    for power in range(4, 8):
        size = 10**power
        if size > min(largest, GROWING[name].largest) or (
            points and points[-1].seconds > most / 10
        ):
            break
        timed, weighed = _in_a_process(name, size, {}), _in_a_process(name, size, GIVES_BACK)
        points.append(timed._replace(bytes=weighed.bytes))
        print(f"{name}: {size:,} {GROWING[name].of}, {points[-1].seconds:.3f} s", flush=True)
    return points


def _in_a_process(name: str, size: int, environment: dict[str, str]) -> Point:
    done = subprocess.run(
        [sys.executable, __file__, "--measure", name, "--size", str(size)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    if done.returncode:
        sys.exit(f"{name} of {size:,} failed: {done.stderr}")
    return Point(*json.loads(done.stdout.splitlines()[-1]))


def slope(points: list[Point], values: list[float], floor: float) -> float | None:
    """Return the exponent of the last two points, None where the last is below the floor.

    >>> slope([Point(10, 0, 0), Point(100, 0, 0)], [1.0, 10.0], 0.1)
    1.0
    """
    if len(points) < 2 or values[-1] < floor:
        return None
    rise = math.log(values[-1] / max(values[-2], floor / 10))
    return round(rise / math.log(points[-1].size / points[-2].size), 3)


def table_of(found: dict[str, list[Point]]) -> str:
    """Return all points as a table to read."""
    lines = ["| | of | size | seconds | MB | grows with the power | MB with |"]
    lines.append("|---|---|---:|---:|---:|---:|---:|")
    for name, points in found.items():
        for point in points:
            last = point is points[-1]
            powers = [_shown(each) if last else "" for each in slopes(points)]
            lines.append(
                f"| {name} | {GROWING[name].of} | {point.size:,} | {point.seconds:.3g} | "
                f"{point.bytes / 2**20:,.0f} | {powers[0]} | {powers[1]} |"
            )
    return "\n".join(lines)


def slopes(points: list[Point]) -> tuple[float | None, float | None]:
    return (
        slope(points, [each.seconds for each in points], SECONDS_FLOOR),
        slope(points, [float(each.bytes) for each in points], BYTES_FLOOR),
    )


def _shown(power: float | None) -> str:
    return "–" if power is None else f"{power:.2f}"


def write_page(folder: Path, found: dict[str, list[Point]]) -> None:
    """Write the picture, and the table between the two marks of the page."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "growth", "font.size": 9})
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.6))
    for name, points in found.items():
        sizes = [each.size for each in points]
        label = f"{name} ({GROWING[name].of})"
        axes[0].plot(sizes, [each.seconds for each in points], marker="o", label=label)
        # A drawing has no place for nothing: a megabyte stands for less.
        axes[1].plot(sizes, [max(1.0, each.bytes / 2**20) for each in points], marker="o")
    for each, unit in zip(axes, ("seconds of one core", "MB on top"), strict=True):
        each.set(xscale="log", yscale="log", xlabel="rows or classes", ylabel=unit)
        each.grid(alpha=0.3)
    axes[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(folder / "growth.svg", metadata={"Date": None})
    page = folder / "growth.md"
    begin, end = "<!-- table -->\n", "\n<!-- end of the table -->"
    head, _, rest = page.read_text().partition(begin)
    page.write_text(head + begin + table_of(found) + end + rest.partition(end)[2])


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--measure", choices=list(GROWING), help="one thing, in this process")
    parser.add_argument("--size", type=int, default=10**4)
    parser.add_argument("--most", type=float, default=20.0, help="seconds of one measure, about")
    parser.add_argument("--largest", type=int, default=10**7, help="rows or classes")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where growth.md is")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.size)))
        return
    report = Report(options)
    found = {name: measured(name, options.most, options.largest) for name in GROWING}
    for name, points in found.items():
        growing = GROWING[name]
        report.add(f"{name}: seconds of {points[-1].size:,} {growing.of}", points[-1].seconds)
        report.add(f"{name}: MB of {points[-1].size:,} {growing.of}", points[-1].bytes / 2**20)
        times, memory = slopes(points)
        if times is not None:
            most = growing.exponent + SLACK
            report.add(f"{name}: time grows with the power", times, most, "at most")
        if memory is not None:
            most = growing.memory + SLACK
            report.add(f"{name}: memory grows with the power", memory, most, "at most")
    if options.out is not None:
        write_page(options.out, found)
    report.finish()


if __name__ == "__main__":
    main()
