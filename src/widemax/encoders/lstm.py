"""A recurrent state that has read all the words before."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from widemax.encoders.lookup import context_vectors, moved_left
from widemax.validation import (
    check_fraction,
    check_ids,
    check_num_classes,
    check_tensor,
    check_whole,
)

_MOST_UNITS = 2**20
_MOST_LAYERS = 64


class LSTMEncoder(nn.Module):
    """The state of a long short-term memory after the words of a context.

    Formula: h_t, c_t = LSTM(u(w_t), h_{t−1}, c_{t−1}) from h_0 = c_0 = 0; hidden = h after the last
    word, of the top layer; 0 for a context of nothing. ``dropout`` falls, while training, on all
    connections that are not recurrent: on the vectors, between layers and on the result.

    Shapes: context int64 [B, H], padded with -1 on the left, as ``Windows(before=H)`` gives it →
    hidden [B, hidden_size]; ``states`` takes segments [B, L], padded with -1 on the right →
    [B, L, hidden_size]; ``weight`` [V, D].

    Cost: O(B·T·hidden_size·(D + hidden_size)) a layer for T steps: H a word by ``forward``, one a
    word by ``states``. With ``sparse`` the gradient of ``weight`` holds the rows read only.

    Reference: Hochreiter & Schmidhuber 1997; Zaremba, Sutskever & Vinyals 2014 (dropout).

    Use when: what comes next depends on much of what came before. Train on ``states``, a step a
    word; ``forward`` serves and evaluates windows. Avoid when: the last few words tell as much
    (``NNLMEncoder``), which is far cheaper.

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
        sparse: bool = False,
    ) -> None:
        super().__init__()
        self.num_classes = check_num_classes(num_classes)
        self.dimension = check_whole("dimension", dimension, 1, _MOST_UNITS)
        self.hidden_size = check_whole("hidden_size", hidden_size, 1, _MOST_UNITS)
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
        nn.init.normal_(self.weight, std=dimension**-0.5)

    @property
    def output_dimension(self) -> int:
        """How wide the hidden state is: the ``dimension`` that the head's scorer needs."""
        return self.hidden_size

    def forward(self, context: Tensor) -> Tensor:
        """Return the state after the last word of each context, [B, ``hidden_size``]."""
        context = self._check("context", context)
        known = context >= 0
        _check_one_run("context", known[:, 1:] | ~known[:, :-1], "left")
        lengths = known.sum(-1)
        states = self._states(moved_left(context, lengths))
        if not states.shape[1]:
            return states.new_zeros(len(context), self.hidden_size)
        last = (lengths - 1).clamp(min=0)[:, None, None].expand(-1, 1, self.hidden_size)
        return states.gather(1, last)[:, 0]

    def states(self, segments: Tensor) -> Tensor:
        """Return the state after each place, [B, L, ``hidden_size``]; 0 at padding.

        A segment begins with the state 0: the one before it leaves nothing behind. The state at
        place t has read places 0 … t, so that it predicts place t + 1.
        """
        segments = self._check("segments", segments)
        known = segments >= 0
        _check_one_run("segments", known[:, :-1] | ~known[:, 1:], "right")
        return self._states(segments)

    def _states(self, segments: Tensor) -> Tensor:
        parameter = next(self.lstm.parameters())
        if not segments.numel():
            return parameter.new_zeros(*segments.shape, self.hidden_size)
        nothing = parameter.new_zeros(self.dimension)
        vectors = context_vectors(self.weight, segments, nothing, sparse=self.sparse)
        # Padding comes last, and no state before it knows of it. On CPUs without an LSTM in half
        # precision torch fails under autocast: there the recurrence stays as wide as it is.
        with torch.autocast("cpu", enabled=False):
            states, _ = self.lstm(self.dropout(vectors))
        states = self.dropout(states)
        return torch.where((segments >= 0)[..., None], states, states.new_zeros(()))

    def _check(self, name: str, ids: Tensor) -> Tensor:
        if check_tensor(name, ids).dim() != 2:
            raise ValueError(f"{name} must have two dimensions, got {list(ids.shape)}")
        return check_ids(name, ids, self.num_classes, absent=True)

    def extra_repr(self) -> str:
        """Return what ``print(encoder)`` shows."""
        return (
            f"num_classes={self.num_classes}, dimension={self.dimension}, "
            f"hidden_size={self.hidden_size}, sparse={self.sparse}"
        )


def _check_one_run(name: str, in_order: Tensor, side: str) -> None:
    if not bool(in_order.all()):
        row = int((~in_order).any(-1).nonzero()[0])
        raise ValueError(
            f"{name} must have its padding (-1) on the {side} of the words, which row {row} has not"
        )
