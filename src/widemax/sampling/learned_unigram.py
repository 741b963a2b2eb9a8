"""Classes by how often they have been targets so far."""

from __future__ import annotations

import torch
from torch import Tensor

from widemax.declarations import declare
from widemax.sampling.base import DRAWN, DRAWS, DrawnSampler
from widemax.validation import ABSENT, MAX_TABLE_CLASSES


@declare.sampler("learned-unigram", options=DRAWN, traits=DRAWS)
class LearnedUnigramSampler(DrawnSampler):
    """Draws classes in proportion to the running counts of the targets seen in training.

    Formula: p(y) = (1 + n(y)) / (V + Σ n), n(y) the number of times y has been a target.

    Shapes: candidates [S], or [B, S] with ``per_example=True``.

    Cost: O(log V) a draw and an update, by a tree of integer sums; 16 to 32 bytes a class.

    Reference: TensorFlow's ``learned_unigram_candidate_sampler``.

    Use when: the counts are not known beforehand and each class fits in a table. Avoid when: they
    are known (``UnigramSampler``), they drift, or the ids are too many (``StreamingFrequency``).

    The counts are integers, so draws are exact; they are part of ``state_dict`` and change only in
    training mode, after the candidates are drawn.

    >>> import torch
    >>> sampler = LearnedUnigramSampler(4)
    >>> _ = sampler.sample(2, torch.tensor([3, 3, 0, 3]))
    >>> sampler.log_prob(torch.arange(4)).exp().round(decimals=3).tolist()
    [0.25, 0.125, 0.125, 0.5]
    """

    tree: Tensor
    """Sums of counts: node 1 is the total, the children of node i are 2i and 2i + 1."""

    def __init__(
        self, num_classes: int, *, unique: bool = False, per_example: bool = False
    ) -> None:
        super().__init__(
            num_classes, unique=unique, per_example=per_example, limit=MAX_TABLE_CLASSES
        )
        self._depth = (self.num_classes - 1).bit_length()
        tree = torch.zeros(2 << self._depth, dtype=torch.int64)
        tree[self._first_leaf : self._first_leaf + num_classes] = 1
        for level in reversed(range(self._depth)):
            start = 1 << level
            torch.add(
                tree[2 * start : 4 * start : 2],
                tree[2 * start + 1 : 4 * start : 2],
                out=tree[start : 2 * start],
            )
        self.register_buffer("tree", tree)

    @property
    def _first_leaf(self) -> int:
        return 1 << self._depth

    def draw(
        self,
        shape: tuple[int, ...],
        *,
        device: torch.device | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return independent draws, int64 of the given shape."""
        total = int(self.tree[1])
        remaining = torch.randint(total, shape, device=device, generator=generator)
        node = torch.ones_like(remaining)
        for _ in range(self._depth):
            node = 2 * node
            left = self.tree[node]
            right = remaining >= left
            remaining = torch.where(right, remaining - left, remaining)
            node = node + right
        return node - self._first_leaf

    def log_prob(self, ids: Tensor) -> Tensor:
        """Return log p(y) for each id by the current counts."""
        counts = self.tree[ids + self._first_leaf].double()
        return counts.log() - self.tree[1].double().log()

    def update(self, targets: Tensor) -> None:
        """Count each target once more; absent ones are not counted."""
        leaves = targets[targets != ABSENT] + self._first_leaf
        levels = torch.arange(self._depth + 1, device=targets.device)
        path = (leaves.unsqueeze(1) >> levels).flatten()
        self.tree.index_add_(0, path, torch.ones_like(path))
