"""What every model is: examples cut from sequences, encoded, and given to a head."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from widemax.data import Sequences, WindowBatch, Windows
from widemax.heads import Head


class Model(nn.Module, ABC):
    """An encoder and a head, trained together on windows of sequences.

    Formula: losses = head(encode(context), targets).

    Shapes: context [B, H] padded with -1, targets [B] → losses [B].

    Cost: that of its encoder and its head.

    Reference: none.

    Use when: writing a model that ``widemax train`` can train. Avoid when: you have a training
    loop of your own (use the head in it).

    >>> import widemax as wm
    >>> issubclass(wm.CBOW, wm.Model)
    True
    """

    head: Head
    causal = False
    """Whether a class is told from those before it alone, so that a text can be gone on with."""

    @staticmethod
    @abstractmethod
    def windows(
        sequences: Sequences, *, max_history: int, window: int, positions: Tensor | None = None
    ) -> Windows:
        """Return the examples of sequences, or those at the given positions."""

    @abstractmethod
    def encode(self, context: Tensor) -> Tensor:
        """Return the hidden states [B, D] of contexts [B, H]."""

    def key_vectors(self) -> Tensor | None:
        """Return the vectors that stand for the classes, [V, D]; None: those of the head."""
        return None

    def forward(self, batch: WindowBatch, *, generator: torch.Generator | None = None) -> Tensor:
        """Return the training loss of each example, [B]."""
        losses: Tensor = self.head(self.encode(batch.context), batch.targets, generator=generator)
        return losses
