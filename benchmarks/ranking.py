"""Recommendations for every user, seen items left out and judged, against Faiss's bare search.

The lists are those of the folder ``gowalla`` of WIDEMAX_DATA (``train.txt``, ``valid.txt`` and
``test.txt``, lines ``user item item …``) if it is there, else simulated ones of the same size; by
default that folder is ../shared/data beside the checkout. Both search in as
many threads; the bar is on the time that passes, and the time of all threads together is given
beside it, which says more where other programs share the cores.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from _harness import DATA, Report, command_line
from widemax.candidates import TopK
from widemax.data import Holdout, Sequences, WindowBatch
from widemax.evaluation.recommendation import evaluate_recommendations
from widemax.evaluation.recommendation_report import RecommendationReport
from widemax.heads import FullHead
from widemax.scoring import TableScorer

USERS, CLASSES, DIMENSION, K = 29_858, 40_981, 64, 20
SEEN, TARGETS, GROUPS = 27, 7, 200
SAMPLE = 300
OURS, PEER = "widemax", "faiss"
CLOSE = 1e-12
# Float32 sums of 64 products, in another order, differ by about this share of the largest.
ROUNDING = 1e-5


def read_lists(path: Path) -> list[list[int]]:
    """Return the items of each line ``user item item …``."""
    return [[int(item) for item in line.split()[1:]] for line in path.read_text().splitlines()]


def real_lists(folder: Path) -> tuple[list[list[int]], list[list[int]]]:
    """Return what each user had, and what is to be found."""
    train, valid = (read_lists(folder / name) for name in ("train.txt", "valid.txt"))
    seen = [first + second for first, second in zip(train, valid, strict=True)]
    return seen, read_lists(folder / "test.txt")


def simulated_lists() -> tuple[list[list[int]], list[list[int]]]:
    """Draw users who keep to the popular items of their group, and sometimes to any other."""
    generator = torch.Generator().manual_seed(0)
    shape = (USERS, SEEN + TARGETS)
    group = torch.randint(GROUPS, (USERS, 1), generator=generator)
    elsewhere = torch.rand(shape, generator=generator) < 0.3
    any_group = torch.randint(GROUPS, shape, generator=generator)
    in_group = CLASSES // GROUPS
    rank = (in_group ** torch.rand(shape, generator=generator, dtype=torch.float64)).long() - 1
    items = (rank * GROUPS + torch.where(elsewhere, any_group, group)).tolist()
    return [row[:SEEN] for row in items], [row[SEEN:] for row in items]


class Recommendations:
    """Users and items with the vectors of a truncated SVD of who had what."""

    def __init__(self, seen: list[list[int]], targets: list[list[int]], users: int) -> None:
        asked = [row for row, own in enumerate(targets) if own][:users]
        histories = Sequences.from_lists(seen)
        rows = torch.tensor(asked)
        wanted = Sequences.from_lists([targets[row] for row in asked])
        self.holdout = Holdout(histories.chosen(rows), wanted, rows)
        self.counts = torch.bincount(histories.values, minlength=CLASSES)
        self.users, items = truncated_svd(histories)
        self.head = FullHead(TableScorer(CLASSES, DIMENSION)).requires_grad_(False)
        self.items = self.head.scorer.weight.copy_(items)

    def topk(self, batch: WindowBatch, k: int, *, exclude: Tensor | None = None) -> TopK:
        assert batch.users is not None
        return self.head.topk(self.users[batch.users], k, exclude=exclude)

    def evaluate(self) -> RecommendationReport:
        return evaluate_recommendations(self.topk, self.holdout, ks=(K,), counts=self.counts)


def truncated_svd(histories: Sequences) -> tuple[Tensor, Tensor]:
    """Return vectors of users and items by subspace iteration: what training ends near to."""
    rows = torch.arange(len(histories)).repeat_interleave(histories.lengths)
    places, ones = torch.stack([rows, histories.values]), torch.ones(len(rows))
    shape = (len(histories), CLASSES)
    had = torch.sparse_coo_tensor(places, ones, shape, check_invariants=True).coalesce()
    by_item = had.t().coalesce()
    basis = torch.randn(CLASSES, DIMENSION, generator=torch.Generator().manual_seed(0))
    for _ in range(3):
        basis = torch.linalg.qr(by_item @ (had @ basis)).Q
    return (had @ basis).contiguous(), basis.contiguous()


def check_lists(search: Recommendations) -> None:
    """Hold the lists of some users to a sort of all their scores in float64."""
    generator = torch.Generator().manual_seed(1)
    rows = torch.randperm(len(search.holdout), generator=generator)[:SAMPLE]
    seen = search.holdout.seen(rows)
    users = search.users[search.holdout.users[rows]]
    best = search.head.topk(users, K, exclude=seen)
    scores = users.double() @ search.items.double().T
    for row, own in enumerate(seen):
        scores[row, own[own >= 0]] = -torch.inf
    expected = scores.topk(K).values
    atol = ROUNDING * float(expected.abs().max())
    torch.testing.assert_close(scores.gather(1, best.ids), expected, rtol=0, atol=atol)


def check_metrics(search: Recommendations) -> tuple[RecommendationReport, float]:
    """Return the report, and how far a user's metrics lie from a plain loop's, on a sample."""
    lists: dict[int, list[int]] = {}

    def recorded(batch: WindowBatch, k: int, *, exclude: Tensor | None = None) -> TopK:
        best = search.topk(batch, k, exclude=exclude)
        assert batch.users is not None
        lists.update(zip(batch.users.tolist(), best.ids.tolist(), strict=True))
        return best

    report = evaluate_recommendations(
        recorded, search.holdout, ks=(K,), counts=search.counts, keep_per_user=True
    )
    assert report.per_user is not None
    worst = 0.0
    for row in range(0, len(search.holdout), max(1, len(search.holdout) // SAMPLE)):
        own = set(search.holdout.targets.sequence(row).tolist())
        ranked = lists[int(search.holdout.users[row])]
        for name, value in plain_metrics(ranked, own).items():
            worst = max(worst, abs(float(report.per_user[f"{name}@{K}"][row]) - value))
    assert worst <= CLOSE, f"metrics differ from a plain loop by {worst:g}"
    return report, worst


def plain_metrics(ranked: list[int], wanted: set[int]) -> dict[str, float]:
    places = [place for place, item in enumerate(ranked, 1) if item in wanted]
    most = min(K, len(wanted))
    ideal = math.fsum(1 / math.log2(place + 1) for place in range(1, most + 1))
    return {
        "recall": len(places) / len(wanted),
        "hit_rate": float(bool(places)),
        "precision": len(places) / K,
        "ndcg": math.fsum(1 / math.log2(place + 1) for place in places) / ideal,
        "mrr": 1 / places[0] if places else 0.0,
        "map": math.fsum((i + 1) / place for i, place in enumerate(places)) / most,
    }


def faiss_index(search: Recommendations) -> Any | None:
    try:
        import faiss
    except ImportError as error:
        print(f"without Faiss ({error}): pip install faiss-cpu to compare with it")
        return None
    faiss.omp_set_num_threads(torch.get_num_threads())
    print(f"faiss {faiss.__version__}, {faiss.omp_get_max_threads()} threads")
    index: Any = faiss.IndexFlatIP(DIMENSION)
    index.add(search.items.numpy())
    return index


class Taken(NamedTuple):
    """What a call took: the time that passed, and that of all threads together."""

    seconds: float
    cpu_seconds: float


def in_turn(ways: dict[str, Callable[[], object]], repeats: int) -> dict[str, Taken]:
    """Return the medians of each way; they take turns, so that all share the noise."""
    runs: dict[str, list[Taken]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            start, cpu_start = time.perf_counter(), time.process_time()
            way()
            taken = Taken(time.perf_counter() - start, time.process_time() - cpu_start)
            print(f"{name}: {taken.seconds:.3f} s, all threads {taken.cpu_seconds:.3f} s")
            runs[name].append(taken)
    return {
        name: Taken(*map(statistics.median, zip(*own, strict=True))) for name, own in runs.items()
    }


def figures(report: Report, search: Recommendations, repeats: int) -> None:
    check_lists(search)
    found, difference = check_metrics(search)  # with it all is warm, too
    report.add("metrics: largest difference to a plain loop", difference, CLOSE, "at most")
    print(found)
    report.add("users", found.users)
    report.add(f"recall@{K}", found.metrics()[f"recall@{K}"])
    index = faiss_index(search)
    queries = search.users[search.holdout.users].numpy()
    ways: dict[str, Callable[[], object]] = {OURS: search.evaluate}
    if index is not None:
        index.search(queries[:SAMPLE], K)
        ways[PEER] = lambda: index.search(queries, K)
    taken = in_turn(ways, repeats)
    ours = taken[OURS]
    report.add("recommend, leave out what was seen, judge (s)", ours.seconds)
    report.add("the same, all threads together (s)", ours.cpu_seconds)
    if PEER in taken:
        theirs = taken[PEER]
        report.add("faiss.IndexFlatIP, search alone (s)", theirs.seconds)
        report.add("the same, all threads together (s)", theirs.cpu_seconds)
        report.add("widemax / faiss", ours.seconds / theirs.seconds, 1.5, "at most")
        report.add("widemax / faiss, all threads together", ours.cpu_seconds / theirs.cpu_seconds)


def arguments() -> argparse.Namespace:
    parser = command_line(__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--users", type=int, default=USERS, help="ask about so many, no more")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    report = Report(options)
    folder = DATA / "gowalla"
    seen, targets = real_lists(folder) if folder.exists() else simulated_lists()
    print("lists of Gowalla" if folder.exists() else "simulated lists")
    with torch.no_grad():
        figures(report, Recommendations(seen, targets, options.users), options.repeats)
    report.finish()


if __name__ == "__main__":
    main()
