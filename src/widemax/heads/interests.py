"""Scores of classes for users with several hidden states: the best over them.

Interests are [B, K, D]: K hidden states of each example.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from widemax.heads.exact.best import best_products, distinct
from widemax.heads.exact.blockwise import placed
from widemax.heads.exact.linear import log_sum_exp
from widemax.scoring import Scorer
from widemax.scoring.base import is_plain
from widemax.scoring.rows import widened
from widemax.validation import check_tensor

_TILE_SCORES = 2**20


class Best(NamedTuple):
    """What the exact softmax needs of the best scores of all classes, each [B]."""

    log_normalizer: Tensor
    mean: Tensor


def check_interests(interests: Tensor, user: Tensor, targets: Tensor) -> Tensor:
    """Return the interests if they are K ≥ 1 hidden states for each row of ``user`` [B, D].

    Targets must be [B]: ``user`` is what the interests are for the one target.
    """
    if targets.dim() != 1:
        raise ValueError(
            f"targets must have shape [{len(user)}], one for each user, got {list(targets.shape)}"
        )
    rows, dimension = user.shape
    shape = check_tensor("interests", interests).shape
    if len(shape) != 3 or (shape[0], shape[2]) != (rows, dimension) or not shape[1]:
        raise ValueError(
            f"interests must have shape [{rows}, K, {dimension}] with K at least 1, got "
            f"{list(shape)}"
        )
    return interests


def best_scores(scorer: Scorer, interests: Tensor, ids: Tensor) -> Tensor:
    """Return max_k F(x_k, y) of classes [S] or [B, S], [B, S].

    >>> from widemax.scoring import TableScorer
    >>> scorer = TableScorer(2, 2)
    >>> _ = scorer.weight.data.copy_(torch.eye(2))
    >>> interests = torch.tensor([[[3.0, 0.0], [0.0, 5.0]]])
    >>> best_scores(scorer, interests, torch.tensor([0, 1])).tolist()
    [[3.0, 5.0]]
    """
    if ids.dim() == 1 and is_plain(scorer):
        states, starts = distinct(interests)
        vectors, biases = widened(scorer.class_vectors(ids)), scorer.class_biases(ids)
        best = best_products(scorer.queries(states), vectors, starts)
        return best if biases is None else best + biases
    rows, count, _ = interests.shape
    if ids.dim() == 2:
        ids = ids.repeat_interleave(count, 0)
    scores: Tensor = scorer(interests.flatten(0, 1), ids)
    return scores.view(rows, count, scores.shape[1]).amax(1)


def best_over_all(
    scorer: Scorer, interests: Tensor, targets: Tensor, target_scores: Tensor
) -> Best:
    """Return log Z and the mean over all classes: max_k F(x_k, y), the given score for a target.

    Targets and their scores are [B]. Some classes at a time, computed again for the gradient:
    [B, K, V] is never allocated whole.

    >>> from widemax.scoring import TableScorer
    >>> scorer = TableScorer(2, 2)
    >>> _ = scorer.weight.data.copy_(torch.eye(2))
    >>> interests = torch.tensor([[[3.0, 0.0], [0.0, 5.0]]])
    >>> best = best_over_all(scorer, interests, torch.tensor([1]), torch.tensor([5.0]))
    >>> round(best.mean.item(), 4), round(best.log_normalizer.item(), 4)  # log(e^3 + e^5)
    (4.0, 5.1269)
    """
    states, starts = distinct(interests)
    tile_classes = max(1, _TILE_SCORES // max(1, len(states)))
    parts: list[tuple[Tensor, Tensor]] = []
    for first, block in placed(scorer.blocks(states)):
        for start in range(0, len(block.vectors), tile_classes):
            classes = slice(start, start + tile_classes)
            biases = None if block.biases is None else block.biases[classes]
            tile = (block.queries, block.vectors[classes], starts, biases)
            own = (targets - first - start, target_scores)
            parts.append(checkpoint(_of_tile, *tile, *own, use_reentrant=False))
    log_normalizers, sums = zip(*parts, strict=True)
    mean = torch.stack(sums).sum(0) / scorer.num_classes
    return Best(torch.stack(log_normalizers).logsumexp(0), mean)


def _of_tile(
    queries: Tensor,
    vectors: Tensor,
    starts: Tensor | int,
    biases: Tensor | None,
    targets: Tensor,
    target_scores: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the log of the sum of exponentials, and the sum, over the classes of a tile, [B]."""
    # In float32 under autocast too: a log Z rounded to bfloat16 normalises nothing.
    with torch.autocast(queries.device.type, enabled=False):
        best = best_products(queries, widened(vectors), starts)
        if biases is not None:
            best = best + biases
        own = torch.arange(len(vectors), device=targets.device) == targets[:, None]
        best = torch.where(own, target_scores[:, None], best)
        return log_sum_exp(best), best.sum(-1)
