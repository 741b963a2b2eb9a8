"""The exact softmax as a head."""

from __future__ import annotations

import torch
from torch import Tensor

from widemax.heads.base import BatchHead, ScorerHead
from widemax.heads.batch import Batch
from widemax.heads.exact import linear_cross_entropy
from widemax.scoring import Scorer
from widemax.validation import check_fraction


class FullHead(BatchHead, ScorerHead):
    """The exact softmax cross-entropy, without the [B, V] matrix.

    Formula: L = ``cross_entropy(scorer(hidden), targets, reduction="none")``; with T positives
    the label is 1/T each.

    Shapes: hidden [B, D], targets [B] or [B, T], weights [B] → losses [B]. Targets equal to
    ``ignore_index`` do not count; an example without another has loss 0.

    Cost: O(B·V·D), four matrix products where the plain way has three, and still faster: a tile
    of scores stays in the cache. Memory: the gradient of the table and a few tiles.

    Reference: the tiling is that of Wijmans et al. 2024 (cut cross-entropy).

    Use when: V is up to some 100,000, and as the truth for every shortcut. Avoid when: the step
    is too slow for you (``SampledHead``).

    >>> import torch
    >>> import widemax as wm
    >>> _ = torch.manual_seed(0)
    >>> head = wm.FullHead(wm.TableScorer(1000, 16))
    >>> hidden, targets = torch.randn(4, 16), torch.tensor([1, 2, 3, 999])
    >>> exact = torch.nn.functional.cross_entropy(head.scores(hidden), targets)
    >>> torch.allclose(head(hidden, targets).mean(), exact)
    True
    """

    def __init__(
        self, scorer: Scorer, *, label_smoothing: float = 0.0, ignore_index: int = -100
    ) -> None:
        super().__init__(scorer)
        self.label_smoothing = check_fraction("label_smoothing", label_smoothing)
        self.ignore_index = ignore_index

    def batch_losses(self, batch: Batch, generator: torch.Generator | None) -> Tensor:
        """Return the exact loss of each example, [B]; nothing is drawn."""
        queries, vectors, biases = self._inner_product(batch.hidden)
        target_ids = batch.target_table
        # Shares like 1/3 are wanted in at least float32, whatever the model runs in.
        present = (target_ids >= 0).to(torch.promote_types(queries.dtype, torch.float32))
        target_weights = present / present.sum(-1, keepdim=True)
        return linear_cross_entropy(
            queries,
            vectors,
            biases,
            target_ids.clamp(min=0),
            target_weights,
            label_smoothing=self.label_smoothing,
        )
