"""A recurrent state that has read all the words before."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from widemax.encoders.contexts import (
    check_context,
    check_segments,
    context_vectors,
    left_padded,
)
from widemax.encoders.dense import dense_rows, state_after
from widemax.validation import check_fraction, check_num_classes, check_whole

_MOST_UNITS = 2**20
_MOST_LAYERS = 64


class LSTMEncoder(nn.Module):
    """The state of a long short-term memory after the words of a context.

    Formula: h_t, c_t = LSTM(u(w_t), h_{t−1}, c_{t−1}) from h_0 = c_0 = 0; hidden = h after the last
    word, of the top layer, with ``projected`` mapped to the length of a word's vector; 0 for a
    context of nothing. ``dropout`` falls, while training, on all connections that are not
    recurrent: on the vectors, between layers and on the result.

    Shapes: context int64 [B, H], padded with -1 on the left, as ``Windows(before=H)`` gives it →
    hidden [B, D], D = ``output_dimension``; ``states`` takes segments [B, L], padded with -1 on the
    right → [B, L, D].

    Reference: Hochreiter & Schmidhuber 1997; Zaremba, Sutskever & Vinyals 2014 (dropout).

    Train on ``states``, one step a word; ``forward``, H steps a word, serves and evaluates windows.
    With ``sparse`` the gradient of ``weight`` [V, D] holds the rows read only.

    >>> encoder = LSTMEncoder(100, dimension=8, hidden_size=16)
    >>> states = encoder.states(torch.tensor([[3, 1, 4], [5, 9, -1]]))
    >>> last = encoder(torch.tensor([[3, 1, 4], [-1, 5, 9]]))
    >>> torch.allclose(last, states[[0, 1], [2, 1]], atol=1e-6), states[1, 2].abs().sum().item()
    (True, 0.0)
    """

    def __init__(
        self,
        num_classes: int,
        dimension: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        dropout: float = 0.0,
        projected: bool = False,
        sparse: bool = False,
    ) -> None:
        super().__init__()
        self.num_classes = check_num_classes(num_classes)
        self.dimension = check_whole("dimension", dimension, 1, _MOST_UNITS)
        self.hidden_size = check_whole("hidden_size", hidden_size, 1, _MOST_UNITS)
        self.output_dimension = dimension if projected else hidden_size
        self.num_layers = check_whole("num_layers", num_layers, 1, _MOST_LAYERS)
        self.sparse = sparse
        self.dropout = nn.Dropout(check_fraction("dropout", dropout))
        self.weight = nn.Parameter(torch.empty(num_classes, dimension))
        self.lstm = nn.LSTM(
            dimension,
            hidden_size,
            num_layers,
            batch_first=True,
            # torch warns of dropout between layers where there is one layer only.
            dropout=dropout if num_layers > 1 else 0.0,
        )
        self.projection: nn.Module = nn.Identity()
        if projected:
            self.projection = nn.Linear(hidden_size, dimension, bias=False)
        nn.init.normal_(self.weight, std=dimension**-0.5)

    def class_tables(self) -> dict[str, range]:
        """Return which tensors have a row for each class, with the classes of their rows."""
        return {"weight": range(self.num_classes)}

    def as_embedding(self) -> nn.Embedding:
        """Return the vectors of the words as torch has them, for an output layer to share."""
        embedding = nn.Embedding(
            self.num_classes, self.dimension, _weight=self.weight, sparse=self.sparse
        )
        embedding.weight = self.weight  # torch made a parameter of its own of it
        return embedding

    def forward(self, context: Tensor) -> Tensor:
        """Return the state after the last word of each context, [B, ``hidden_size``]."""
        segments, lengths = left_padded(check_context(context, self.num_classes))
        states = self._states(segments)
        if not states.shape[1]:
            return states.new_zeros(len(context), self.output_dimension)
        last = (lengths - 1).clamp(min=0)[:, None, None].expand(-1, 1, self.output_dimension)
        return states.gather(1, last)[:, 0]

    def dense(self, context: Tensor, features: Tensor | None = None) -> Tensor:
        """Return the last states of contexts as ``DenseEncoder`` takes them."""
        states, _ = self.lstm(dense_rows(self.weight, context))
        return state_after(self.projection(states), context)

    def states(self, segments: Tensor) -> Tensor:
        """Return the state after each place, [B, L, ``hidden_size``]; 0 at padding.

        A segment begins with the state 0: the one before it leaves nothing behind. The state at
        place t has read places 0 … t, so that it predicts place t + 1.
        """
        return self.read(segments)[0]

    def read(self, segments: Tensor, carried: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return what ``states`` does, and what a later call goes on from, ``carried``.

        ``carried`` is h and c of all layers, [2, layers, B, ``hidden_size``]; None stands for 0.
        Only of a row without padding it can be carried on.

        >>> encoder = LSTMEncoder(9, dimension=2, hidden_size=3)
        >>> text = torch.tensor([[3, 1, 4, 1]])
        >>> first, carried = encoder.read(text[:, :2])
        >>> rest, _ = encoder.read(text[:, 2:], carried)
        >>> torch.allclose(torch.cat([first, rest], 1), encoder.states(text), atol=1e-6)
        True
        """
        return self._read(check_segments(segments, self.num_classes), carried)

    def _states(self, segments: Tensor) -> Tensor:
        return self._read(segments, None)[0]

    def _read(self, segments: Tensor, carried: Tensor | None) -> tuple[Tensor, Tensor]:
        parameter = next(self.lstm.parameters())
        if carried is None:
            shape = (2, self.num_layers, len(segments), self.hidden_size)
            carried = parameter.new_zeros(shape)
        if not segments.numel():
            return parameter.new_zeros(*segments.shape, self.output_dimension), carried
        nothing = parameter.new_zeros(self.dimension)
        vectors = context_vectors(self.weight, segments, nothing, sparse=self.sparse)
        # Padding comes last, and no state before it sees it. On CPUs without an LSTM in half
        # precision torch fails under autocast: there the recurrence stays as wide as it is.
        with torch.autocast("cpu", enabled=False):
            states, last = self.lstm(self.dropout(vectors), (carried[0], carried[1]))
        states = self.projection(self.dropout(states))
        states = torch.where((segments >= 0)[..., None], states, states.new_zeros(()))
        return states, torch.stack(last)

    def extra_repr(self) -> str:
        """Return what ``print(encoder)`` shows."""
        return (
            f"num_classes={self.num_classes}, dimension={self.dimension}, "
            f"hidden_size={self.hidden_size}, sparse={self.sparse}"
        )
