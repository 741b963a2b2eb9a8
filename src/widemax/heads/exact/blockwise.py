"""The exact softmax over the blocks of a scorer: sums and best classes a block, then merged.

A scorer whose vectors are all of one kind has one block. One with several
(``DifferentiatedScorer``) pays for each at its own dimension.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from widemax.candidates import ClassBlock, TopK
from widemax.heads.exact.linear import (
    linear_log_normalizer,
    linear_scores,
    linear_sums,
    offer_scores,
)
from widemax.heads.exact.topk import best_keeper
from widemax.scoring.rows import widened

Blocks = Sequence[ClassBlock]


def placed(blocks: Blocks) -> Iterator[tuple[int, ClassBlock]]:
    """Yield each block with the id of its first class."""
    start = 0
    for block in blocks:
        yield start, block
        start += len(block.vectors)


def block_cross_entropy(
    blocks: Blocks, targets: Tensor, target_weights: Tensor, *, label_smoothing: float = 0.0
) -> Tensor:
    """Return the exact cross-entropy [B] with labels ``target_weights`` [B, T] on ``targets``.

    ``label_smoothing`` is the mass that is spread over all classes.
    """
    num_classes = sum(len(block.vectors) for block in blocks)
    weights = target_weights * (1 - label_smoothing)
    sums = []
    for start, block in placed(blocks):
        last = len(block.vectors) - 1
        local = targets - start
        inside = (local >= 0) & (local <= last)
        share = len(block.vectors) / num_classes
        own_weights = weights if len(blocks) == 1 else weights.masked_fill(~inside, 0.0)
        own = (*block, local.clamp(0, last), own_weights)
        sums.append(linear_sums(*own, mean_weight=label_smoothing * share))
    return _joined([each for each, _ in sums]) - sum(labelled for _, labelled in sums)


def block_log_normalizer(blocks: Blocks) -> Tensor:
    """Return log Z = LSE over all classes of F, [B], differentiable."""
    return _joined([linear_log_normalizer(*block) for block in blocks])


def _joined(log_sums: list[Tensor]) -> Tensor:
    return log_sums[0] if len(log_sums) == 1 else torch.stack(log_sums).logsumexp(0)


def block_scores(blocks: Blocks, ids: Tensor | None = None) -> Tensor:
    """Return F(x, y) of the given classes ([S] or [B, S]) or of all, in at least float32."""
    if ids is None:
        parts = [linear_scores(*block) for block in blocks]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
    if len(blocks) == 1:
        return linear_scores(*_chosen(blocks[0], ids))
    return _scores_of(blocks, ids)


def _chosen(block: ClassBlock, local: Tensor) -> ClassBlock:
    biases = None if block.biases is None else block.biases[local]
    return ClassBlock(block.queries, block.vectors[local], biases)


def _scores_of(blocks: Blocks, ids: Tensor) -> Tensor:
    flat, parts, places = ids.flatten(), [], []
    for start, block in placed(blocks):
        place = ((flat >= start) & (flat < start + len(block.vectors))).nonzero()[:, 0]
        local = flat[place] - start
        if ids.dim() == 1:
            parts.append(linear_scores(*_chosen(block, local)))
        else:
            rows = place.div(max(1, ids.shape[1]), rounding_mode="floor")
            own = block._replace(queries=block.queries[rows])
            parts.append(linear_scores(*_chosen(own, local[:, None]))[:, 0])
        places.append(place)
    # The parts are ordered by block: back into the order of the ids.
    scores = torch.cat(parts, dim=-1)[..., torch.cat(places).argsort()]
    return scores if ids.dim() == 1 else scores.view(ids.shape)


@torch.no_grad()
def block_topk(blocks: Blocks, k: int, *, exclude: Tensor | None = None) -> TopK:
    """Return the k best classes of each row, leaving out ``exclude`` [B, E] (-1: nothing).

    Of equal scores the smaller id comes first.
    """
    keeper = best_keeper(widened(blocks[0].queries), k, exclude)
    for start, block in placed(blocks):
        offer_scores(keeper, *block, start)
    return keeper.result()
