"""Every head on a shop whose truth is known: the exact KL after equal steps and after equal time.

One small encoder, one stream of clicks; only the head changes. Equal time is what the exact softmax
takes for its steps. Heads that do not estimate log P are in the table for contrast.
"""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor, nn

import widemax as wm

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
from _harness import Report, command_line

BATCH, FEATURES, DIMENSION, NUM_SAMPLES, NUM_USERS = 512, 16, 32, 256, 2_000
LEARNING_RATE = 0.02


@dataclass(frozen=True)
class Shop:
    """The world, a log of clicks, and how often each item is in it."""

    world: wm.data.SimulatedWorld
    users: Tensor
    targets: Tensor
    counts: Tensor

    @classmethod
    def simulate(cls, num_classes: int, num_clicks: int) -> Shop:
        world = wm.data.SimulatedWorld.create(
            num_classes=num_classes, num_users=NUM_USERS, dimension=FEATURES
        )
        generator = torch.Generator().manual_seed(0)
        users, targets = world.interactions(num_clicks, generator=generator)
        # The catalogue is listed by what was clicked: adaptive and log-uniform need falling counts.
        return cls(world, users, targets, torch.bincount(targets, minlength=num_classes) + 1)

    @property
    def num_classes(self) -> int:
        return self.world.num_classes

    def table(self) -> wm.TableScorer:
        scorer = wm.TableScorer(self.num_classes, DIMENSION, bias=True)
        nn.init.constant_(scorer.bias, -math.log(self.num_classes))
        return scorer

    def unigram(self, **options: bool) -> wm.UnigramSampler:
        return wm.UnigramSampler(self.num_classes, self.counts, **options)

    def sampled(self, objective: wm.Objective, scorer: wm.Scorer | None = None) -> wm.Head:
        return wm.SampledHead(
            scorer or self.table(),
            self.unigram(unique=True),
            objective=objective,
            num_samples=NUM_SAMPLES,
        )

    def importance(self, effective_size: int | None) -> wm.Head:
        return wm.heads.ImportanceHead(
            self.table(),
            self.unigram(),
            num_samples=NUM_SAMPLES,
            effective_size=effective_size,
            max_samples=16 * NUM_SAMPLES,
        )

    def adaptive(self) -> wm.Head:
        falling = self.counts.sort(descending=True).values
        return wm.AdaptiveHead(DIMENSION, self.num_classes, counts=falling, bias=True)

    def differentiated(self) -> wm.Scorer:
        fifth = self.num_classes // 5
        return wm.scoring.DifferentiatedScorer(
            self.num_classes, [(fifth, 20), (self.num_classes - fifth, 12)], bias=True
        )

    def spelled(self) -> wm.Scorer:
        words = [f"item {index}" for index in range(self.num_classes)]
        return wm.scoring.CharCNNScorer(words, DIMENSION, bias=True)

    def clustered(self) -> wm.Tree:
        return wm.Tree.clustered(self.world.item_vectors.float(), self.counts)


@dataclass(frozen=True)
class Method:
    make: Callable[[Shop], wm.Head]
    tolerance: float | None
    """How far its KL may be above that of the exact softmax after equal steps; None: no claim."""


METHODS = {
    "exact softmax": Method(lambda shop: wm.FullHead(shop.table()), 0.0),
    "sampled softmax": Method(lambda shop: shop.sampled(wm.sampled_softmax), 0.15),
    "corrected log Q": Method(lambda shop: shop.sampled(wm.corrected_log_q), 0.15),
    "NCE": Method(lambda shop: shop.sampled(wm.nce), 0.3),
    "importance sampling": Method(lambda shop: shop.importance(None), 0.2),
    "importance sampling, ESS ≥ 128": Method(lambda shop: shop.importance(128), 0.2),
    "hierarchical, Huffman": Method(
        lambda shop: wm.HierarchicalHead(DIMENSION, wm.Tree.huffman(shop.counts), bias=True), 0.3
    ),
    "hierarchical, clustered": Method(
        lambda shop: wm.HierarchicalHead(DIMENSION, shop.clustered(), bias=True), 0.3
    ),
    "adaptive": Method(Shop.adaptive, 0.2),
    "differentiated, exact": Method(lambda shop: wm.FullHead(shop.differentiated()), 0.2),
    "CNN-softmax, sampled": Method(
        lambda shop: shop.sampled(wm.sampled_softmax, shop.spelled()), 0.3
    ),
    "self-normalised": Method(lambda shop: wm.heads.SelfNormalisedHead(shop.table()), 0.1),
    "infrequent, 10 %": Method(
        lambda shop: wm.heads.InfrequentHead(shop.table(), fraction=0.1), 0.3
    ),
    "top-k sparse, k = 1,000": Method(
        lambda shop: wm.heads.TopKSoftmaxHead(shop.table(), k=1_000), None
    ),
    "sparsemax": Method(lambda shop: wm.heads.SparsemaxHead(shop.table()), None),
    "1.5-entmax": Method(lambda shop: wm.heads.Entmax15Head(shop.table()), None),
    "negative sampling": Method(lambda shop: shop.sampled(wm.negative_sampling), None),
    "InfoNCE (no log Q)": Method(lambda shop: shop.sampled(wm.info_nce), None),
}


