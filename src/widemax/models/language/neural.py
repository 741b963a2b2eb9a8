"""Neural language models: the next word from the last few words, or from all before."""

from __future__ import annotations

from dataclasses import replace
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from widemax.data import Sequences, WindowBatch, Windows
from widemax.declarations import Option, Setup, declare
from widemax.encoders import LSTMEncoder, NNLMEncoder
from widemax.heads import Head, LayeredHead
from widemax.models.base import Model
from widemax.models.language.reading import Reading
from widemax.models.options import (
    DIMENSION,
    DROPOUT,
    LANGUAGE,
    LSTM_LAYERS,
    MAX_HISTORY,
    TIED,
)
from widemax.models.segments import (
    SegmentBatch,
    Segments,
    StreamBatch,
    Streams,
    sequence_starts,
    without_start,
)
from widemax.scoring.base import HIDDEN_SIZE
from widemax.validation import ABSENT

_PROPOSAL_REACH = 16

HEAD_UNITS = Option(
    "head_units",
    0,
    "Rectified units between the model and its output layer; 0 adds none.",
    most=2**16,
)
DIRECT = Option(
    "direct",
    False,
    "Whether the word vectors also reach the output layer directly, beside the hidden units.",
    # Behind units of the head's own nothing is direct.
    unless="head_units",
)


# Behind units of the head's own a class vector is as long as these are many.
TIED_WORDS = replace(TIED, unless="head_units")


class NeuralLanguageModel(Model):
    """What the neural language models share: each word, the first too, from those before it."""

    causal = True

    @staticmethod
    def windows(
        sequences: Sequences, *, max_history: int, window: int, positions: Tensor | None = None
    ) -> Windows:
        """Return each word with the ``max_history`` words before it, the first word too."""
        return Windows(sequences, before=max_history, positions=positions)


@declare.model(
    "nnlm",
    options=[DIMENSION, HIDDEN_SIZE, DROPOUT, MAX_HISTORY, HEAD_UNITS, DIRECT],
    traits=["gradients", "context", "windows"],
    usual={
        **LANGUAGE,
        "max_history": 5,
        "dimension": 128,
        "hidden_size": 128,
        "batch_size": 256,
        "epochs": 5,
        # By rows a rare word moves only in the steps that use it: 153 instead of 139 in the test
        # perplexity of the Penn Treebank.
        "optimizer": "auto",
        "learning_rate": 0.0015,
    },
)
class NNLM(NeuralLanguageModel):
    """The neural probabilistic language model: a word from the vectors of the last few.

    Formula: P(w_t | w_{t−n} … w_{t−1}) by the head of ``NNLMEncoder``'s hidden state; with a
    softmax over a table with biases, y = b + U·tanh(d + H·x), and with the setting ``direct``
    y = b + W·x + U·tanh(d + H·x), x the vectors of the last n words side by side.

    Reference: Bengio, Ducharme, Vincent & Janvin 2003.

    Use when: training must be quick, or output layers are compared. Avoid when: the next word
    depends on words further back (``LSTMLanguageModel``).

    >>> from widemax.heads import FullHead
    >>> from widemax.scoring import TableScorer
    >>> encoder = NNLMEncoder(100, context_size=2, dimension=8, hidden_size=16)
    >>> model = NNLM(encoder, FullHead(TableScorer(100, encoder.output_dimension, bias=True)))
    >>> text = Sequences.from_lists([[5, 7, 9]])
    >>> batch = model.windows(text, max_history=2, window=1).batch(torch.arange(3))
    >>> batch.context.tolist(), model(batch).shape
    ([[-1, -1], [-1, 5], [5, 7]], torch.Size([3]))
    """

    encoder: NNLMEncoder

    @classmethod
    def build(cls, setup: Setup) -> Self:
        """Return the untrained model of a run."""
        options = setup.options
        encoder = NNLMEncoder(
            setup.num_classes,
            options.max_history,
            options.dimension,
            options.hidden_size,
            direct=options.direct,
            dropout=options.dropout,
            sparse=True,
        )
        return cls(encoder, _head(setup, encoder.output_dimension))

    @staticmethod
    def min_parameter_count(setup: Setup) -> int:
        """Return how many numbers the model has at least."""
        options = setup.options
        read = options.hidden_size * options.max_history * options.dimension
        return int(setup.num_classes * options.dimension + read)


