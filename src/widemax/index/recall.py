"""How much of the exact answer an index finds."""

from __future__ import annotations

import time
from dataclasses import dataclass

from torch import Tensor

from widemax.candidates import TopK
from widemax.index.base import Index
from widemax.validation import check_whole

_WARM_UP = 32
"""Queries that are asked before the time is taken."""


@dataclass(frozen=True, kw_only=True)
class IndexReport:
    """What an index finds of the exact answer, and in what time.

    >>> report = IndexReport(recall=0.97, k=10, num_queries=100, seconds=0.01, exact_seconds=0.3)
    >>> print(report)
    recall@10 0.970 of 100 queries, 0.1 ms each, 30 times as fast as exact search
    """

    recall: float
    """Mean share of the k best of each query that was found; a class with a score equal to the
    k-th counts as one of them."""
    k: int
    """How many classes each query asked for."""
    num_queries: int
    """How many queries were asked."""
    seconds: float
    """How long the index took for all of them."""
    exact_seconds: float
    """How long exact search took for all of them."""

    def __str__(self) -> str:
        return (
            f"recall@{self.k} {self.recall:.3f} of {self.num_queries:,} queries, "
            f"{1e3 * self.seconds / self.num_queries:.3g} ms each, "
            f"{self.exact_seconds / self.seconds:.3g} times as fast as exact search"
        )


def measure_recall(index: Index, exact: Index, queries: Tensor, *, k: int = 10) -> IndexReport:
    """Ask an index and the exact one the same queries [B, D] or [B, K, D], and compare.

    Give hidden states of users as they will come: class vectors as queries are easier to find.

    >>> import torch
    >>> import widemax as wm
    >>> from widemax.index import ExactIndex
    >>> exact = ExactIndex(wm.FullHead(wm.TableScorer(100, 8)))
    >>> measure_recall(exact, exact, torch.randn(5, 8)).recall
    1.0
    """
    return ExactAnswer(exact, queries, k).compare(index)


class ExactAnswer:
    """What exact search finds for some queries, to compare indexes with."""

    def __init__(self, exact: Index, queries: Tensor, k: int) -> None:
        if not len(queries):
            raise ValueError("queries must hold at least one row to measure recall, got none")
        self.queries, self.k = queries, check_whole("k", k, 1, exact.num_classes)
        self.expected, self.seconds = _timed(exact, queries, k)

    def compare(self, index: Index) -> IndexReport:
        """Ask an index the same, and report."""
        found, seconds = _timed(index, self.queries, self.k)
        return IndexReport(
            recall=recall_of(found, self.expected),
            k=self.k,
            num_queries=len(self.queries),
            seconds=seconds,
            exact_seconds=self.seconds,
        )


def recall_of(found: TopK, expected: TopK) -> float:
    """Return the mean share of each row of ``expected`` that ``found`` has, or equals in score."""
    same = (found.ids[:, :, None] == expected.ids[:, None, :]).any(2)
    # Classes with one score are as good as each other, and sums may be rounded otherwise.
    worst = expected.scores[:, -1:]
    equal = found.scores >= worst - 1e-6 * worst.abs()
    return float((same | equal).double().mean())


def _timed(index: Index, queries: Tensor, k: int) -> tuple[TopK, float]:
    # What the first search of a process starts and loads is not the search's time.
    index.search(queries[:_WARM_UP], k)
    start = time.perf_counter()
    found = index.search(queries, k)
    return found, time.perf_counter() - start
