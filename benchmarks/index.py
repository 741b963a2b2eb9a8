"""Approximate search against exact search, for vectors trained on the log of a simulated shop.

The shop has departments of a thousand items whose popularity falls by Zipf's law; a visit is drawn
to two of them. Skip-gram learns the items from the visits, and a visitor is asked for by the mean
of the first half of a visit. Both searches have one thread.
"""

from __future__ import annotations

import argparse
import functools
import time
from typing import NamedTuple

import torch
from torch import Tensor

from _harness import Report, command_line, interleaved
from widemax.data import Sequences
from widemax.extras import import_extra
from widemax.heads import SampledHead
from widemax.index import ExactIndex, FaissIndex, Index, build_index, measure_recall
from widemax.models import SkipGram
from widemax.models.embeddings.kernel_steps import train_word2vec

DIMENSION, VISIT, DEPARTMENT = 64, 20, 1000
VISITS_AN_ITEM, STRAY = 1, 0.05
RECALL, SPEED = 0.95, 20


class Shop(NamedTuple):
    """The visits [N, 20] to a shop, and each visitor's share of it that a query may know."""

    visits: Tensor
    counts: Tensor

    @classmethod
    def simulate(cls, num_classes: int, generator: torch.Generator) -> Shop:
        """Draw as many visits as there are items, so that an item is seen 20 times on average."""
        popularity = torch.arange(1, num_classes + 1, dtype=torch.float64).pow(-0.6)
        departments = max(2, num_classes // DEPARTMENT)
        # An item's department is chance, the rest of the order is by department and popularity.
        department = torch.randint(departments, (num_classes,), generator=generator)
        order = department.argsort(stable=True)
        first = torch.searchsorted(department[order].contiguous(), torch.arange(departments + 1))
        until = torch.cat([popularity.new_zeros(1), popularity[order].cumsum(0)])
        shape = (VISITS_AN_ITEM * num_classes, VISIT)
        # A department is visited as often as its items are bought.
        drawn = torch.rand(shape[0], 2, dtype=torch.float64, generator=generator) * until[-1]
        tastes = torch.searchsorted(until[first], drawn, right=True) - 1
        chosen = tastes.gather(1, torch.randint(2, shape, generator=generator))
        low, high = until[first[chosen]], until[first[chosen + 1]]
        stray = torch.rand(shape, generator=generator) < STRAY
        low[stray], high[stray] = 0, until[-1]
        place = low + torch.rand(shape, dtype=torch.float64, generator=generator) * (high - low)
        rank = torch.searchsorted(until, place, right=True).sub_(1).clamp_(max=num_classes - 1)
        visits = order[rank]
        return cls(visits, torch.bincount(visits.flatten(), minlength=num_classes))


def trained(shop: Shop) -> SkipGram:
    """Return item vectors learnt from the visits in one pass."""
    model = SkipGram.create(shop.counts, dimension=DIMENSION, subsample=0)
    offsets = torch.arange(0, shop.visits.numel() + 1, VISIT)
    sequences = Sequences(shop.visits.flatten(), offsets)
    train_word2vec(model, sequences, epochs=1, learning_rate=0.1, threads=1)
    return model.requires_grad_(False)


def hit_rate(index: Index, hidden: Tensor, visits: Tensor) -> float:
    """Return how often one of the ten best is in the half of the visit that was not shown."""
    found = index.search(hidden, 10).ids
    return (found[:, :, None] == visits[:, None, VISIT // 2 :]).any(2).any(1).double().mean().item()


def add_speed(report: Report, exact: Index, index: Index, hidden: Tensor, repeats: int) -> float:
    """Time both searches on batches of many queries and of one; return the ratio of many."""
    ratio = 0.0
    for rows in (1, len(hidden)):
        ways = {
            "exact": functools.partial(exact.search, hidden[:rows], 10),
            index.kind: functools.partial(index.search, hidden[:rows], 10),
        }
        seconds = interleaved(ways, repeats, calls=10 if rows == 1 else 1, warmup=1)
        for name, value in seconds.items():
            report.add(f"{name}, batch of {rows:,}: ms a query", value / rows * 1000)
        ratio = seconds["exact"] / seconds[index.kind]
        limit = SPEED if rows > 1 else None
        report.add(f"{index.kind}, batch of {rows:,}: times as fast as exact", ratio, limit)
    return ratio


def arguments() -> argparse.Namespace:
    parser = command_line(__doc__)
    parser.add_argument("--classes", type=int, default=1_000_000)
    parser.add_argument("--kind", choices=["ivf", "hnsw"], default="ivf")
    parser.add_argument("--queries", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=5)
    return parser.parse_args()


def main() -> None:
    options = arguments()
    report = Report(options)
    torch.set_num_threads(1)
    import_extra("faiss").omp_set_num_threads(1)
    start = time.perf_counter()
    torch.manual_seed(0)
    shop = Shop.simulate(options.classes, torch.Generator().manual_seed(0))
    model = trained(shop)
    report.add("simulating and training (s)", time.perf_counter() - start)

    # Half of the visitors choose the breadth of the search, the others judge it.
    visits = shop.visits[: 2 * options.queries]
    hidden = model.encode(visits[:, : VISIT // 2])
    choosing, judging = hidden.chunk(2)
    assert isinstance(model.head, SampledHead)
    start = time.perf_counter()
    index, _ = build_index(options.kind, model.head, choosing, recall=RECALL + 0.01)
    report.add(f"{index.kind}: building, and choosing its breadth (s)", time.perf_counter() - start)
    assert isinstance(index, FaissIndex)
    report.add(f"{index.kind}: breadth", index.breadth)

    exact = ExactIndex(model.head)
    found = index.search(judging, 10)
    torch.testing.assert_close(found.scores, model.head.scores(judging, found.ids))
    recall = measure_recall(index, exact, judging).recall
    report.add(f"{index.kind}: recall@10", recall, RECALL)
    for each in (exact, index):
        report.add(f"{each.kind}: hit rate@10", hit_rate(each, judging, visits[options.queries :]))
    add_speed(report, exact, index, judging, options.repeats)
    report.finish()


if __name__ == "__main__":
    main()