@dataclass(frozen=True)
class Trained:
    kl: float
    steps: int
    seconds: float


def train(shop: Shop, head: wm.Head, *, steps: int, seconds: float = math.inf) -> Trained:
    """Train until either limit is reached; the learning rate falls with the part that is spent."""
    encoder = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, DIMENSION))
    model = nn.ModuleList([encoder, head])
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    generator = torch.Generator().manual_seed(1)
    step, spent, started = 0, 0.0, time.perf_counter()
    while spent < 1:
        rows = torch.randint(len(shop.users), (BATCH,), generator=generator)
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * (1 - 0.98 * spent)
        optimizer.zero_grad()
        hidden = encoder(shop.world.features(shop.users[rows]))
        losses = head(hidden, shop.targets[rows], generator=generator)
        losses.mean().backward()
        wm.training.check_finite(model, losses, step=step)
        optimizer.step()
        step += 1
        spent = max(step / steps, (time.perf_counter() - started) / seconds)
    elapsed = time.perf_counter() - started
    return Trained(kl_to_truth(shop, encoder, head), step, elapsed)


@torch.no_grad()
def kl_to_truth(shop: Shop, encoder: nn.Module, head: wm.Head) -> float:
    head.eval()
    users = torch.arange(0, NUM_USERS, 10)
    return shop.world.kl(users, head.log_prob(encoder(shop.world.features(users))))


def make(shop: Shop, name: str) -> wm.Head:
    torch.manual_seed(0)
    return METHODS[name].make(shop)


def show(results: dict[str, tuple[Trained, Trained]]) -> None:
    table = Table(title="exact KL(truth ‖ model)")
    for name in ("head", "ms/step", "KL, equal steps", "steps in equal time", "KL, equal time"):
        table.add_column(name, justify="left" if name == "head" else "right")
    for name, (by_steps, by_time) in results.items():
        table.add_row(
            name,
            f"{1e3 * by_steps.seconds / by_steps.steps:.1f}",
            f"{by_steps.kl:.3f}",
            f"{by_time.steps:,}",
            f"{by_time.kl:.3f}",
        )
    Console(width=100).print(table)


def add_figures(report: Report, results: dict[str, tuple[Trained, Trained]]) -> None:
    exact = results["exact softmax"][0].kl
    for name, (by_steps, by_time) in results.items():
        tolerance = METHODS[name].tolerance
        limit = None if tolerance is None else exact + tolerance
        report.add(f"{name}: KL after equal steps", by_steps.kl, limit, "at most")
        report.add(f"{name}: KL after equal time", by_time.kl)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--num-classes", type=int, default=20_000)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--clicks", type=int, default=2_500_000)
    parser.add_argument(
        "--heads", nargs="*", default=list(METHODS), choices=list(METHODS), metavar="HEAD",
        help="only these, beside the exact softmax",
    )  # fmt: skip
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="sampled_softmax")
    # So many that even the fastest head meets few twice: overfitting is not what is compared.
    shop = Shop.simulate(options.num_classes, options.clicks)
    results: dict[str, tuple[Trained, Trained]] = {}
    budget = 0.0  # what the exact softmax, the first, takes for its steps
    names = dict.fromkeys(["exact softmax", *options.heads])
    for name in track(list(names), description="training every head twice"):
        by_steps = train(shop, make(shop, name), steps=options.steps)
        budget = budget or by_steps.seconds
        by_time = train(shop, make(shop, name), steps=sys.maxsize, seconds=budget)
        results[name] = (by_steps, by_time)
    show(results)
    report = Report(options)
    add_figures(report, results)
    report.finish()


if __name__ == "__main__":
    main()
