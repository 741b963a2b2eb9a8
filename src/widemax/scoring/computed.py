"""Class vectors that a network computes, for few classes or for all of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from widemax.scoring.base import Scorer

BLOCK_VALUES = 2**23
"""Values in one block of activations: 32 MB in float32, whatever the number of classes is."""


class ComputedScorer(Scorer):
    """A scorer whose class vectors are computed: each distinct class of a batch once.

    In eval mode without gradients the vectors of all classes are computed once and kept, until
    ``train`` or ``eval`` is called or a parameter changes other than through ``.data``.
    """

    _kept: tuple[object, list[Tensor], Tensor] | None = None

    @abstractmethod
    def _vectors(self, ids: Tensor) -> Tensor:
        """Return the vectors of distinct classes, [N, D]."""

    def class_vectors(self, ids: Tensor | None = None) -> Tensor:
        """Return the vectors of the given classes, [*ids.shape, D], or of all, [V, D]."""
        if not (self.training or torch.is_grad_enabled() or torch.compiler.is_compiling()):
            kept = self._kept_vectors()
            return kept if ids is None else kept[ids]
        if ids is None:
            return self._all_vectors()
        distinct, place = torch.unique(ids, return_inverse=True)
        # index_select, whose gradient adds up copies faster than that of vectors[place].
        vectors = self._vectors(distinct).index_select(0, place.flatten())
        return vectors.view(*ids.shape, self.dimension)

    def train(self, mode: bool = True) -> Self:
        """Change the mode, and drop the vectors that were kept."""
        self._kept = None
        return super().train(mode)

    def __getstate__(self) -> dict[str, Any]:
        # A copy has tensors of its own, which the kept vectors do not belong to.
        return {**self.__dict__, "_kept": None}

    def _all_vectors(self) -> Tensor:
        return self._vectors(torch.arange(self.num_classes, device=next(self.parameters()).device))

    def _kept_vectors(self) -> Tensor:
        """Return the vectors of all classes, computed again only if something changed."""
        tensors = [*self.parameters(), *self.buffers()]
        state = [(each.data_ptr(), each._version, each.dtype) for each in tensors]
        now = (state, torch.is_autocast_enabled(tensors[0].device.type))
        if self._kept is None or self._kept[0] != now:
            # Held, so that no other tensor can take the addresses that identify these.
            held = [each.detach() for each in tensors]
            self._kept = (now, held, self._all_vectors())
        return self._kept[2]


def in_blocks(compute: Callable[..., Tensor], size: int, *rows: Tensor) -> Tensor:
    """Return ``compute(*rows)``, computed ``size`` rows at a time.

    Where gradients are wanted, a block's activations are computed again when its turn comes.

    >>> in_blocks(torch.add, 2, torch.arange(3), torch.ones(3)).tolist()
    [1.0, 2.0, 3.0]
    """
    if len(rows[0]) <= size:
        return compute(*rows)
    blocks = zip(*(torch.split(each, size) for each in rows), strict=True)
    if not torch.is_grad_enabled():
        return torch.cat([compute(*block) for block in blocks])
    return torch.cat([checkpoint(compute, *block, use_reentrant=False) for block in blocks])
