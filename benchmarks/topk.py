"""Exact evaluation against its floor, the bare products, and topk against Faiss's exact index."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from _harness import Report, command_line, interleaved
from widemax.heads import FullHead
from widemax.scoring import TableScorer

NUM_CLASSES, DIMENSION, BATCH = 1_000_000, 128, 1_024
TILE_CLASSES = 1_024
# Float32 sums of 128 products, added up in another order, differ by about this much.
ROUNDING = 1e-4


class Search:
    """One batch of queries, one table, and the ways to go through it."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.head = FullHead(TableScorer(NUM_CLASSES, DIMENSION)).requires_grad_(False)
        self.vectors = self.head.scorer.weight.copy_(
            torch.randn(NUM_CLASSES, DIMENSION, generator=generator)
        )
        self.hidden = torch.randn(BATCH, DIMENSION, generator=generator)
        self.targets = torch.randint(NUM_CLASSES, (BATCH, 1), generator=generator)

    def products(self) -> None:
        """Compute every score and keep none: what no exact method can do without."""
        scores = torch.empty(BATCH * TILE_CLASSES)
        for part in self.vectors.split(TILE_CLASSES):
            tile = scores[: BATCH * len(part)].view(BATCH, len(part))
            torch.mm(self.hidden, part.T, out=tile)

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        best = self.head.topk(self.hidden, k)
        return best.scores, best.ids

    def log_normalizer(self) -> Tensor:
        return self.head.log_normalizer(self.hidden)

    def log_prob(self) -> Tensor:
        return self.head.log_prob(self.hidden, self.targets)

    def exact_scores(self, ids: Tensor) -> Tensor:
        """Return the scores [B, k] of these ids in float64."""
        rows = zip(self.hidden.double(), ids, strict=True)
        return torch.stack([self.vectors[own].double() @ query for query, own in rows])


def faiss_search(search: Search) -> Callable[[int], tuple[Tensor, Tensor]] | None:
    """Return the same search by ``faiss.IndexFlatIP`` on as many threads, if Faiss is there."""
    try:
        import faiss
    except ImportError as error:
        print(f"without Faiss ({error}): pip install faiss-cpu to compare with it")
        return None
    faiss.omp_set_num_threads(torch.get_num_threads())
    print(f"faiss {faiss.__version__}, {faiss.omp_get_max_threads()} threads")
    index: Any = faiss.IndexFlatIP(DIMENSION)
    index.add(search.vectors.numpy())

    def find(k: int) -> tuple[Tensor, Tensor]:
        scores, ids = index.search(search.hidden.numpy(), k)
        return torch.from_numpy(scores), torch.from_numpy(ids)

    return find


def check_same(search: Search, ours: tuple[Tensor, Tensor], theirs: tuple[Tensor, Tensor]) -> int:
    """Return how many places hold another id, after holding each of them to be a near tie."""
    torch.testing.assert_close(ours[0], theirs[0], rtol=0, atol=ROUNDING)
    left, right = (search.exact_scores(ids) for _, ids in (ours, theirs))
    torch.testing.assert_close(left, right, rtol=0, atol=ROUNDING)
    assert all(len(set(row)) == len(row) for row in ours[1].tolist()), "an id came twice"
    return int((ours[1] != theirs[1]).sum())


def check_log_prob(search: Search) -> None:
    """Hold log_prob of a few rows to plain torch in float64."""
    few = slice(0, 2)
    scores = search.hidden[few].double() @ search.vectors.double().T
    expected = scores.log_softmax(-1).gather(1, search.targets[few]).float()
    torch.testing.assert_close(search.log_prob()[few], expected, rtol=1e-5, atol=1e-4)


def topk_figures(report: Report, search: Search, repeats: int) -> None:
    find = faiss_search(search)
    for k in (10, 100):
        ways: dict[str, Callable[[], object]] = {
            "products": search.products,
            "widemax": functools.partial(search.topk, k),
        }
        if find is not None:
            differing = check_same(search, search.topk(k), find(k))
            report.add(f"topk({k}): places with another id than Faiss, near ties", differing)
            ways["faiss"] = functools.partial(find, k)
        seconds = interleaved(ways, repeats, warmup=1)
        report.add(f"topk({k}): bare products (s)", seconds["products"])
        report.add(f"topk({k}): widemax (s)", seconds["widemax"])
        report.add(f"topk({k}): widemax / products", seconds["widemax"] / seconds["products"])
        if find is not None:
            ratio = seconds["widemax"] / seconds["faiss"]
            limit = 1.3 if k == 100 else None
            report.add(f"topk({k}): faiss.IndexFlatIP (s)", seconds["faiss"])
            report.add(f"topk({k}): widemax / faiss", ratio, limit, "at most")


def log_prob_figures(report: Report, search: Search, repeats: int) -> None:
    check_log_prob(search)
    ways = {"log_normalizer": search.log_normalizer, "log_prob": search.log_prob}
    seconds = interleaved({"products": search.products, **ways}, repeats, warmup=1)
    for name in ways:
        report.add(f"{name} (s)", seconds[name])
        report.add(f"{name} / products", seconds[name] / seconds["products"])


def arguments() -> argparse.Namespace:
    parser = command_line(__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    return parser.parse_args()


def main() -> None:
    options = arguments()
    report = Report(options)
    search = Search()
    with torch.no_grad():
        topk_figures(report, search, options.repeats)
        log_prob_figures(report, search, options.repeats)
    report.finish()


if __name__ == "__main__":
    main()
