"""Models that tell the next word of a text: from the last few words, or from all before."""

from __future__ import annotations

import torch
from torch import Tensor

from widemax.data import Sequences, WindowBatch, Windows
from widemax.encoders import LSTMEncoder, NNLMEncoder
from widemax.heads import Head
from widemax.models.base import Model
from widemax.models.segments import SegmentBatch, Segments
from widemax.validation import ABSENT, check_tensor


class NNLM(Model):
    """The neural probabilistic language model: a word from the vectors of the last few.

    Formula: P(w_t | w_{t−n} … w_{t−1}) by the head of ``NNLMEncoder``'s hidden state; with a
    softmax over a table with biases, y = b + W·x + U·tanh(d + H·x).

    Shapes: as ``Model``, H = ``encoder.context_size``, -1 before the beginning of a text.

    Cost: as ``NNLMEncoder`` and the head.

    Reference: Bengio, Ducharme, Vincent & Janvin 2003.

    Use when: a language model is to be trained quickly, or the output layer is what is compared.
    Avoid when: what is said depends on words further back (``LSTMLanguageModel``).

    >>> from widemax.heads import FullHead
    >>> from widemax.scoring import TableScorer
    >>> encoder = NNLMEncoder(100, context_size=2, dimension=8, hidden_size=16)
    >>> model = NNLM(encoder, FullHead(TableScorer(100, encoder.output_dimension, bias=True)))
    >>> text = Sequences.from_lists([[5, 7, 9]])
    >>> batch = model.windows(text, max_history=2, window=1).batch(torch.arange(3))
    >>> batch.context.tolist(), model(batch).shape
    ([[-1, -1], [-1, 5], [5, 7]], torch.Size([3]))
    """

    causal = True

    def __init__(self, encoder: NNLMEncoder, head: Head) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head

    @staticmethod
    def windows(
        sequences: Sequences, *, max_history: int, window: int, positions: Tensor | None = None
    ) -> Windows:
        """Return each word with the ``max_history`` words before it, the first word too."""
        return Windows(sequences, before=max_history, positions=positions)

    def encode(self, context: Tensor) -> Tensor:
        """Return the hidden state of each context, [B, D]."""
        hidden: Tensor = self.encoder(context)
        return hidden


class LSTMLanguageModel(Model):
    """A word from the state of a recurrent network that has read the words before it.

    Formula: P(w_t | w_1 … w_{t−1}) by the head of ``LSTMEncoder``'s state after w_{t−1}; the state
    is 0 before the first word of a text.

    Shapes: as ``Model``, H any; or context and targets [B, L] of ``Segments`` → losses of all
    targets that count, [N], segment after segment.

    Cost: ``LSTMEncoder``'s and the head's: H steps a word for windows, about one for segments.

    Reference: Mikolov et al. 2010 (a recurrent language model); Zaremba, Sutskever & Vinyals 2014.

    Use when: a text is to be told as well as can be. Train on ``segments``; ``windows`` measure
    and serve it. Avoid when: time is short (``NNLM``).

    >>> from widemax.heads import FullHead
    >>> from widemax.scoring import TableScorer
    >>> encoder = LSTMEncoder(100, dimension=8, hidden_size=16)
    >>> model = LSTMLanguageModel(encoder, FullHead(TableScorer(100, 16, bias=True)))
    >>> segments = model.segments(Sequences.from_lists([[5, 7, 9], [3]]), length=8)
    >>> model(segments.batch(torch.arange(len(segments)))).shape
    torch.Size([4])
    """

    causal = True

    def __init__(self, encoder: LSTMEncoder, head: Head) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head

    @staticmethod
    def windows(
        sequences: Sequences, *, max_history: int, window: int, positions: Tensor | None = None
    ) -> Windows:
        """Return each word with the ``max_history`` words before it, the first word too."""
        return Windows(sequences, before=max_history, positions=positions)

    @staticmethod
    def segments(sequences: Sequences, *, length: int, overlap: int = 0) -> Segments:
        """Return stretches of ``length`` words: what to train on."""
        return Segments(sequences, length, overlap=overlap)

    def encode(self, context: Tensor) -> Tensor:
        """Return the state after each context, [B, D]."""
        hidden: Tensor = self.encoder(context)
        return hidden

    def encode_segments(self, context: Tensor) -> Tensor:
        """Return the state that tells each word of segments, [B, L, D]."""
        if check_tensor("context", context).dim() != 2:
            raise ValueError(f"context must have two dimensions, got {list(context.shape)}")
        begins = (context[:, :1] < 0)[..., None]
        # Where a text begins, the first word is told from nothing: the rest moves up by one.
        moved = torch.cat([context[:, 1:], torch.full_like(context[:, :1], ABSENT)], dim=1)
        states = self.encoder.states(torch.where(begins[..., 0], moved, context))
        later = torch.cat([torch.zeros_like(states[:, :1]), states[:, :-1]], dim=1)
        return torch.where(begins, later, states)

    def forward(
        self, batch: WindowBatch | SegmentBatch, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return the training loss of each target that counts."""
        if isinstance(batch, WindowBatch):
            return super().forward(batch, generator=generator)
        counted = batch.targets >= 0
        hidden = self.encode_segments(batch.context)[counted]
        losses: Tensor = self.head(hidden, batch.targets[counted], generator=generator)
        return losses