@declare.model(
    "lstm",
    options=[
        DIMENSION,
        HIDDEN_SIZE,
        LSTM_LAYERS,
        DROPOUT,
        MAX_HISTORY,
        HEAD_UNITS,
        TIED_WORDS,
    ],
    traits=["gradients", "context"],
    usual={
        **LANGUAGE,
        "max_history": 35,
        "dimension": 256,
        "hidden_size": 256,
        "dropout": 0.35,
        "batch_size": 700,
        "epochs": 10,
        "learning_rate": 0.003,
        "clip_norm": 5.0,
    },
)
class LSTMLanguageModel(NeuralLanguageModel):
    """A word from the state of a recurrent network that has read the words before it.

    Formula: P(w_t | w_1 … w_{t−1}) by the head of ``LSTMEncoder``'s state after w_{t−1}; the state
    is 0 before the first word of a text. A batch of ``Segments`` gives one loss for each target
    that counts, [N], segment after segment, and takes about one step a word, not H. A batch of
    ``Streams`` begins with the state that the batch before left in ``carried``; gradients do not
    reach back into that.

    Reference: Mikolov et al. 2010 (a recurrent language model); Zaremba, Sutskever & Vinyals 2014.

    Use when: text is to be predicted as well as possible. Train on ``segments``, or with
    ``carries`` on ``Streams``: then ``reading`` measures it, else ``windows`` do; those serve it.
    Avoid when: time is short (``NNLM``).

    >>> from widemax.heads import FullHead
    >>> from widemax.scoring import TableScorer
    >>> encoder = LSTMEncoder(100, dimension=8, hidden_size=16)
    >>> model = LSTMLanguageModel(encoder, FullHead(TableScorer(100, 16, bias=True)))
    >>> segments = model.segments(Sequences.from_lists([[5, 7, 9], [3]]), length=8)
    >>> model(segments.batch(torch.arange(len(segments)))).shape
    torch.Size([4])
    """

    encoder: LSTMEncoder
    carried: Tensor | None = None
    """The state after the last batch of streams, without a graph."""

    def __init__(self, encoder: LSTMEncoder, head: Head, *, carries: bool = False) -> None:
        super().__init__(encoder, head)
        self.carries = carries

    @classmethod
    def build(cls, setup: Setup) -> Self:
        """Return the untrained model of a run."""
        options = setup.options
        tied = options.tied and not options.head_units
        encoder = LSTMEncoder(
            setup.num_classes,
            options.dimension,
            options.hidden_size,
            options.lstm_layers,
            dropout=options.dropout,
            # Class vectors are then as long as those of the words that are read.
            projected=tied and options.hidden_size != options.dimension,
            sparse=setup.sparse or not tied,
        )
        # A log is many sequences that have nothing to do with each other.
        carries = bool(options.get("across_lines", False))
        items = encoder.as_embedding() if tied else None
        return cls(encoder, _head(setup, encoder.output_dimension, items), carries=carries)

    @staticmethod
    def min_parameter_count(setup: Setup) -> int:
        """Return how many numbers the model has at least."""
        units, dimension = setup.options.hidden_size, setup.options.dimension
        return int(setup.num_classes * dimension + 4 * units * (units + dimension))

    def examples(self, setup: Setup, sequences: Sequences) -> Segments | Streams:
        """Return stretches of text: one pass predicts all their words."""
        length = setup.options.max_history
        if not self.carries:
            return self.segments(sequences, length=length)
        if setup.options.batch_size < length:
            raise ValueError(
                f"batch_size must be at least max_history = {length:,}, what is read of a stream "
                f"in one step, got {setup.options.batch_size:,}"
            )
        return Streams(sequences, length, setup.options.batch_size // length)

    def reading(self, windows: Windows) -> Reading | None:
        """Return the words of a text with their states, where those are carried over lines."""
        return Reading(self.encoder, windows) if self.carries else None

    @staticmethod
    def segments(sequences: Sequences, *, length: int, overlap: int = 0) -> Segments:
        """Return stretches of ``length`` words: what to train on."""
        return Segments(sequences, length, overlap=overlap)

    def encode_segments(self, context: Tensor) -> Tensor:
        """Return the state that predicts each word of segments, [B, L, D]."""
        starts = sequence_starts(context)
        states = self.encoder.states(without_start(context, starts))
        later = torch.cat([torch.zeros_like(states[:, :1]), states[:, :-1]], dim=1)
        return torch.where(starts[..., None], later, states)

    def forward(
        self, batch: WindowBatch | SegmentBatch, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return the training loss of each target that counts."""
        if isinstance(batch, WindowBatch):
            return super().forward(batch, generator=generator)
        counted = batch.targets >= 0
        if isinstance(batch, StreamBatch):
            hidden = self._go_on(batch)[counted]
        else:
            hidden = self.encode_segments(batch.context)[counted]
        # Each word of a segment with those before it, as far back as a proposal may read.
        before = pad(batch.context, (_PROPOSAL_REACH - 1, 0), value=ABSENT)
        context = before.unfold(1, _PROPOSAL_REACH, 1)[counted]
        return self.losses(hidden, batch.targets[counted], context, generator)

    def _go_on(self, batch: StreamBatch) -> Tensor:
        """Return the states that predict the words of streams, and keep those they end with."""
        if batch.follows and self.carried is None:
            raise ValueError("a batch that follows another needs the state which that one left")
        states, last = self.encoder.read(batch.context, self.carried if batch.follows else None)
        self.carried = last.detach()
        return states


def _head(setup: Setup, dimension: int, items: nn.Embedding | None = None) -> Head:
    """Return the head of a run, behind a layer of its own where that is asked for."""
    units = setup.options.head_units
    if not units:
        head: Head = setup.head(dimension, items=items)
        return head
    layer = nn.Sequential(nn.Linear(dimension, units), nn.ReLU())
    return LayeredHead(dimension, layer, setup.head(units))
