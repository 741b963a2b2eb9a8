"""Exact loss and ranking metrics of one target a row, over the whole catalogue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from widemax.data import WindowBatch, Windows

_ROWS_AT_ONCE = 1024


@dataclass(frozen=True, kw_only=True)
class RankingReport:
    """What ``evaluate_ranking`` found: means over the examples.

    Formula: with r the rank of the target among all classes, counted from 1: loss = −log P(t | x);
    recall@k = [r ≤ k]; ndcg@k = [r ≤ k] / log2(r + 1); mrr = 1/r.

    Shapes: numbers.

    Cost: it only holds numbers.

    Reference: Krichene & Rendle 2020 (why not against sampled classes).

    Use when: reading an evaluation. Avoid when: each row has several targets.

    >>> RankingReport(examples=1, loss=0.5, recall=1.0, ndcg=0.63, mrr=0.5, k=20).metrics()
    {'loss': 0.5, 'recall@20': 1.0, 'ndcg@20': 0.63, 'mrr': 0.5}
    """

    examples: int
    loss: float
    recall: float
    ndcg: float
    mrr: float
    k: int

    def metrics(self) -> dict[str, float]:
        """Return the metrics by the names that the configuration uses."""
        numbers = asdict(self)
        return {
            "loss": numbers["loss"],
            f"recall@{self.k}": numbers["recall"],
            f"ndcg@{self.k}": numbers["ndcg"],
            "mrr": numbers["mrr"],
        }


@torch.no_grad()
def evaluate_ranking(
    log_prob: Callable[[WindowBatch], Tensor],
    examples: Windows,
    *,
    k: int = 20,
    progress: Callable[[int], object] | None = None,
) -> RankingReport:
    """Rank the target of each example among all classes, exactly.

    Formula: as ``RankingReport``. A class with the target's own score counts half a rank, so that a
    model that scores all classes alike does not look perfect.

    Shapes: ``log_prob`` takes a batch and returns log P of all classes, [B, V]; that of a model
    is ``model.log_prob``.

    Cost: O(N·V·D), in blocks of rows; the [B, V] matrix of one block stands at a time.

    Reference: Krichene & Rendle 2020.

    Use when: judging a model, on examples it has not seen. Avoid when: only the loss is wanted.

    >>> import widemax as wm
    >>> windows = wm.Windows(wm.Sequences.from_lists([[0, 1, 2]]), before=1, require_context=True)
    >>> report = evaluate_ranking(lambda batch: torch.full((2, 4), 0.25).log(), windows)
    >>> round(report.loss, 4), report.mrr  # four classes alike: rank 2.5
    (1.3863, 0.4)
    """
    if not len(examples):
        raise ValueError("there are no examples to evaluate on")
    losses, ranks = [], []
    for start in range(0, len(examples), _ROWS_AT_ONCE):
        rows = torch.arange(start, min(start + _ROWS_AT_ONCE, len(examples)))
        batch = examples.batch(rows)
        found = log_prob(batch)
        own = found.gather(1, batch.targets[:, None])
        better = (found > own).sum(-1)
        alike = (found == own).sum(-1) - 1
        ranks.append(1 + better + alike.double() / 2)
        losses.append(-own[:, 0].double())
        if progress is not None:
            progress(len(rows))
    rank = torch.cat(ranks)
    hits = (rank <= k).double()
    return RankingReport(
        examples=len(examples),
        loss=float(torch.cat(losses).mean()),
        recall=float(hits.mean()),
        ndcg=float((hits / (rank + 1).log2()).mean()),
        mrr=float((1 / rank).mean()),
        k=k,
    )
