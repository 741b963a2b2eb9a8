"""The next item from the mean of a history."""

from __future__ import annotations

from typing import Self

from widemax.declarations import Setup, declare
from widemax.encoders import BagEncoder
from widemax.models.options import DIMENSION, HISTORY_BY_TEST, LAST_ITEMS, WEIGHTS
from widemax.models.retrieval.history import HistoryModel


@declare.model(
    "next-item",
    options=[DIMENSION, HISTORY_BY_TEST, *WEIGHTS],
    traits=["gradients", "context", "windows"],
    usual=LAST_ITEMS,
)
class NextItem(HistoryModel):
    """The next item of a user from the mean of what they had before.

    Formula: P(y | context) by the head of ``BagEncoder``'s hidden state; target = item p of a
    sequence, context = the ``max_history`` items before it.

    Reference: Covington, Adams & Sargin 2016, without side features.

    Use when: what follows an item differs from what comes before it, or tables are divided over
    processes. Avoid when: items only go together (``YouTubeDNN``), or the order of the last items
    matters most (``SDM``).

    >>> import torch
    >>> import widemax as wm
    >>> windows = NextItem.windows(wm.Sequences.from_lists([[4, 0, 2]]), max_history=5, window=1)
    >>> windows.batch(torch.arange(len(windows))).targets.tolist()
    [0, 2]
    """

    encoder: BagEncoder

    @classmethod
    def build(cls, setup: Setup) -> Self:
        """Return the untrained model of a run."""
        dimension = setup.options.dimension
        return cls(setup.bag_encoder(dimension), setup.head(dimension))
