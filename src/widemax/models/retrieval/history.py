"""Models that tell the next item of a user from those before it."""

from __future__ import annotations

from torch import Tensor, nn

from widemax.data import Sequences, Windows
from widemax.heads import Head
from widemax.models.base import Model


class HistoryModel(Model):
    """A head on what an encoder makes of a history.

    Formula: P(y | context) by the head of encoder(context). One that knows its users, too, has a
    ``hidden`` of its own.

    Shapes: as ``Model``.

    Cost: that of its encoder and its head.

    Reference: none.

    Use when: writing a model that reads histories. Avoid when: words on both sides tell a word.

    >>> import widemax as wm
    >>> issubclass(wm.SDM, HistoryModel), issubclass(wm.YouTubeDNN, HistoryModel)
    (True, True)
    """

    encoder: nn.Module

    def __init__(self, encoder: nn.Module, head: Head) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head

    @staticmethod
    def windows(
        sequences: Sequences, *, max_history: int, window: int, positions: Tensor | None = None
    ) -> Windows:
        """Return each item with those before it; the first of a sequence has none and is left."""
        return Windows(sequences, before=max_history, positions=positions, require_context=True)

    def encode(self, context: Tensor) -> Tensor:
        """Return the hidden states of histories of users who are not known."""
        hidden: Tensor = self.encoder(context)
        return hidden
