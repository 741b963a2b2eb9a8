"""What every model is: examples cut from sequences, encoded, and given to a head."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from widemax.candidates import TopK, merge_topk
from widemax.data import Sequences, WindowBatch, Windows
from widemax.heads import Head


class Model(nn.Module, ABC):
    """An encoder and a head, trained together on windows of sequences.

    Formula: losses = head(hidden(batch), targets); a class scores head.scores(hidden(batch)), and
    where a model has several hidden states for one example, the best of theirs.

    Contexts are [B, H], padded with -1; targets [B]; losses [B]; hidden states [B, D], or
    [B, K, D] of a model with K interests.

    Use when: writing a model that ``widemax train`` can train. Avoid when: you have a training
    loop of your own (use the head in it).
    """

    encoder: nn.Module | None
    """None in a model that is counted or solved: its head is asked by contexts."""
    head: Head
    causal = False
    """Whether a class is predicted only from those before it, so that text can be generated."""

    def __init__(self, encoder: nn.Module | None, head: Head) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head

    @staticmethod
    @abstractmethod
    def windows(
        sequences: Sequences, *, max_history: int, window: int, positions: Tensor | None = None
    ) -> Windows:
        """Return the examples of sequences, or those at the given positions."""

    def encode(self, context: Tensor) -> Tensor:
        """Return the hidden states of contexts [B, H] of users who are not known."""
        hidden: Tensor = context if self.encoder is None else self.encoder(context)
        return hidden

    def hidden(self, batch: WindowBatch) -> Tensor:
        """Return the hidden states of examples, [B, D] or [B, K, D], ignoring their targets.

        A model that knows its users also reads ``batch.users`` and ``batch.ages``.
        """
        return self.encode(batch.context)

    def scores(self, batch: WindowBatch) -> Tensor:
        """Return the scores by which classes are ranked, [B, V]."""
        hidden = self.hidden(batch)
        if hidden.dim() == 2:
            return self.head.scores(hidden)
        return torch.stack([self.head.scores(each) for each in hidden.unbind(1)]).amax(0)

    def log_prob(self, batch: WindowBatch) -> Tensor:
        """Return log P of all classes, normalised over the scores they are ranked by, [B, V]."""
        hidden = self.hidden(batch)
        if hidden.dim() == 2:
            return self.head.log_prob(hidden)
        return self.scores(batch).log_softmax(-1)

    def topk(self, batch: WindowBatch, k: int, *, exclude: Tensor | None = None) -> TopK:
        """Return the k best classes of each example, leaving out ``exclude`` [B, E]."""
        hidden = self.hidden(batch)
        if hidden.dim() == 2:
            return self.head.topk(hidden, k, exclude=exclude)
        found = [self.head.topk(each, k, exclude=exclude) for each in hidden.unbind(1)]
        return merge_topk(found, k)

    def key_vectors(self) -> Tensor | None:
        """Return the vectors that stand for the classes, [V, D]; None: those of the head."""
        return None

    def forward(self, batch: WindowBatch, *, generator: torch.Generator | None = None) -> Tensor:
        """Return the training loss of each example, [B]."""
        losses: Tensor = self.head(self.hidden(batch), batch.targets, generator=generator)
        return losses
