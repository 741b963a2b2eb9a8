"""How well a model predicts the target of each example: loss, rank and perplexity, all exact."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widemax.candidates import ClassBlock
from widemax.data import WindowBatch, Windows
from widemax.heads import Head
from widemax.kernels.evaluation.ranks import TileRanks, target_ranks
from widemax.kernels.threads import num_blocks, one_thread_each
from widemax.validation import check_tensor

if TYPE_CHECKING:
    from widemax.kernels.evaluation.products import Products

_ROWS_AT_ONCE = 1024
# 16 MB in float32, which a cache can hold; but rows enough to be worth a reading of all classes, as
# long as they take no more than 64 MB: models hold two or three such blocks at most.
_SCORES_AT_ONCE, _MOST_SCORES_AT_ONCE = 2**22, 2**24
_FEWEST_ROWS = 48
_TILE_ROWS, _TILE_CLASSES = 512, 1024
# Rounding may lift the log of a probability near 1 a little above 0; a score lies far above.
_ROUNDING = 1e-3


@dataclass(frozen=True, kw_only=True)
class RankingReport:
    """What ``evaluate_ranking`` found: means over the examples.

    >>> RankingReport(examples=1, loss=0.5, recall=1.0, ndcg=0.63, mrr=0.5, k=20).metrics()
    {'loss': 0.5, 'recall@20': 1.0, 'ndcg@20': 0.63, 'mrr': 0.5}
    """

    examples: int
    """How many there were."""
    loss: float
    """−log P(target | context)."""
    recall: float
    """1 where the target is among the best k classes, else 0."""
    ndcg: float
    """1 / log2(rank + 1) where the target is among the best k, else 0."""
    mrr: float
    """1 / rank, counted from 1."""
    k: int
    """The length of list that recall and ndcg look at."""
    per_example: Mapping[str, Tensor] | None = None
    """float64 [N] for each name of ``metrics``, in the order of the examples, if asked for."""

    def metrics(self) -> dict[str, float]:
        """Return the metrics by the names that the configuration uses."""
        return {
            "loss": self.loss,
            f"recall@{self.k}": self.recall,
            f"ndcg@{self.k}": self.ndcg,
            "mrr": self.mrr,
        }


@torch.no_grad()
def evaluate_ranking(
    log_prob: Callable[[WindowBatch], Tensor],
    examples: Windows,
    *,
    k: int = 20,
    keep_per_example: bool = False,
    normalised: bool = True,
    progress: Callable[[int], object] | None = None,
) -> RankingReport:
    """Rank the target of each example among all classes, exactly.

    ``log_prob`` takes a batch and returns log P of all classes, [B, V]: ``model.log_prob``. With
    ``normalised=False`` it returns scores of which log P is the softmax, as far as the targets need
    it, which is less work. A class
    with the target's own score counts half a rank, so that a model that scores all classes alike
    does not look perfect. Against sampled classes ranks would be biased (Krichene & Rendle 2020).
    Batches have 1,024 rows, or fewer where there are many classes: 16 to 64 MB of log P at once.

    >>> from widemax.data import Sequences, Windows
    >>> windows = Windows(Sequences.from_lists([[0, 1, 2]]), before=1, require_context=True)
    >>> def log_prob(batch):
    ...     return torch.full((len(batch.targets), 4), 0.25).log()
    >>> report = evaluate_ranking(log_prob, windows)
    >>> round(report.loss, 4), report.mrr  # four classes alike: rank 2.5
    (1.3863, 0.4)
    """
    # Made first: between two blocks of scores they would be in the way of the next.
    losses, rank = torch.empty(2, len(examples), dtype=torch.float64)
    start = 0
    for found, batch in _predictions(log_prob, examples, progress):
        better, alike, own = _places(found, batch.targets, normalised=normalised)
        stop = start + len(batch.targets)
        rank[start:stop] = better + (alike.double() + 1) / 2
        losses[start:stop] = -own
        start = stop
        del found
    return _report(losses, rank, k, keep_per_example=keep_per_example)


@torch.no_grad()
def evaluate_products(
    blocks: Callable[[WindowBatch], Sequence[ClassBlock]],
    examples: Windows,
    *,
    k: int = 20,
    keep_per_example: bool = False,
) -> RankingReport:
    """Do what ``evaluate_ranking`` does where scores are products of float32 on the CPU.

    ``blocks`` returns all classes of a batch, as ``scorer.blocks`` of its hidden states. Scores are
    made and forgotten some classes at a time: 2 MB of them, which a core's own cache can hold.

    >>> from widemax.data import Sequences, Windows
    >>> windows = Windows(Sequences.from_lists([[0, 1, 2]]), before=1, require_context=True)
    >>> def blocks(batch):
    ...     return [ClassBlock(torch.ones(len(batch.targets), 2), torch.ones(4, 2), None)]
    >>> report = evaluate_products(blocks, windows)
    >>> round(report.loss, 4), report.mrr  # four classes alike: rank 2.5
    (1.3863, 0.4)
    """
    _check_some(examples)
    losses, rank = torch.empty(2, len(examples), dtype=torch.float64)
    threads = num_blocks(len(examples), smallest=_FEWEST_ROWS)
    times = math.ceil(len(examples) / (threads * _TILE_ROWS))
    with ThreadPoolExecutor(threads) as pool:
        for rows in torch.arange(len(examples)).tensor_split(times):
            batch = examples.batch(rows)
            found = _ranks_of(blocks(batch), batch.targets, threads, pool)
            better, alike, log_prob = map(torch.cat, zip(*found, strict=True))
            rank[rows] = better + (alike.double() + 1) / 2
            losses[rows] = -log_prob
    return _report(losses, rank, k, keep_per_example=keep_per_example)


def _ranks_of(
    blocks: Sequence[ClassBlock], targets: Tensor, threads: int, pool: Executor
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Return what ``_ranks_of_rows`` finds, of as many parts of the rows as there are threads."""
    if threads == 1:
        return [_ranks_of_rows(blocks, targets, slice(None))]
    ends = [len(targets) * part // threads for part in range(threads + 1)]
    parts = [slice(*each) for each in pairwise(ends)]
    # Not all threads at each tile, which is small: they would wait for each other twice for every
    # one, the longer the busier the machine is.
    with one_thread_each():
        return list(pool.map(lambda rows: _ranks_of_rows(blocks, targets, rows), parts))


@torch.no_grad()  # which every thread has to say for itself
def _ranks_of_rows(
    blocks: Sequence[ClassBlock], targets: Tensor, rows: slice
) -> tuple[Tensor, Tensor, Tensor]:
    """Return how many classes stand above each target, how many beside it, and its log P."""
    # Here and not above: its tiles load Numba, which a run that answers does without.
    from widemax.kernels.evaluation.products import Products

    targets = targets[rows]
    products = [Products(block.queries[rows].numpy(), _TILE_CLASSES) for block in blocks]
    own, start = np.zeros(len(targets), np.float32), 0
    for block, product in zip(blocks, products, strict=True):
        asked = ((targets >= start) & (targets < start + len(block.vectors))).nonzero()[:, 0]
        # By a product of the same kind as the others: classes alike then have the same score.
        for some in torch.split(asked, _TILE_CLASSES):
            own_rows, tile = some.numpy(), _tile_of(block, product, targets[some] - start)
            own[own_rows] = tile[own_rows, np.arange(len(own_rows))]
        start += len(block.vectors)
    found, start = TileRanks(targets.numpy(), own), 0
    for block, product in zip(blocks, products, strict=True):
        for first in range(0, len(block.vectors), _TILE_CLASSES):
            last = min(first + _TILE_CLASSES, len(block.vectors))
            found.add(_tile_of(block, product, slice(first, last)), start + first)
        start += len(block.vectors)
    places = found.better, found.alike, found.log_prob()
    better, alike, log_prob = map(torch.from_numpy, places)
    return better, alike, log_prob


def _tile_of(block: ClassBlock, products: Products, classes: slice | Tensor) -> NDArray[np.float32]:
    """Return the scores of some classes, until others are asked for."""
    tile = products.with_classes(block.vectors[classes].float().numpy())
    if block.biases is not None:
        tile += block.biases[classes].numpy()
    return tile


def _report(losses: Tensor, rank: Tensor, k: int, *, keep_per_example: bool) -> RankingReport:
    hits = (rank <= k).double()
    found_in = {
        "loss": losses,
        f"recall@{k}": hits,
        f"ndcg@{k}": hits / (rank + 1).log2(),
        "mrr": 1 / rank,
    }
    loss, recall, ndcg, mrr = (float(values.mean()) for values in found_in.values())
    return RankingReport(
        examples=len(losses),
        loss=loss,
        recall=recall,
        ndcg=ndcg,
        mrr=mrr,
        k=k,
        per_example=found_in if keep_per_example else None,
    )


@dataclass(frozen=True, kw_only=True)
class PerplexityReport:
    """How surprised a model was, on average over the tokens.

    Models of different vocabularies, or that predict different tokens, cannot be compared by it.

    >>> report = PerplexityReport.from_log_probs(torch.tensor([0.5, 0.125]).log())
    >>> report.tokens, round(report.perplexity, 4)
    (2, 4.0)
    """

    tokens: int
    """How many were predicted."""
    mean_log_prob: float
    """The mean of log P(token | context), natural logarithm."""
    perplexity: float
    """exp(−mean_log_prob); a token of probability 0 makes it infinite."""

    @classmethod
    def from_log_probs(cls, log_probs: Tensor) -> PerplexityReport:
        """Take log P of each token, [N], as ``target_log_probs`` gives it."""
        mean = _check_log_probs("log_probs", log_probs).mean()
        return cls(
            tokens=len(log_probs), mean_log_prob=float(mean), perplexity=float((-mean).exp())
        )

    def metrics(self) -> dict[str, float]:
        """Return the metrics by their names."""
        return {"mean_log_prob": self.mean_log_prob, "perplexity": self.perplexity}


def evaluate_perplexity(
    head: Head,
    encode: Callable[[Tensor], Tensor],
    examples: Windows,
    *,
    progress: Callable[[int], object] | None = None,
) -> PerplexityReport:
    """Measure exp(−mean log P(target | context)) of a model on examples, exactly.

    P is that of ``target_log_probs``. Put encoder and head into ``eval`` mode first: dropout would
    be measured with them. Of windows that see what comes after the target it is no perplexity.

    >>> from widemax.data import Sequences
    >>> from widemax.heads import FullHead
    >>> from widemax.scoring import TableScorer
    >>> windows = Windows(Sequences.from_lists([[0, 1, 2]]), before=1)
    >>> encode = lambda context: torch.zeros(len(context), 2)
    >>> report = evaluate_perplexity(FullHead(TableScorer(4, 2)), encode, windows)
    >>> report.tokens, round(report.perplexity, 4)  # four classes alike
    (3, 4.0)
    """
    log_probs = target_log_probs(head, encode, examples, progress=progress)
    return PerplexityReport.from_log_probs(log_probs)


@torch.no_grad()
def target_log_probs(
    head: Head,
    encode: Callable[[Tensor], Tensor],
    examples: Windows,
    *,
    progress: Callable[[int], object] | None = None,
) -> Tensor:
    """Return log P of the target of each example, float64 [N] on the CPU.

    ``encode`` turns contexts [B, H] into hidden states [B, D]; P comes from ``head.log_prob``:
    normalised over all classes, whatever the training objective was, block by block.

    >>> from widemax.data import Sequences
    >>> from widemax.heads import FullHead
    >>> from widemax.scoring import TableScorer
    >>> windows = Windows(Sequences.from_lists([[0, 1]]), before=1)
    >>> encode = lambda context: torch.zeros(len(context), 2)
    >>> log_probs = target_log_probs(FullHead(TableScorer(4, 2)), encode, windows)
    >>> [round(prob, 4) for prob in log_probs.exp().tolist()]
    [0.25, 0.25]
    """
    parts = []
    for batch in _batches(examples, progress):
        hidden = encode(batch.context)
        targets = batch.targets.to(hidden.device)[:, None]
        parts.append(head.log_prob(hidden, targets)[:, 0].double().cpu())
    return torch.cat(parts)


def mixed_perplexity(
    log_probs: Tensor, other_log_probs: Tensor, weight: float = 0.5
) -> PerplexityReport:
    """Measure the perplexity of two models mixed, log P = log(w·p + (1 − w)·q) for each token.

    Both are [N], of the same tokens in the same order; w = ``weight`` goes to the first and must be
    chosen on other tokens. Bengio et al. 2003 mix the neural model half and half with a trigram:
    the two err on different tokens.

    >>> sure, unsure = torch.tensor([0.9, 0.1]).log(), torch.tensor([0.1, 0.9]).log()
    >>> round(mixed_perplexity(sure, unsure).perplexity, 4)  # alone, each has 3.3333
    2.0
    """
    if not 0 <= weight <= 1:
        raise ValueError(f"weight must be between 0 and 1, got {weight!r}")
    first = _check_log_probs("log_probs", log_probs)
    second = _check_log_probs("other_log_probs", other_log_probs)
    if len(first) != len(second):
        raise ValueError(
            f"other_log_probs must be of the same {len(first):,} tokens, got {len(second):,}"
        )
    shares = [math.log(share) if share else -math.inf for share in (weight, 1 - weight)]
    return PerplexityReport.from_log_probs(torch.logaddexp(first + shares[0], second + shares[1]))


def _predictions(
    log_prob: Callable[[WindowBatch], Tensor],
    examples: Windows,
    progress: Callable[[int], object] | None,
) -> Iterator[tuple[Tensor, WindowBatch]]:
    """Yield log P of all classes [B, V] and its batch, of as many rows as may stand at once."""
    _check_some(examples)
    # The first row says how many classes there are.
    start, rows = 0, 1
    while start < len(examples):
        stop = min(start + rows, len(examples))
        batch = examples.batch(torch.arange(start, stop))
        found = log_prob(batch)
        classes = max(1, found.shape[1])
        few = min(_FEWEST_ROWS, _MOST_SCORES_AT_ONCE // classes)
        rows = max(1, few, min(_ROWS_AT_ONCE, _SCORES_AT_ONCE // classes))
        yield found, batch
        del found  # before the next block is made
        if progress is not None:
            progress(stop - start)
        start = stop


def _places(found: Tensor, targets: Tensor, *, normalised: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return how many classes stand above each target, how many beside it, and its log P."""
    # A kernel looks where it is told to: nothing else would catch a wrong row or class.
    if found.dim() != 2 or len(found) != len(targets):
        raise ValueError(
            f"log_prob must return a row for each of {len(targets):,} examples, "
            f"got {tuple(found.shape)}"
        )
    if not bool(((targets >= 0) & (targets < found.shape[1])).all()):
        raise ValueError(f"targets must be classes below {found.shape[1]:,}, got {targets.max()}")
    if found.device.type == "cpu" and found.dtype == torch.float32 and found.is_contiguous():
        places = map(torch.from_numpy, target_ranks(found.numpy(), targets.numpy()))
        better, alike, log_prob = places
    else:
        own = found.gather(1, targets[:, None])
        better, alike = (found > own).sum(-1), (found == own).sum(-1)
        log_prob = found.log_softmax(-1).gather(1, targets[:, None])[:, 0]
    return better, alike, found.gather(1, targets[:, None])[:, 0] if normalised else log_prob


def _check_some(examples: Windows) -> None:
    if not len(examples):
        raise ValueError("there are no examples to evaluate on")


def _batches(examples: Windows, progress: Callable[[int], object] | None) -> Iterator[WindowBatch]:
    """Yield the examples some rows at a time, and report those that are done."""
    _check_some(examples)
    for rows in torch.split(torch.arange(len(examples)), _ROWS_AT_ONCE):
        yield examples.batch(rows)
        if progress is not None:
            progress(len(rows))


def _check_log_probs(name: str, log_probs: Tensor) -> Tensor:
    """Return ``log_probs`` in float64 if they can be the logarithms of probabilities, [N]."""
    if check_tensor(name, log_probs).dim() != 1 or not len(log_probs):
        raise ValueError(f"{name} must have shape [N], N at least 1, got {list(log_probs.shape)}")
    wide = log_probs.detach().double()
    largest = float(wide.max())
    if not largest <= _ROUNDING:  # NaN comes out as the largest
        raise ValueError(
            f"{name} must be logarithms of probabilities, at most 0, got {largest:g}: scores must "
            "be normalised first"
        )
    return wide
