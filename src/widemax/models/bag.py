"""Models whose hidden state is the mean of input vectors."""

from __future__ import annotations

from torch import Tensor

from widemax.data import Sequences, Windows
from widemax.encoders import BagEncoder
from widemax.heads import Head
from widemax.models.base import Model


class BagModel(Model):
    """A head on the mean of the input vectors around the target.

    Formula: P(y | context) by the head of ``BagEncoder``'s hidden state.

    Shapes: as ``Model``.

    Cost: as ``BagEncoder`` and the head.

    Reference: see ``NextItem`` and ``CBOW``.

    Use when: writing another way to cut examples. Avoid when: order matters.

    >>> import widemax as wm
    >>> issubclass(wm.NextItem, BagModel)
    True
    """

    def __init__(self, encoder: BagEncoder, head: Head) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head

    def encode(self, context: Tensor) -> Tensor:
        """Return the mean input vector of each context, [B, D]."""
        hidden: Tensor = self.encoder(context)
        return hidden


class NextItem(BagModel):
    """The next item of a user from the mean of what he had before.

    Formula: target = item p of a sequence; context = the ``max_history`` items before it.

    Shapes: as ``Model``.

    Cost: as ``BagModel``.

    Reference: Covington, Adams & Sargin 2016, without side features.

    Use when: a log of interactions is to become recommendations. Avoid when: the order of the last
    items matters most.

    >>> import torch
    >>> import widemax as wm
    >>> windows = NextItem.windows(wm.Sequences.from_lists([[4, 0, 2]]), max_history=5, window=1)
    >>> windows.batch(torch.arange(len(windows))).targets.tolist()
    [0, 2]
    """

    @staticmethod
    def windows(
        sequences: Sequences, *, max_history: int, window: int, positions: Tensor | None = None
    ) -> Windows:
        """Return each item with those before it; the first of a sequence has none and is left."""
        return Windows(sequences, before=max_history, positions=positions, require_context=True)
