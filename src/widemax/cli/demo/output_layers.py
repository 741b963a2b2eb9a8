"""``widemax demo --compare``: six output layers on one simulated world whose truth is known."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from torch import Tensor, nn

from widemax.cli.answers import strict_json
from widemax.data.simulation.world import SimulatedWorld
from widemax.heads import FullHead, Head, SampledHead
from widemax.objectives import (
    Objective,
    corrected_log_q,
    info_nce,
    nce,
    negative_sampling,
    sampled_softmax,
)
from widemax.sampling import UnigramSampler
from widemax.scoring import TableScorer
from widemax.storage.files import atomic_write
from widemax.training import check_finite

NUM_CLASSES = 20_000
STEPS = 400
BATCH_SIZE = 512
NUM_SAMPLES = 256
NUM_USERS = 2_000
NUM_TESTS = 10_000
FEATURES = 16
DIMENSION = 32
LEARNING_RATE = 0.02
TOP = 20

OUTPUT_LAYERS: Mapping[str, Objective | None] = {
    "full softmax": None,
    "sampled softmax": sampled_softmax,
    "sampled, no log Q": info_nce,
    "corrected log Q": corrected_log_q,
    "NCE": nce,
    "negative sampling": negative_sampling,
}
"""What is compared: the exact head, and each objective on the same sampler."""


class Clicks(NamedTuple):
    """Users and the items they chose."""

    users: Tensor
    targets: Tensor


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one method reached; every figure but the time is exact, over the whole catalogue."""

    method: str
    milliseconds_per_step: float
    test_log_likelihood: float
    recall_at_20: float
    kl_to_truth: float


class Model(nn.Module):
    """The small encoder that every method shares, and the head that is compared."""

    def __init__(self, head: Head) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, DIMENSION))
        self.head = head


def compare_output_layers(
    *,
    num_classes: int | None = None,
    steps: int | None = None,
    seed: int = 0,
    json_path: Path | None = None,
) -> None:
    """Simulate, train every method, print the table."""
    console = Console()
    num_classes = NUM_CLASSES if num_classes is None else num_classes
    steps = STEPS if steps is None else steps
    if num_classes < TOP:
        raise ValueError(f"num_classes must be at least {TOP} for recall@{TOP}, got {num_classes}")
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps:,}")
    if json_path and not json_path.parent.is_dir():
        raise ValueError(f"json must lie in an existing folder, got {str(json_path)!r}")
    started = time.perf_counter()
    columns = (TextColumn("{task.description:<32}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        simulating = progress.add_task("simulating the world", total=None)
        world = SimulatedWorld.create(
            num_classes=num_classes, num_users=NUM_USERS, dimension=FEATURES, seed=seed
        )
        train, test = _clicks(world, steps * BATCH_SIZE, seed), _clicks(world, NUM_TESTS, seed + 1)
        progress.update(simulating, total=1, completed=1)
        counts = torch.bincount(train.targets, minlength=num_classes)
        results = []
        for method, objective in OUTPUT_LAYERS.items():
            task = progress.add_task(method, total=steps + 1)
            torch.manual_seed(seed)
            model = Model(_make_head(objective, counts))
            step_time = _train(model, world, train, seed, partial(progress.advance, task))
            results.append(_evaluate(method, model, world, test, step_time))
            progress.advance(task)
    title = (
        f"{num_classes:,} items, {steps:,} steps of {BATCH_SIZE}, "
        f"{_num_samples(counts)} sampled classes"
    )
    _show(console, title, results, time.perf_counter() - started)
    if json_path:
        with atomic_write(json_path) as file:
            file.write(strict_json([asdict(result) for result in results], indent=1).encode())


def _clicks(world: SimulatedWorld, number: int, seed: int) -> Clicks:
    users, targets = world.interactions(number, generator=torch.Generator().manual_seed(seed))
    return Clicks(users=users, targets=targets)


def _make_head(objective: Objective | None, counts: Tensor) -> Head:
    num_classes = len(counts)
    scorer = TableScorer(num_classes, DIMENSION, bias=True)
    # Softmax rows do not feel a common shift. The logistic ones learn log-probabilities, and a
    # class they have not met yet must not start above all those they have.
    assert scorer.bias is not None
    nn.init.constant_(scorer.bias, -math.log(num_classes))
    if objective is None:
        return FullHead(scorer)
    sampler = UnigramSampler(num_classes, counts, unique=True)
    return SampledHead(scorer, sampler, objective=objective, num_samples=_num_samples(counts))


def _num_samples(counts: Tensor) -> int:
    """Return how many distinct classes are drawn: fewer where the catalogue is tiny."""
    return min(NUM_SAMPLES, max(1, int((counts > 0).sum()) // 4))


def _train(
    model: Model, world: SimulatedWorld, clicks: Clicks, seed: int, advance: Callable[[], None]
) -> float:
    """Train on the clicks once, in order; return the median seconds of a step."""
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    starts = range(0, len(clicks.users), BATCH_SIZE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.02, total_iters=len(starts))
    generator = torch.Generator().manual_seed(seed)
    times = []
    for step, start in enumerate(starts):
        users, targets = (part[start : start + BATCH_SIZE] for part in clicks)
        started = time.perf_counter()
        optimizer.zero_grad()
        hidden = model.encoder(world.features(users))
        loss = model.head(hidden, targets, generator=generator).mean()
        loss.backward()
        check_finite(model, loss, step=step)
        optimizer.step()
        schedule.step()
        times.append(time.perf_counter() - started)
        advance()
    return median(times)


@torch.no_grad()
def _evaluate(
    method: str, model: Model, world: SimulatedWorld, test: Clicks, step_time: float
) -> Result:
    hidden = model.encoder(world.features(test.users))
    best = model.head.topk(hidden, TOP).ids
    users = torch.arange(0, NUM_USERS, 10)
    return Result(
        method=method,
        milliseconds_per_step=1e3 * step_time,
        test_log_likelihood=model.head.log_prob(hidden, test.targets[:, None]).mean().item(),
        recall_at_20=(best == test.targets[:, None]).any(-1).double().mean().item(),
        kl_to_truth=world.kl(users, model.head.log_prob(model.encoder(world.features(users)))),
    )


def _show(console: Console, title: str, results: list[Result], seconds: float) -> None:
    table = Table(title=title)
    table.add_column("output layer")
    for name in ("ms/step", "log-likelihood", f"recall@{TOP}", "KL to truth"):
        table.add_column(name, justify="right")
    for result in results:
        table.add_row(
            result.method,
            f"{result.milliseconds_per_step:.1f}",
            f"{result.test_log_likelihood:.3f}",
            f"{result.recall_at_20:.4f}",
            f"{result.kl_to_truth:.3f}",
        )
    console.print(table)
    console.print(
        "Log-likelihood, recall and KL are exact, over the whole catalogue. Negative sampling, and "
        "sampled softmax without log Q, learn log(P/Q): good vectors, wrong probabilities."
    )
    console.print(f"Took {seconds:.0f} s. Next: docs/choosing.md says which one when.")
