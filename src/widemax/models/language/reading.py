"""A text that a recurrent model reads once, from its beginning to its end."""

from __future__ import annotations

import torch
from torch import Tensor

from widemax.data import WindowBatch, Windows
from widemax.encoders import LSTMEncoder


class Reading:
    """The words of a text to be predicted, each with the state after all words before it.

    Formula: the state that predicts word p has read words 0 … p − 1; it is 0 for the first. Batches
    have these states in place of contexts, and are to be taken in order: the text is read once,
    one step a word, and no state is forgotten at the end of a line or a batch.

    >>> from widemax.data import Sequences
    >>> encoder = LSTMEncoder(9, dimension=2, hidden_size=3).eval()
    >>> text = Windows(Sequences.from_lists([[3, 1, 4]]), before=1, positions=torch.tensor([0, 2]))
    >>> batch = Reading(encoder, text).batch(torch.arange(2))
    >>> batch.targets.tolist(), batch.context[0].tolist()
    ([3, 4], [0.0, 0.0, 0.0])
    >>> torch.allclose(batch.context[1], encoder.states(torch.tensor([[3, 1]]))[0, -1], atol=1e-6)
    True
    """

    def __init__(self, encoder: LSTMEncoder, windows: Windows) -> None:
        self.encoder, self.values = encoder, windows.sequences.values
        places = windows.positions
        self._places = torch.arange(len(self.values)) if places is None else places
        self._begin()

    def _begin(self) -> None:
        parameter = next(self.encoder.parameters())
        self._done = 0
        self._carried: Tensor | None = None
        self._last: Tensor = parameter.new_zeros(1, self.encoder.output_dimension)

    def __len__(self) -> int:
        return len(self._places)

    @torch.no_grad()
    def batch(self, rows: Tensor) -> WindowBatch:
        """Return the examples ``rows`` [B], rising, their states [B, D] as contexts."""
        places = self._places[rows]
        if int(places[0]) < self._done:
            self._begin()
        stop = int(places[-1])
        states, self._carried = self.encoder.read(
            self.values[None, self._done : stop], self._carried
        )
        states = torch.cat([self._last, states[0]])
        hidden = states[places - self._done]
        self._done, self._last = stop, states[-1:]
        return WindowBatch(context=hidden, targets=self.values[places])
