"""What models share that predict the next item of a user from those before it."""

from __future__ import annotations

from torch import Tensor

from widemax.data import Sequences, Windows
from widemax.models.base import Model


class HistoryModel(Model):
    """A model whose examples are items, each with the history before it.

    One that also knows its users has a ``hidden`` of its own.
    """

    @staticmethod
    def windows(
        sequences: Sequences, *, max_history: int, window: int, positions: Tensor | None = None
    ) -> Windows:
        """Return each item with those before it; the first of a sequence has none: no example."""
        return Windows(sequences, before=max_history, positions=positions, require_context=True)
